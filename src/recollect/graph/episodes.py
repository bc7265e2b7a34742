"""Operations on whole graphs: runs, starts, ends, the current state, rare facts, coarser graphs and splits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from recollect.errors import UserError
from recollect.graph.facts import (
    KINDS,
    SLOTS,
    EpisodicGraph,
    Facts,
    distinct,
    encode,
    merge_equal,
)
from recollect.graph.runs import (
    Runs,
    RunSplits,
    covered,
    has_runs,
    maximal_runs,
    merge_runs,
    split_runs,
    with_runs,
)
from recollect.graph.seeds import seeded
from recollect.graph.times import GRAINS, TimeAxis, check_limits, time_bin, within
from recollect.graph.vocabulary import Vocabulary


def runs(graph: EpisodicGraph) -> Runs:
    """Return all maximal runs of the graph's true facts, sorted by (s, p, o, first time).

    Examples:
        >>> import polars as pl
        >>> from recollect import read, runs
        >>> terms = [("Ann", "leads", "Norway", year) for year in ("2000", "2001", "2004", "2005")]
        >>> terms += [("Bob", "leads", "Norway", year) for year in ("2002", "2003")]
        >>> graph = read(pl.DataFrame(terms, schema=["subject", "predicate", "object", "time"], orient="row"))
        >>> found = runs(graph)
        >>> graph.table(found.first)["time"].to_list(), found.lengths.tolist()
        (['2000', '2004', '2002'], [2, 2, 2])
    """
    if not has_runs(graph):
        return maximal_runs(graph.facts, graph.sizes)
    return merge_runs(Runs.concat(split_runs(graph).values()).plain(), graph.sizes)


def starts(graph: EpisodicGraph) -> Facts:
    """Return E_start: (s, p, o, first t) of every run.

    Examples:
        >>> import polars as pl
        >>> from recollect import read, starts
        >>> terms = [("Ann", "leads", "Norway", year) for year in ("2000", "2001", "2004", "2005")]
        >>> terms += [("Bob", "leads", "Norway", year) for year in ("2002", "2003")]
        >>> graph = read(pl.DataFrame(terms, schema=["subject", "predicate", "object", "time"], orient="row"))
        >>> graph.table(starts(graph)).select("subject", "time").rows()
        [('Ann', '2000'), ('Ann', '2004'), ('Bob', '2002')]
    """
    return runs(graph).first


def ends(graph: EpisodicGraph) -> Facts:
    """Return E_end: (s, p, o, last t) of every run that ends before the last time of the graph.

    Examples:
        >>> import polars as pl
        >>> from recollect import read, ends
        >>> terms = [("Ann", "leads", "Norway", year) for year in ("2000", "2001", "2004", "2005")]
        >>> terms += [("Bob", "leads", "Norway", year) for year in ("2002", "2003")]
        >>> graph = read(pl.DataFrame(terms, schema=["subject", "predicate", "object", "time"], orient="row"))
        >>> graph.table(ends(graph)).select("subject", "time").rows()
        [('Ann', '2001'), ('Bob', '2003')]
    """
    found = runs(graph)
    ended = found.last < len(graph.times) - 1
    return found.first[ended].with_slot("t", found.last[ended])


def current(graph: EpisodicGraph) -> Facts:
    """Return χ, every triple at the last time T of the graph: True if one of its runs reaches T, else False.

    Examples:
        >>> import polars as pl
        >>> from recollect import read, current
        >>> terms = [("Ann", "leads", "Norway", year) for year in ("2000", "2001", "2004", "2005")]
        >>> terms += [("Bob", "leads", "Norway", year) for year in ("2002", "2003")]
        >>> graph = read(pl.DataFrame(terms, schema=["subject", "predicate", "object", "time"], orient="row"))
        >>> graph.table(current(graph).true()).select("subject", "time").rows()
        [('Ann', '2005')]
    """
    found, last_time = runs(graph), len(graph.times) - 1
    triples = encode(found.first, graph.sizes, "spo")
    is_latest = torch.ones(len(triples), dtype=torch.bool)  # runs are sorted: the last one of a triple is its latest
    is_latest[:-1] = triples[1:] != triples[:-1]
    return Facts(found.first[is_latest].with_slot("t", last_time).ids, found.last[is_latest] == last_time)


def rare(graph: EpisodicGraph) -> Facts:
    """Return the facts of triples that occur fewer than three times, and the starts of all runs.

    Examples:
        >>> import polars as pl
        >>> from recollect import read, rare
        >>> terms = [("Ann", "leads", "Norway", year) for year in ("2000", "2001", "2004", "2005")]
        >>> terms += [("Bob", "leads", "Norway", year) for year in ("2002", "2003")]
        >>> graph = read(pl.DataFrame(terms, schema=["subject", "predicate", "object", "time"], orient="row"))
        >>> graph.table(rare(graph)).select("subject", "time").rows()
        [('Ann', '2000'), ('Ann', '2004'), ('Bob', '2002'), ('Bob', '2003')]
    """
    found = runs(graph)
    _, inverse = encode(found.first, graph.sizes, "spo").unique(return_inverse=True)
    occurrences = torch.zeros(len(found), dtype=torch.int64).index_add_(0, inverse, found.lengths)
    infrequent = found[occurrences[inverse] < 3].expand()
    return distinct(Facts.concat([infrequent, found.first]), graph.sizes)


def most_frequent(graph: EpisodicGraph, entities: int) -> EpisodicGraph:
    """Return the graph of the facts among its `entities` most frequent entities; ties go by label."""
    if entities < 1:
        raise UserError(f"cannot keep the {entities} most frequent entities; wanted at least 1")
    every = Runs.concat(split_runs(graph).values())
    ids = torch.cat([every.first.s, every.first.o])
    counts = torch.bincount(ids, every.lengths.repeat(2).double(), minlength=len(graph.entities))
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

    Examples:
        >>> import polars as pl
        >>> from recollect import read, aggregate
        >>> terms = [("Ann", "leads", "Norway", year) for year in ("2000", "2001", "2004", "2005")]
        >>> terms += [("Bob", "leads", "Norway", year) for year in ("2002", "2003")]
        >>> graph = read(pl.DataFrame(terms, schema=["subject", "predicate", "object", "time"], orient="row"))
        >>> aggregate(graph, predicates={"leads": "is in office"}, since="2002").times.labels
        ['2002', '2003', '2004', '2005']
    """
    as_runs = has_runs(graph) and not counts
    old = Runs.concat(split_runs(graph).values()).true() if as_runs else Runs.of_points(graph.facts.true())
    new_entities, entity_group = _group(graph.entities, entities)
    new_predicates, predicate_group = _group(graph.predicates, predicates)
    axis, new_time = _coarser_axis(graph.times, grain, since, until)
    inside = (new_time >= 0).nonzero()[:, 0]
    part = old.between(int(inside[0]), int(inside[-1]))
    s, p, o, t = (part.first.column(slot) for slot in SLOTS)
    mapped = Facts.from_columns(entity_group[s], predicate_group[p], entity_group[o], new_time[t])
    kept = (mapped.ids >= 0).all(dim=1)
    if not kept.any():
        raise UserError(f"no fact of {graph.name} is left; check the groups and the dates")
    if counts:
        weight = torch.ones(len(part)) if part.first.weight is None else part.first.weight
        mapped = replace(mapped, weight=weight)
    sizes = {"entity": len(new_entities), "predicate": len(new_predicates), "time": len(axis)}
    if as_runs:
        merged = merge_runs(Runs(mapped, new_time[part.last], part.ongoing)[kept], sizes)
    else:
        merged = Runs.of_points(merge_equal(mapped[kept], sizes)[0])
    within_groups = part[kept].count
    dropped = old.count - within_groups
    coarser = EpisodicGraph(
        new_entities,
        new_predicates,
        axis,
        RunSplits({"train": merged}, axis.grain) if as_runs else {"train": merged.first},
        graph.name,
        duplicates=within_groups - merged.count,
        rows={"train": old.count},
        dropped={"outside the groups or the dates": dropped} if dropped else {},
    )
    return _restrict(coarser, torch.cat([merged.first.s, merged.first.o]).unique(), merged.first.p.unique())


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
    for name, part in split_runs(graph).items():
        s, p, o, t = (part.first.column(slot) for slot in SLOTS)
        renumbered = Facts.from_columns(entity_id[s], predicate_id[p], entity_id[o], t)
        inside = (renumbered.ids >= 0).all(dim=1)
        splits[name] = replace(part, first=replace(part.first, ids=renumbered.ids))[inside]
    return replace(with_runs(graph, splits), entities=new_entities, predicates=new_predicates, rows=graph.rows)


