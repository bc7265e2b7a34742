"""The index of known facts equals loops over them, and negatives are sampled as it says."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import SIZES, generator, random_facts
from recollect import Facts, UserError
from recollect.graph import fact_index
from recollect.graph.fact_index import FactIndex
from recollect.graph.facts import SLOTS
from recollect.training.objectives import sample_negatives
from recollect.training.recipe import check_negatives


def completions(known_rows, fact, slot):
    """Return every id that completes the fact, by looping over all facts."""
    at = SLOTS.index(slot)
    return sorted({row[at] for row in known_rows if all(row[i] == fact[i] for i in range(4) if i != at)})


@given(seed=st.integers(0, 1000), slot=st.sampled_from(SLOTS))
def test_find_gives_all_completions_and_only_those(seed, slot):
    facts, queries = random_facts(30, seed=seed), random_facts(10, seed=seed + 1)
    rows, ids = FactIndex(facts, SIZES).find(queries, slot)
    for i, query in enumerate(queries.ids.tolist()):
        assert ids[rows == i].tolist() == completions(facts.ids.tolist(), query, slot)


def test_it_contains_the_true_facts_it_was_built_from():
    facts = random_facts(40)
    known = FactIndex(facts[:20], SIZES)
    expected = [row in facts.ids[:20].tolist() for row in facts.ids.tolist()]
    assert known.contains(facts).tolist() == expected
    assert not FactIndex(Facts.of([]), SIZES).contains(facts).any()
    unknown = FactIndex(Facts(facts.ids, torch.zeros(40, dtype=torch.bool)), SIZES)
    assert not unknown.contains(facts).any()


@settings(max_examples=40)
@given(seed=st.integers(0, 300), slot=st.sampled_from(SLOTS))
def test_negatives_reach_every_allowed_id_and_no_other(seed, slot):
    facts = random_facts(30, seed=seed)
    known = FactIndex(facts, SIZES)
    others = sample_negatives(facts, slot, 50, known=known, generator=generator(seed))
    assert bool((others != facts.column(slot)[:, None]).all())
    unknown = sample_negatives(facts, slot, 200, known=known, generator=generator(seed), avoid_known=True)
    for row, drawn in zip(facts.ids.tolist(), unknown.tolist(), strict=True):
        taken = completions(facts.ids.tolist(), row, slot)
        allowed = set(range(known.size(slot))) - set(taken)
        if allowed:
            assert set(drawn) == allowed  # 200 draws from at most 5 ids reach each of them
        else:
            assert set(drawn) <= set(range(known.size(slot))) - {row[SLOTS.index(slot)]}


def test_negatives_depend_on_the_seed():
    facts = random_facts(8)
    known = FactIndex(facts, SIZES)
    draws = [sample_negatives(facts, "o", 5, known=known, generator=generator(seed)) for seed in (1, 1, 2)]
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])


def test_a_slot_with_one_id_has_no_negatives():
    facts = Facts.of([(0, 0, 1, 0)])
    known = FactIndex(facts, {"entity": 2, "predicate": 1, "time": 1})
    with pytest.raises(UserError, match="cannot corrupt the predicate: this graph has only one"):
        sample_negatives(facts, "p", 1, known=known, generator=generator())


@pytest.mark.parametrize("text", ["", "s=0", "x=1", "s", "s=-1", "s=one"])
def test_negatives_that_cannot_be_parsed_are_refused(text):
    with pytest.raises(UserError, match="negatives|unknown slot"):
        check_negatives(text)


def test_an_index_is_corrected_while_a_question_builds_another_part_of_it(monkeypatch):
    facts = random_facts(30, seed=0)
    index = FactIndex(facts, SIZES)
    index.codes("o")
    encode = fact_index.encode

    def asking(*arguments):
        if "s" not in index._codes:
            index._codes["s"] = torch.empty(0)  # as a question in another thread does
        return encode(*arguments)

    monkeypatch.setattr(fact_index, "encode", asking)
    changed = index.changed(facts[1:], SIZES, facts[:1], facts[:0])
    assert changed.codes("o").tolist() == FactIndex(facts[1:], SIZES).codes("o").tolist()
