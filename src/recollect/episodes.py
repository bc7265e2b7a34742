"""Runs of consecutive facts, what starts and ends and is current, and seeded splits."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from recollect.errors import UserError
from recollect.facts import KINDS, SLOTS, EpisodicGraph, Facts, Vocabulary, distinct, number
from recollect.seeds import seeded


@dataclass(frozen=True)
class Runs:
    """Maximal blocks of consecutive times of one (s, p, o)."""

    first: Facts  # at the first time of each run
    last: Tensor  # (n,) the last time of each run


def runs(graph: EpisodicGraph) -> Runs:
    """All runs of the graph's true facts, ordered by (s, p, o, first time)."""
    facts = distinct(graph.facts.true(), graph.sizes)
    codes = number(facts, graph.sizes)
    # a run goes on where the next number is one more and the time has not wrapped into another triple
    goes_on = (codes[1:] == codes[:-1] + 1) & (facts.t[1:] > 0)
    first, last = (torch.ones(len(facts), dtype=torch.bool) for _ in range(2))
    first[1:], last[:-1] = ~goes_on, ~goes_on
    return Runs(Facts(facts.ids[first]), facts.t[last])


def starts(graph: EpisodicGraph) -> Facts:
    """E_start: (s, p, o, first t) of every run."""
    return runs(graph).first


def ends(graph: EpisodicGraph) -> Facts:
    """E_end: (s, p, o, last t) of every run that ends before the last time."""
    found = runs(graph)
    ended = found.last < len(graph.times) - 1
    return found.first[ended].with_slot("t", found.last[ended])


def current(graph: EpisodicGraph) -> Facts:
    """χ at the last time T: True for triples with a run that reaches T, False for those whose runs all ended."""
    found, last = runs(graph), len(graph.times) - 1
    triples = number(found.first, graph.sizes, "spo")
    latest = torch.ones(len(triples), dtype=torch.bool)  # runs are in order: the last of a triple is its latest
    latest[:-1] = triples[1:] != triples[:-1]
    return Facts(found.first[latest].with_slot("t", last).ids, found.last[latest] == last)


def rare(graph: EpisodicGraph) -> Facts:
    """Facts of triples that occur fewer than three times, and the starts of all runs."""
    facts = distinct(graph.facts.true(), graph.sizes)
    _, inverse, counts = number(facts, graph.sizes, "spo").unique(return_inverse=True, return_counts=True)
    return distinct(Facts.concat([Facts(facts.ids[counts[inverse] < 3]), starts(graph)]), graph.sizes)


def most_frequent(graph: EpisodicGraph, entities: int) -> EpisodicGraph:
    """The facts among the `entities` entities that occur most often, ties by label; the paper's restriction."""
    if entities < 1:
        raise UserError(f"cannot keep the {entities} most frequent entities; wanted at least 1")
    facts = graph.facts
    counts = torch.bincount(torch.cat([facts.s, facts.o]), minlength=len(graph.entities))
    kept = counts.argsort(descending=True, stable=True)[:entities].sort().values
    new_id = torch.full((len(graph.entities),), -1).scatter_(0, kept, torch.arange(len(kept)))

    def renumber(part: Facts) -> Facts:
        inside = part[(new_id[part.s] >= 0) & (new_id[part.o] >= 0)]
        return inside.with_slot("s", new_id[inside.s]).with_slot("o", new_id[inside.o])

    labels = Vocabulary("entity", tuple(graph.entities.take(kept)))
    return replace(graph, entities=labels, splits={name: renumber(part) for name, part in graph.splits.items()})


def split_randomly(
    graph: EpisodicGraph, *, valid: float = 0.1, test: float = 0.1, seed: int = 0, entities: int | None = None
) -> EpisodicGraph:
    """Random train, valid and test splits, over the most frequent `entities` if told.

    For every entity, predicate and time one of its facts stays in train, so that nothing is asked that
    could not be learned; with few facts the other splits may come out smaller than asked.
    """
    _check_shares(valid, test)
    graph = graph if entities is None else most_frequent(graph, entities)
    facts = graph.facts
    facts = facts[torch.randperm(len(facts), generator=seeded(seed))]
    covers = torch.zeros(len(facts), dtype=torch.bool)
    for slot in SLOTS:
        position = torch.arange(len(facts))
        earliest = torch.full((graph.sizes[KINDS[slot]],), len(facts))
        earliest.scatter_reduce_(0, facts.column(slot), position, "amin")
        covers |= earliest[facts.column(slot)] == position
    free = (~covers).nonzero()[:, 0]
    n_valid, n_test = int(valid * len(facts)), int(test * len(facts))
    parts = {"valid": free[:n_valid], "test": free[n_valid : n_valid + n_test]}
    rest = torch.ones(len(facts), dtype=torch.bool)
    rest[torch.cat([*parts.values()])] = False
    return graph.with_splits({name: _in_order(facts[rows], graph) for name, rows in ({"train": rest} | parts).items()})


def split_by_time(graph: EpisodicGraph, *, valid: float = 0.1, test: float = 0.1) -> EpisodicGraph:
    """Train on the past, validate and test on what comes after, cut between whole times."""
    _check_shares(valid, test)
    facts = graph.facts
    before = torch.bincount(facts.t, minlength=len(graph.times)).cumsum(0).double() / max(1, len(facts))
    first_valid = int((before <= 1 - valid - test + 1e-9).sum())
    first_test = int((before <= 1 - test + 1e-9).sum())
    parts = {
        "train": facts.t < first_valid,
        "valid": (facts.t >= first_valid) & (facts.t < first_test),
        "test": facts.t >= first_test,
    }
    if not bool(parts["train"].any()):
        raise UserError("the first time alone holds more than the training share; use a finer grain or smaller shares")
    return graph.with_splits({name: _in_order(facts[rows], graph) for name, rows in parts.items()})


def _check_shares(valid: float, test: float) -> None:
    if not (valid >= 0 and test >= 0 and valid + test < 1):
        raise UserError(f"validation and test take {valid:g} and {test:g} of the facts; wanted shares that sum below 1")


def _in_order(facts: Facts, graph: EpisodicGraph) -> Facts:
    return facts[number(facts, graph.sizes).argsort()]