def _subset(vocabulary: Vocabulary, kept: Tensor) -> tuple[Vocabulary, Tensor]:
    """Return the vocabulary of sorted ids `kept` (k,) and the new id of every old id, −1 if dropped: (old size,)."""
    new_id = torch.full((len(vocabulary),), -1).scatter_(0, kept, torch.arange(len(kept)))
    return Vocabulary(vocabulary.kind, tuple(vocabulary.take(kept))), new_id


def split_randomly(
    graph: EpisodicGraph, *, valid: float = 0.1, test: float = 0.1, seed: int = 0, entities: int | None = None
) -> EpisodicGraph:
    """Split all facts at random into train, valid and test; with `entities`, those of the most frequent entities.

    One fact of every entity, predicate and time stays in train, so that nothing is evaluated that could not be
    learned. With few facts the other splits may therefore be smaller than requested. A graph of intervals is split by
    whole runs: one run of every entity and predicate stays in train.

    Examples:
        >>> from recollect import dataset, split_randomly
        >>> graph = dataset("world", countries=4, years=1)
        >>> split_randomly(graph, valid=0.1, test=0.1).counts
        {'train': 270, 'valid': 33, 'test': 33}
    """
    _check_shares(valid, test)
    graph = graph if entities is None else most_frequent(graph, entities)
    every = Runs.concat(split_runs(graph).values())
    every = every[torch.randperm(len(every), generator=seeded(seed))]
    slots = "spo" if has_runs(graph) else SLOTS
    free = (~_covering(every.first, graph.sizes, slots)).nonzero()[:, 0]
    n_valid, n_test = int(valid * len(every)), int(test * len(every))
    valid_rows, test_rows = free[:n_valid], free[n_valid : n_valid + n_test]
    is_train = torch.ones(len(every), dtype=torch.bool)
    is_train[valid_rows] = False
    is_train[test_rows] = False
    splits = {"train": every[is_train], "valid": every[valid_rows], "test": every[test_rows]}
    return with_runs(graph, {name: _sorted(part, graph.sizes) for name, part in splits.items()})


