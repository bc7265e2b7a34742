"""Operations on whole graphs: runs, starts, ends, the current state, rare facts, coarser graphs and splits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from recollect.errors import UserError
from recollect.graph.facts import (
    KINDS,
    SLOTS,
    EpisodicGraph,
    Facts,
    Vocabulary,
    distinct,
    encode,
    merge_equal,
    sort_facts,
)
from recollect.graph.seeds import seeded
from recollect.graph.times import GRAINS, TimeAxis, check_limits, time_bin, within


@dataclass(frozen=True)
class Runs:
    """n maximal blocks of consecutive times of one (s, p, o)."""

    first: Facts  # (n,) facts: the triple of each run and its first time
    last: Tensor  # (n,) int64: the last time of each run


def runs(graph: EpisodicGraph) -> Runs:
    """Return all runs of the graph's true facts, sorted by (s, p, o, first time)."""
    facts = distinct(graph.facts.true(), graph.sizes)
    codes = encode(facts, graph.sizes)
    # the next code is one more at the next time of the same triple, or at time 0 of another triple
    continues = (codes[1:] == codes[:-1] + 1) & (facts.t[1:] > 0)
    is_first = torch.ones(len(facts), dtype=torch.bool)
    is_first[1:] = ~continues
    is_last = torch.ones(len(facts), dtype=torch.bool)
    is_last[:-1] = ~continues
    return Runs(Facts(facts.ids[is_first]), facts.t[is_last])


def starts(graph: EpisodicGraph) -> Facts:
    """Return E_start: (s, p, o, first t) of every run."""
    return runs(graph).first


def ends(graph: EpisodicGraph) -> Facts:
    """Return E_end: (s, p, o, last t) of every run that ends before the last time of the graph."""
    found = runs(graph)
    ended = found.last < len(graph.times) - 1
    return found.first[ended].with_slot("t", found.last[ended])


def current(graph: EpisodicGraph) -> Facts:
    """Return χ, every triple at the last time T of the graph: True if one of its runs reaches T, else False."""
    found, last_time = runs(graph), len(graph.times) - 1
    triples = encode(found.first, graph.sizes, "spo")
    is_latest = torch.ones(len(triples), dtype=torch.bool)  # runs are sorted: the last one of a triple is its latest
    is_latest[:-1] = triples[1:] != triples[:-1]
    return Facts(found.first[is_latest].with_slot("t", last_time).ids, found.last[is_latest] == last_time)


def rare(graph: EpisodicGraph) -> Facts:
    """Return the facts of triples that occur fewer than three times, and the starts of all runs."""
    facts = distinct(graph.facts.true(), graph.sizes)
    _, inverse, counts = encode(facts, graph.sizes, "spo").unique(return_inverse=True, return_counts=True)
    infrequent = Facts(facts.ids[counts[inverse] < 3])
    return distinct(Facts.concat([infrequent, starts(graph)]), graph.sizes)


def most_frequent(graph: EpisodicGraph, entities: int) -> EpisodicGraph:
    """Return the graph of the facts among its `entities` most frequent entities; ties go by label."""
    if entities < 1:
        raise UserError(f"cannot keep the {entities} most frequent entities; wanted at least 1")
    facts = graph.facts
    counts = torch.bincount(torch.cat([facts.s, facts.o]), minlength=len(graph.entities))
    kept = counts.argsort(descending=True, stable=True)[:entities].sort().values
    smaller = _restrict(graph, kept, torch.arange(len(graph.predicates)))
    return replace(smaller, duplicates=0, rows={}, dropped={})


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
    """Return a coarser, unsplit graph: entities and predicates mapped to groups, times to a coarser grain.

    Facts with a label that a mapping lacks are dropped, and so are facts before `since` or after `until`. Both limits
    include the whole period of the new grain that they lie in. Equal facts are merged; with `counts` their weights are
    added.
    """
    old = graph.facts.true()
    new_entities, entity_group = _group(graph.entities, entities)
    new_predicates, predicate_group = _group(graph.predicates, predicates)
    axis, new_time = _coarser_axis(graph.times, grain, since, until)
    mapped = Facts.from_columns(entity_group[old.s], predicate_group[old.p], entity_group[old.o], new_time[old.t])
    kept = (mapped.ids >= 0).all(dim=1)
    if not kept.any():
        raise UserError(f"no fact of {graph.name} is left; check the groups and the dates")
    weight = None
    if counts:
        weight = torch.ones(len(old)) if old.weight is None else old.weight
    facts = replace(mapped, weight=weight)[kept]
    sizes = {"entity": len(new_entities), "predicate": len(new_predicates), "time": len(axis)}
    merged, _ = merge_equal(facts, sizes)
    dropped = len(old) - len(facts)
    coarser = EpisodicGraph(
        new_entities,
        new_predicates,
        axis,
        {"train": merged},
        graph.name,
        duplicates=len(facts) - len(merged),
        rows={"train": len(old)},
        dropped={"outside the groups or the dates": dropped} if dropped else {},
    )
    return _restrict(coarser, torch.cat([merged.s, merged.o]).unique(), merged.p.unique())


def _group(vocabulary: Vocabulary, groups: Mapping[str, str] | None) -> tuple[Vocabulary, Tensor]:
    """Return the vocabulary of the groups and the group id of every old id, −1 for none: (old size,)."""
    if groups is None:
        return vocabulary, torch.arange(len(vocabulary))
    new = Vocabulary.of(vocabulary.kind, (groups[label] for label in vocabulary.labels if label in groups))
    return new, torch.tensor([new.index(groups[label]) if label in groups else -1 for label in vocabulary.labels])


