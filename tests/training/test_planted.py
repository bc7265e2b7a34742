"""Planted structure: a model finds withheld facts of a tensor made by its own equation."""

from __future__ import annotations

import pytest
import torch

from conftest import ALONE, generator
from recollect import Facts, Recipe
from recollect.evaluation.metrics import evaluate
from recollect.graph.fact_index import FactIndex
from recollect.models.tensor_model import MODELS
from recollect.training.trainer import Trainer

SIZES = {
    "episodic": {"entity": 40, "predicate": 5, "time": 8},
    "semantic": {"entity": 80, "predicate": 20, "time": 1},
}
RANK = {"episodic": 4, "semantic": 6}  # the planted tensors have rank 2; some slack lets descent get past saddles


def planted(name: str, form: str) -> tuple[dict[str, int], Facts]:
    """The cells with the highest θ of a low-rank tensor, in random order."""
    sizes = SIZES[form]
    g = generator(0)
    truth = MODELS[name](sizes, 2, form=form, dtype=torch.float64, generator=g)
    with torch.no_grad():
        for parameter in truth.parameters():
            parameter.normal_(generator=g)
        axes = [torch.arange(sizes[kind]) for kind in ("entity", "predicate", "entity", "time")]
        cells = Facts(torch.cartesian_prod(*axes))
        theta = truth.score(cells)
    best = theta.topk(len(cells) // 20).indices
    return sizes, cells[best[torch.randperm(len(best), generator=g)]]


@pytest.mark.parametrize(("name", "form"), ALONE)
def test_withheld_facts_of_a_planted_tensor_are_found(name, form):
    sizes, facts = planted(name, form)
    withheld, learned = facts[: len(facts) // 10], facts[len(facts) // 10 :]
    slots = MODELS[name].equation(form).slots
    recipe = Recipe(
        learning_rate=0.02, epochs=80, l2=0.3, batch_size=512, negatives=dict.fromkeys(slots, 4), avoid_known=True
    )
    g = generator(1)
    model = MODELS[name](sizes, RANK[form], form=form, generator=g)
    for _ in Trainer(model, learned, recipe, generator=g):
        pass
    figures = evaluate(model, withheld, known=FactIndex(facts, sizes), slots=slots)["filtered"]
    assert {slot: figure["mrr"] for slot, figure in figures.items() if figure["mrr"] < 0.9} == {}