def _sorted(runs: Runs, sizes: Mapping[str, int]) -> Runs:
    """Return runs sorted by (s, p, o, first time)."""
    return runs[encode(runs.first, sizes).argsort()]


def _covering(facts: Facts, sizes: Mapping[str, int], slots: str) -> Tensor:
    """Mark the first fact with each id of some slots: (n,) bool."""
    position = torch.arange(len(facts))
    is_first = torch.zeros(len(facts), dtype=torch.bool)
    for slot in slots:
        earliest = torch.full((sizes[KINDS[slot]],), len(facts))
        earliest.scatter_reduce_(0, facts.column(slot), position, "amin")
        is_first |= earliest[facts.column(slot)] == position
    return is_first


def split_by_time(graph: EpisodicGraph, *, valid: float = 0.1, test: float = 0.1) -> EpisodicGraph:
    """Split all facts by time: the latest into test, those before into valid. Every time is in one split only.

    Runs are cut where a split ends.

    Examples:
        >>> import polars as pl
        >>> from recollect import read, split_by_time
        >>> terms = [("Ann", "leads", "Norway", year) for year in ("2000", "2001", "2004", "2005")]
        >>> terms += [("Bob", "leads", "Norway", year) for year in ("2002", "2003")]
        >>> graph = read(pl.DataFrame(terms, schema=["subject", "predicate", "object", "time"], orient="row"))
        >>> split_by_time(graph, valid=0.2, test=0.2).counts
        {'train': 3, 'valid': 1, 'test': 2}
    """
    _check_shares(valid, test)
    every, times = Runs.concat(split_runs(graph).values()), len(graph.times)
    # share of the facts up to and including each time
    share = covered(every, times).cumsum(0).double() / max(1, every.count)
    first_valid = int((share <= 1 - valid - test + 1e-9).sum())
    first_test = int((share <= 1 - test + 1e-9).sum())
    splits = {
        "train": every.between(0, first_valid - 1),
        "valid": every.between(first_valid, first_test - 1),
        "test": every.between(first_test, times - 1),
    }
    if not len(splits["train"]):
        raise UserError("the first time alone holds more than the training share; use a finer grain or smaller shares")
    return with_runs(graph, {name: _sorted(part, graph.sizes) for name, part in splits.items()})


def unsplit(graph: EpisodicGraph) -> EpisodicGraph:
    """Return the graph with all facts in the train split."""
    every = Runs.concat(split_runs(graph).values())
    return with_runs(graph, {"train": merge_runs(every, graph.sizes) if has_runs(graph) else every})


def _check_shares(valid: float, test: float) -> None:
    """Raise UserError unless both shares are at least 0 and leave some facts for training."""
    if not (valid >= 0 and test >= 0 and valid + test < 1):
        raise UserError(f"validation and test take {valid:g} and {test:g} of the facts; wanted shares that sum below 1")