def _coarser_axis(old: TimeAxis, grain: str | None, since: str | None, until: str | None) -> tuple[TimeAxis, Tensor]:
    """Return the axis at `grain` within the limits and the new id of every old id, −1 outside them: (old size,)."""
    grain = grain or old.grain
    if grain not in GRAINS:
        raise UserError(f"unknown grain {grain!r}; choose one of {', '.join(GRAINS)}")
    bins = [number for number in (time_bin(label, grain) for label in old.labels) if number is not None]
    if len(bins) < len(old):
        raise UserError(f"{old.grain}s cannot be split by {grain}; choose a coarser grain than {old.grain}")
    check_limits(since, until, old.grain)
    inside = [number for number, label in zip(bins, old.labels, strict=True) if within(label, since, until, old.grain)]
    if not inside:
        raise UserError(
            f"no time lies between {since} and {until}; the record runs from {old.label(0)} "
            f"to {old.label(len(old) - 1)}"
        )
    axis = TimeAxis.spanning(grain, inside)
    ids = [(number - axis.first) // axis.step if inside[0] <= number <= inside[-1] else -1 for number in bins]
    return axis, torch.tensor(ids)


def _restrict(graph: EpisodicGraph, entities: Tensor, predicates: Tensor) -> EpisodicGraph:
    """Return the graph of the facts among some entities and predicates, given by their sorted ids."""
    new_entities, entity_id = _subset(graph.entities, entities)
    new_predicates, predicate_id = _subset(graph.predicates, predicates)
    splits = {}
    for name, part in graph.splits.items():
        renumbered = Facts.from_columns(entity_id[part.s], predicate_id[part.p], entity_id[part.o], part.t)
        inside = (renumbered.ids >= 0).all(dim=1)
        splits[name] = replace(part, ids=renumbered.ids)[inside]
    return replace(graph, entities=new_entities, predicates=new_predicates, splits=splits)


def _subset(vocabulary: Vocabulary, kept: Tensor) -> tuple[Vocabulary, Tensor]:
    """Return the vocabulary of sorted ids `kept` (k,) and the new id of every old id, −1 if dropped: (old size,)."""
    new_id = torch.full((len(vocabulary),), -1).scatter_(0, kept, torch.arange(len(kept)))
    return Vocabulary(vocabulary.kind, tuple(vocabulary.take(kept))), new_id


def split_randomly(
    graph: EpisodicGraph, *, valid: float = 0.1, test: float = 0.1, seed: int = 0, entities: int | None = None
) -> EpisodicGraph:
    """Split all facts at random into train, valid and test; with `entities`, those of the most frequent entities.

    One fact of every entity, predicate and time stays in train, so that nothing is evaluated that could not be
    learned. With few facts the other splits may therefore be smaller than requested.
    """
    _check_shares(valid, test)
    graph = graph if entities is None else most_frequent(graph, entities)
    facts = graph.facts
    facts = facts[torch.randperm(len(facts), generator=seeded(seed))]
    free = (~_covering(facts, graph.sizes)).nonzero()[:, 0]
    n_valid, n_test = int(valid * len(facts)), int(test * len(facts))
    valid_rows, test_rows = free[:n_valid], free[n_valid : n_valid + n_test]
    is_train = torch.ones(len(facts), dtype=torch.bool)
    is_train[valid_rows] = False
    is_train[test_rows] = False
    splits = {"train": facts[is_train], "valid": facts[valid_rows], "test": facts[test_rows]}
    return graph.with_splits({name: sort_facts(part, graph.sizes) for name, part in splits.items()})


def _covering(facts: Facts, sizes: Mapping[str, int]) -> Tensor:
    """Mark the first fact with each id of each slot: (n,) bool."""
    position = torch.arange(len(facts))
    is_first = torch.zeros(len(facts), dtype=torch.bool)
    for slot in SLOTS:
        earliest = torch.full((sizes[KINDS[slot]],), len(facts))
        earliest.scatter_reduce_(0, facts.column(slot), position, "amin")
        is_first |= earliest[facts.column(slot)] == position
    return is_first


def split_by_time(graph: EpisodicGraph, *, valid: float = 0.1, test: float = 0.1) -> EpisodicGraph:
    """Split all facts by time: the latest into test, those before into valid. Every time is in one split only."""
    _check_shares(valid, test)
    facts = graph.facts
    # share of the facts up to and including each time
    share = torch.bincount(facts.t, minlength=len(graph.times)).cumsum(0).double() / max(1, len(facts))
    first_valid = int((share <= 1 - valid - test + 1e-9).sum())
    first_test = int((share <= 1 - test + 1e-9).sum())
    splits = {
        "train": facts[facts.t < first_valid],
        "valid": facts[(facts.t >= first_valid) & (facts.t < first_test)],
        "test": facts[facts.t >= first_test],
    }
    if not len(splits["train"]):
        raise UserError("the first time alone holds more than the training share; use a finer grain or smaller shares")
    return graph.with_splits({name: sort_facts(part, graph.sizes) for name, part in splits.items()})


def _check_shares(valid: float, test: float) -> None:
    """Raise UserError unless both shares are at least 0 and leave some facts for training."""
    if not (valid >= 0 and test >= 0 and valid + test < 1):
        raise UserError(f"validation and test take {valid:g} and {test:g} of the facts; wanted shares that sum below 1")
