"""The textbook models of the contests compute the same θ and the same ranks as ours."""

from __future__ import annotations

import pytest
import torch

from benchmarks import textbook
from conftest import SIZES, generator, random_facts, random_model
from recollect import MODELS
from recollect.evaluation.ranking import rank
from recollect.graph.fact_index import FactIndex
from recollect.graph.facts import SLOTS

DIM = 4


def pair(name):
    """Return our model and the textbook's with the same weights."""
    ours = random_model(name, "semantic" if name == "rescal" else "episodic", DIM, "float32")
    theirs = textbook.build(name, SIZES, DIM)
    with torch.no_grad():
        for kind in SIZES:
            if hasattr(ours, kind):
                getattr(theirs, kind).weight.copy_(getattr(ours, kind).flatten(1))
        for number, core in enumerate(theirs.core):
            core.copy_(getattr(ours, f"core{number}"))
    return ours, theirs


def test_every_model_has_a_textbook_one():
    assert set(textbook.MODELS) == set(MODELS)


@pytest.mark.parametrize("name", MODELS)
def test_textbook_scores_are_ours(name):
    ours, theirs = pair(name)
    facts = random_facts(12)
    columns = facts.ids.T
    torch.testing.assert_close(theirs(*columns), ours.score(facts), rtol=1e-4, atol=1e-4)
    for slot in ours.slots:
        torch.testing.assert_close(
            theirs.against(slot, *columns), ours.score_against(facts, slot), rtol=1e-4, atol=1e-4
        )


@pytest.mark.parametrize("name", MODELS)
def test_textbook_ranks_are_ours(name):
    ours, theirs = pair(name)
    facts = ours.normalize(random_facts(40))
    for slot in ours.slots:
        expected = rank(ours, facts, slot, known=FactIndex(facts, SIZES))["filtered"].ranks()
        found = textbook.evaluate(theirs, facts.ids, slot, textbook.filter_of(facts.ids, slot))
        torch.testing.assert_close(found.double(), expected)


@pytest.mark.parametrize("step", ["train_step", "one_vs_all_step"])
@pytest.mark.parametrize("name", MODELS)
def test_textbook_steps_learn(name, step):
    torch.manual_seed(0)
    model = textbook.build(name, SIZES, DIM)
    optimizer = textbook.optimizer_of(model, learning_rate=0.05)
    facts = random_facts(6).ids
    losses = [getattr(textbook, step)(model, optimizer, facts) for _ in range(60)]
    assert sum(losses[-5:]) < sum(losses[:5])


def test_a_saved_textbook_model_is_loaded_again(tmp_path):
    _, model = pair("cont")
    labels = {kind: [f"{kind}{i}" for i in range(count)] for kind, count in SIZES.items()}
    facts = random_facts(9)
    textbook.save(model, labels, facts.ids, tmp_path / "model.pt")
    other = textbook.build("cont", SIZES, DIM)
    stored = textbook.load_(other, tmp_path / "model.pt")
    assert torch.equal(stored["facts"], facts.ids)
    assert stored["ids"]["entity"]["entity3"] == 3
    one = facts[torch.randint(len(facts), (1,), generator=generator())].ids
    for slot in SLOTS:
        kind = {"s": "entity", "p": "predicate", "o": "entity", "t": "time"}[slot]
        answers = textbook.recall(other, one, slot, labels[kind], top=3)
        best = model.against(slot, *one.T)[0].argmax()
        assert answers[0][0] == labels[kind][best]
