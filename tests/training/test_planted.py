"""Planted structure: a model finds withheld facts of a tensor that its own equation generated."""

from __future__ import annotations

import pytest
import torch

from conftest import ALONE, generator, model_config
from recollect import Facts, Recipe
from recollect.evaluation.metrics import evaluate
from recollect.graph.fact_index import FactIndex
from recollect.models.zoo import build_model
from recollect.training.trainer import Trainer

SIZES = {
    "episodic": {"entity": 40, "predicate": 5, "time": 8},
    "semantic": {"entity": 80, "predicate": 20, "time": 1},
}
DIM = {"episodic": 4, "semantic": 6}  # the planted tensors have dim 2; some slack lets descent get past saddles


def planted(name: str, form: str) -> tuple[dict[str, int], Facts]:
    """Return the cells with the highest θ of a low-dimensional tensor, in random order."""
    sizes = SIZES[form]
    g = generator(0)
    truth = build_model(model_config(name, form, 2, dtype="float64"), sizes, generator=g)
    with torch.no_grad():
        for parameter in truth.parameters():
            parameter.normal_(generator=g)
        axes = [torch.arange(sizes[kind]) for kind in ("entity", "predicate", "entity", "time")]
        cells = Facts(torch.cartesian_prod(*axes))
        theta = truth.score(cells)
    best = theta.topk(len(cells) // 20).indices
    return sizes, cells[best[torch.randperm(len(best), generator=g)]]


@pytest.mark.long
@pytest.mark.parametrize(("name", "form"), ALONE)
def test_withheld_facts_of_a_planted_tensor_are_found(name, form):
    sizes, facts = planted(name, form)
    withheld, learned = facts[: len(facts) // 10], facts[len(facts) // 10 :]
    slots = "spot" if form == "episodic" else "spo"
    recipe = Recipe(
        learning_rate=0.02, epochs=80, l2=0.3, batch_size=512, negatives=dict.fromkeys(slots, 4), avoid_known=True
    )
    g = generator(1)
    model = build_model(model_config(name, form, DIM[form]), sizes, generator=g)
    for _ in Trainer(model, learned, recipe, generator=g):
        pass
    figures = evaluate(model, withheld, known=FactIndex(facts, sizes), slots=slots)["filtered"]
    assert {slot: figure["mrr"] for slot, figure in figures.items() if figure["mrr"] < 0.9} == {}
