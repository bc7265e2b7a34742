"""Grow a graph: new labels, a longer time axis, facts added to and removed from the train split, entities erased."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from recollect.errors import UserError
from recollect.graph.fact_index import FactIndex
from recollect.graph.facts import EpisodicGraph, Facts
from recollect.graph.replacing import Replaced, change_store, in_order
from recollect.graph.runs import Runs, RunSplits, stored
from recollect.graph.times import MAX_TIMES, TimeAxis
from recollect.graph.vocabulary import Vocabulary

Run = tuple[str, str, str, int, int | None]  # subject, predicate, object, first and last bin, None without an end


@dataclass(frozen=True, eq=False)
class GrownGraph:
    """A graph that grew, and how its ids and its train split relate to those of the graph before.

    New entities and predicates have the ids after all others. Entities after an erased one, and times after new ones at
    the start, have other ids than before.
    """

    graph: EpisodicGraph
    entity_ids: Tensor | None  # (E before,): the id that each entity has now, −1 if it is erased; None: as before
    earlier: int  # new times before the first
    before: Facts | Runs  # the train split before any fact was added or removed, in the ids that it has now
    replaced: Replaced  # the rows in which the train split differs from `before`
    is_extended: bool  # whether intervals without an end became longer, since the axis did

    @property
    def keeps_ids(self) -> bool:
        """Whether the train split differs from that of the graph before by `replaced` only."""
        return self.entity_ids is None and not self.earlier and not self.is_extended

    def index(self, before: FactIndex) -> FactIndex | None:
        """Return the index of the train split, corrected from that of the graph before; None if it is built anew."""
        train, old, new = stored(self.graph, "train"), self.replaced.before, self.replaced.after
        if isinstance(train, Runs) or isinstance(old, Runs) or isinstance(new, Runs) or not self.keeps_ids:
            return None
        return before.changed(train, self.graph.sizes, old, new)


def grow_graph(
    graph: EpisodicGraph,
    *,
    removed: Sequence[Run] = (),
    added: Sequence[Run] = (),
    erased: Sequence[str] = (),
    entities: Sequence[str] = (),
    predicates: Sequence[str] = (),
    reach: tuple[int, int] | None = None,
) -> GrownGraph:
    """Return the graph after a change; only the train split gains or loses facts, but erased entities leave all.

    In this order: entities are erased with their facts, labels are appended, the axis is extended to reach two bins,
    runs are removed, runs are added. A bin is that of `TimeAxis`: first + id · step. A graph of facts stores a run as
    single facts, one for each of its times, so that all other facts are read as before; it has no run without an end.
    """
    kept, entity_ids = _erase(graph.entities, erased)
    grown = replace(
        graph,
        entities=_append(kept, [*entities, *(label for run in added for label in (run[0], run[2]))]),
        predicates=_append(graph.predicates, [*predicates, *(run[1] for run in added)]),
        times=_extend(graph.times, [*(reach or ()), *_bins(added)]),
    )
    earlier = (graph.times.first - grown.times.first) // grown.times.step
    splits = {name: _renumber(stored(graph, name), entity_ids, earlier) for name in graph.splits}
    longer = len(grown.times) > len(graph.times) + earlier
    is_extended = longer and any(isinstance(part, Runs) and part.has_ongoing for part in splits.values())
    if is_extended:
        splits = {name: _reaching(part, len(grown.times)) for name, part in splits.items()}
    train = in_order(splits["train"], grown.sizes)
    changed, replaced = change_store(train, grown.sizes, _runs(grown, removed), _runs(grown, added))
    grown = grown.with_splits(_as_splits({**splits, "train": changed}, grown.times.grain))
    return GrownGraph(grown, entity_ids, earlier, train, replaced, is_extended)


def restrict_graph(graph: EpisodicGraph, predicates: int, reach: tuple[int, int]) -> EpisodicGraph:
    """Return a graph of its first predicates and of the times from one bin to another, which has all of its facts.

    Runs without an end are cut where the axis ends.
    """
    first, last = reach
    axis = replace(graph.times, first=first, size=(last - first) // graph.times.step + 1)
    labels = graph.predicates.labels
    kept = graph.predicates if predicates == len(labels) else Vocabulary(graph.predicates.kind, labels[:predicates])
    later = (graph.times.first - first) // axis.step
    splits = {
        name: _reaching(_renumber(stored(graph, name), None, later), len(axis))
        if later or len(axis) < len(graph.times)
        else stored(graph, name)
        for name in graph.splits
    }
    restricted = replace(graph, predicates=kept, times=axis)
    return restricted.with_splits(_as_splits(splits, axis.grain))


def _erase(vocabulary: Vocabulary, erased: Sequence[str]) -> tuple[Vocabulary, Tensor | None]:
    """Return a vocabulary without some labels, and the new id of each old one, −1 for those that are gone."""
    gone = [number for number in vocabulary.find(erased) if number >= 0]
    if not gone:
        return vocabulary, None
    is_kept = torch.ones(len(vocabulary), dtype=torch.bool)
    is_kept[gone] = False
    ids = torch.where(is_kept, is_kept.cumsum(0) - 1, -1)
    return Vocabulary(vocabulary.kind, tuple(vocabulary.take(is_kept.nonzero()[:, 0]))), ids


def _append(vocabulary: Vocabulary, labels: Sequence[str]) -> Vocabulary:
    """Return a vocabulary with the labels that are new to it at the end, in the order in which they come first."""
    distinct = list(dict.fromkeys(labels))
    new = [label for label, number in zip(distinct, vocabulary.find(distinct), strict=True) if number < 0]
    return Vocabulary(vocabulary.kind, (*vocabulary.labels, *new)) if new else vocabulary


def _bins(runs: Sequence[Run]) -> list[int]:
    """Return the first and last bins of runs; those without an end do not extend the axis by it."""
    return [number for run in runs for number in run[3:] if number is not None]


def _extend(axis: TimeAxis, bins: Sequence[int]) -> TimeAxis:
    """Return the axis from the first to the last of its own and other bins."""
    every = [axis.first, axis.first + (len(axis) - 1) * axis.step, *bins]
    size = (max(every) - min(every)) // axis.step + 1
    if size > MAX_TIMES:
        raise UserError(f"the times would span {size:,} steps of one {axis.grain}; wanted at most {MAX_TIMES:,}")
    return replace(axis, first=min(every), size=size)


def _renumber(store: Facts | Runs, entity_ids: Tensor | None, earlier: int) -> Facts | Runs:
    """Return a store in other ids, without the facts of erased entities."""
    if entity_ids is None and not earlier:
        return store
    if isinstance(store, Runs):
        first = _renumber(store.first.with_slot("t", torch.arange(len(store))), entity_ids, 0)
        assert isinstance(first, Facts)
        row = first.t
        first = first.with_slot("t", store.first.t[row] + earlier)
        return Runs(first, store.last[row] + earlier, None if store.ongoing is None else store.ongoing[row])
    facts = store.with_slot("t", store.t + earlier)
    if entity_ids is None:
        return facts
    facts = facts.with_slot("s", entity_ids[facts.s]).with_slot("o", entity_ids[facts.o])
    return facts[(facts.s >= 0) & (facts.o >= 0)]


def _reaching(store: Facts | Runs, times: int) -> Facts | Runs:
    """Return a store whose runs without an end reach the last time."""
    if not isinstance(store, Runs):
        return store
    return replace(store, last=store.last.masked_fill(store.goes_on, times - 1))


def _runs(graph: EpisodicGraph, rows: Sequence[Run]) -> Runs:
    """Return runs by id; those with labels that the graph does not have are left out."""
    if not rows:
        return Runs.of_points(Facts.of([]))
    subjects, predicates, objects, first, last = zip(*rows, strict=True)
    entities, axis = graph.entities, graph.times
    columns = [entities.find(subjects), graph.predicates.find(predicates), entities.find(objects), _ids(axis, first)]
    ids = torch.tensor(columns, dtype=torch.int64).T.contiguous()
    is_open = [number is None for number in last]
    end = axis.first + (len(axis) - 1) * axis.step
    ends = torch.tensor(_ids(axis, [end if number is None else number for number in last]))
    runs = Runs(Facts(ids), ends, torch.tensor(is_open) if any(is_open) else None)
    return runs[(ids[:, :3] >= 0).all(dim=1)]


def _ids(axis: TimeAxis, bins: Sequence[int]) -> list[int]:
    return [(number - axis.first) // axis.step for number in bins]


def _as_splits(splits: Mapping[str, Facts | Runs], grain: str) -> Mapping[str, Facts]:
    runs = {name: part for name, part in splits.items() if isinstance(part, Runs)}
    facts = {name: part for name, part in splits.items() if isinstance(part, Facts)}
    return RunSplits(runs, grain) if runs else facts
