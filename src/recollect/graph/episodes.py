"""Runs of consecutive facts, what starts and ends and is current, and seeded splits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from recollect.errors import UserError
from recollect.graph.facts import KINDS, SLOTS, EpisodicGraph, Facts, Vocabulary, distinct, in_order, number
from recollect.graph.seeds import seeded
from recollect.graph.times import GRAINS, TimeAxis, check_limits, time_bin, within


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
    labels, new_id = _kept_labels(graph.entities, kept)

    def renumber(part: Facts) -> Facts:
        inside = part[(new_id[part.s] >= 0) & (new_id[part.o] >= 0)]
        return inside.with_slot("s", new_id[inside.s]).with_slot("o", new_id[inside.o])

    splits = {name: renumber(part) for name, part in graph.splits.items()}
    return replace(graph, entities=labels, splits=splits, duplicates=0, rows={}, dropped={})


def aggregate(
    graph: EpisodicGraph,
    *,
    entities: Mapping[str, str] | None = None,
    predicates: Mapping[str, str] | None = None,
    grain: str | None = None,
    since: str | None = None,
    until: str | None = None,
    counts: bool = False,
) -> EpisodicGraph:
    """The facts of all splits told more coarsely: entities and predicates by group, times by a coarser grain.

    A label that a mapping leaves out loses its facts, and so do times before `since` and after `until` (both
    at the new grain, both included). Equal facts are merged; with `counts` one weighs as much as all it stands for.
    """
    told = graph.facts.true()
    kept = torch.ones(len(told), dtype=torch.bool)
    vocabularies, columns = {}, {}
    for kind, old, groups in (("entity", graph.entities, entities), ("predicate", graph.predicates, predicates)):
        new, ids = _grouped(old, groups)
        vocabularies[kind] = new
        for slot in (slot for slot in SLOTS if KINDS[slot] == kind):
            columns[slot] = ids[told.column(slot)]
    columns["t"], axis = _coarse_times(graph.times, grain, since, until, told.t)
    for column in columns.values():
        kept &= column >= 0
    if not kept.any():
        raise UserError(f"no fact of {graph.name} is left; check the groups and the dates")
    facts = Facts.from_columns(*(columns[slot][kept] for slot in SLOTS))
    sizes = {**{kind: len(new) for kind, new in vocabularies.items()}, "time": len(axis)}
    merged, weight = distinct(facts, sizes), None
    if counts:
        weights = (told.weight if told.weight is not None else torch.ones(len(told)))[kept]
        _, inverse = number(facts, sizes).unique(return_inverse=True)
        weight = torch.zeros(len(merged)).index_add_(0, inverse, weights)
    outside = int((~kept).sum())
    return _only_used(
        EpisodicGraph(
            vocabularies["entity"],
            vocabularies["predicate"],
            axis,
            {"train": Facts(merged.ids, None, weight)},
            graph.name,
            duplicates=len(facts) - len(merged),
            rows={"train": len(told)},
            dropped={"outside the groups or the dates": outside} if outside else {},
        )
    )


def _grouped(old: Vocabulary, groups: Mapping[str, str] | None) -> tuple[Vocabulary, Tensor]:
    """The vocabulary of the groups, and the group of every old id, −1 for none."""
    if groups is None:
        return old, torch.arange(len(old))
    new = Vocabulary.of(old.kind, (groups[label] for label in old.labels if label in groups))
    return new, torch.tensor([new.index(groups[label]) if label in groups else -1 for label in old.labels])


def _coarse_times(
    old: TimeAxis, grain: str | None, since: str | None, until: str | None, times: Tensor
) -> tuple[Tensor, TimeAxis]:
    """The new index of every time, −1 outside the limits, and the axis they lie on."""
    grain = grain or old.grain
    if grain not in GRAINS:
        raise UserError(f"unknown grain {grain!r}; choose one of {', '.join(GRAINS)}")
    bins = [time_bin(label, grain) for label in old.labels]
    if None in bins:
        raise UserError(f"{old.grain}s cannot be told by {grain}; choose a coarser grain than {old.grain}")
    check_limits(since, until, old.grain)
    inside = [
        b for label, b in zip(old.labels, bins, strict=True) if b is not None and within(label, since, until, old.grain)
    ]
    if not inside:
        raise UserError(
            f"no time lies between {since} and {until}; the record runs from {old.label(0)} "
            f"to {old.label(len(old) - 1)}"
        )
    axis = TimeAxis.spanning(grain, inside)
    index = [(b - axis.first) // axis.step if b is not None and inside[0] <= b <= inside[-1] else -1 for b in bins]
    return torch.tensor(index)[times], axis


def _only_used(graph: EpisodicGraph) -> EpisodicGraph:
    """Without the entities and predicates that no fact is about."""
    facts = graph.facts
    entities, new_entity = _kept_labels(graph.entities, torch.cat([facts.s, facts.o]).unique())
    predicates, new_predicate = _kept_labels(graph.predicates, facts.p.unique())

    def renumber(part: Facts) -> Facts:
        part = part.with_slot("s", new_entity[part.s]).with_slot("o", new_entity[part.o])
        return part.with_slot("p", new_predicate[part.p])

    splits = {name: renumber(part) for name, part in graph.splits.items()}
    return replace(graph, entities=entities, predicates=predicates, splits=splits)


def _kept_labels(old: Vocabulary, kept: Tensor) -> tuple[Vocabulary, Tensor]:
    """A vocabulary of the ids in `kept`, in order, and the new id of every old one, −1 where it is not kept."""
    new_id = torch.full((len(old),), -1).scatter_(0, kept, torch.arange(len(kept)))
    return Vocabulary(old.kind, tuple(old.take(kept))), new_id


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
    return graph.with_splits(
        {name: in_order(facts[rows], graph.sizes) for name, rows in ({"train": rest} | parts).items()}
    )


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
    return graph.with_splits({name: in_order(facts[rows], graph.sizes) for name, rows in parts.items()})


def _check_shares(valid: float, test: float) -> None:
    if not (valid >= 0 and test >= 0 and valid + test < 1):
        raise UserError(f"validation and test take {valid:g} and {test:g} of the facts; wanted shares that sum below 1")
