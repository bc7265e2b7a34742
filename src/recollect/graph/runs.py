"""Runs: facts that hold over consecutive times, stored by their first and last time instead of time by time.

A graph of intervals has `RunSplits` as its splits. Code that knows runs asks `stored` for them; any other code reads
the splits as facts, which are then expanded, if memory is enough.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from recollect.errors import UserError
from recollect.graph.fact_index import expand_ranges
from recollect.graph.facts import EpisodicGraph, Facts, LazySplits, distinct, encode, stable_sort
from recollect.graph.free_memory import free_memory

EXPANDED_BYTES = 150  # peak memory per fact while facts are expanded and encoded
FOREVER = 2**40  # a time after that of any question


@dataclass(frozen=True, eq=False, repr=False)
class Runs:
    """n blocks of consecutive times: (s, p, o, t) holds from first.t to last. Value and weight are those of each fact.

    >>> runs = Runs(Facts.of([(0, 0, 1, 2), (0, 0, 2, 5)]), torch.tensor([4, 5]))
    >>> runs, runs.expand().t.tolist()
    (Runs(2 runs, 4 facts), [2, 3, 4, 5])
    """

    first: Facts  # n facts: the triple of each run and its first time
    last: Tensor  # (n,) int64: the last time of each run, at least the first
    ongoing: Tensor | None = None  # (n,) bool: no end is stored, and `last` is the last time of the axis; None: all end

    @classmethod
    def of_points(cls, facts: Facts) -> Runs:
        """Return facts as runs of one time each."""
        return cls(facts, facts.t)

    @classmethod
    def concat(cls, parts: Iterable[Runs]) -> Runs:
        """Concatenate runs; those of one triple may then overlap."""
        parts = list(parts)
        last = torch.cat([torch.empty(0, dtype=torch.int64), *(part.last for part in parts)])
        is_known = any(part.ongoing is not None for part in parts)
        ongoing = torch.cat([part.goes_on for part in parts]) if is_known else None
        return cls(Facts.concat(part.first for part in parts), last, ongoing)

    def __len__(self) -> int:
        return len(self.last)

    def __repr__(self) -> str:
        return f"Runs({len(self):,} runs, {self.count:,} facts)"

    def __getitem__(self, rows: Tensor | slice) -> Runs:
        """Return the selected runs: by a slice, a mask (n,) bool, or indices (m,) int64."""
        return Runs(self.first[rows], self.last[rows], None if self.ongoing is None else self.ongoing[rows])

    @property
    def goes_on(self) -> Tensor:
        """Whether each run has no end, with the default filled in: (n,) bool."""
        return torch.zeros(len(self), dtype=torch.bool) if self.ongoing is None else self.ongoing

    @property
    def has_ongoing(self) -> bool:
        """Whether a run has no end."""
        return self.ongoing is not None and bool(self.ongoing.any())

    @property
    def reach(self) -> Tensor:
        """The last time of each run, FOREVER if it has no end: (n,)."""
        return self.last.masked_fill(self.goes_on, FOREVER)

    def plain(self) -> Runs:
        """Return the true runs without values and weights."""
        true = self.true()
        return replace(true, first=Facts(true.first.ids))

    @property
    def lengths(self) -> Tensor:
        """The number of times of each run: (n,)."""
        return self.last - self.first.t + 1

    @property
    def count(self) -> int:
        """The number of facts of all runs."""
        return int(self.lengths.sum())

    def true(self) -> Runs:
        """Return the runs whose value is True."""
        return self if self.first.value is None else self[self.first.value]

    def holds(self, time: int) -> Tensor:
        """Return whether each run covers a time, which may lie after the axis: (n,) bool."""
        return (self.first.t <= time) & (self.reach >= time)

    def at(self, time: int) -> Facts:
        """Return the facts of one time."""
        return self.first[self.holds(time)].with_slot("t", time)

    def between(self, first: int, last: int) -> Runs:
        """Return what lies in [first, last]: runs are cut at both ends, and those outside left out.

        A run without an end that is cut ends there.
        """
        start, end = self.first.t.clamp(min=first), self.last.clamp(max=last)
        ongoing = None if self.ongoing is None else self.ongoing & (self.last <= last)
        return Runs(self.first.with_slot("t", start), end, ongoing)[start <= end]

    def expand(self, what: str = "this") -> Facts:
        """Return one fact for every time of every run; raise UserError naming `what` if memory is not enough."""
        needed, free = self.count * EXPANDED_BYTES, free_memory()
        if needed > free:
            raise UserError(
                f"{what} is {self.count:,} facts, which need {needed:,} bytes one by one, and {free:,} are free; "
                f"use model='history', which reads intervals as they are, or a coarser grain"
            )
        row, time = expand_ranges(self.first.t, self.last + 1)
        return self.first[row].with_slot("t", time)

    def sample(self, generator: torch.Generator) -> Facts:
        """Return one fact of each run, at a time of the run that is drawn uniformly."""
        drawn = (torch.rand(len(self), dtype=torch.float64, generator=generator) * self.lengths).long()
        return self.first.with_slot("t", self.first.t + drawn)


class RunSplits(LazySplits):
    """The splits of a graph of intervals, as facts that are expanded when a split is first read."""

    def __init__(self, runs: Mapping[str, Runs], grain: str) -> None:
        self.runs, self.grain = dict(runs), grain
        self._expanded: dict[str, Facts] = {}

    def __getitem__(self, name: str) -> Facts:
        if name not in self._expanded:
            self._expanded[name] = self.runs[name].expand(f"the {name} split at {self.grain} grain")
        return self._expanded[name]

    def __contains__(self, name: object) -> bool:
        return name in self.runs  # Mapping would read the split

    def __iter__(self) -> Iterator[str]:
        return iter(self.runs)

    def __len__(self) -> int:
        return len(self.runs)

    def counts(self) -> dict[str, int]:
        return {name: part.count for name, part in self.runs.items()}

    def describe(self, name: str) -> str:
        return f"{len(self.runs[name]):,} runs of {self.runs[name].count:,}"

    def columns(self, name: str) -> list[Tensor | None]:
        part = self.runs[name]
        ongoing = [part.ongoing] if part.has_ongoing else []  # else the fingerprint is that of earlier versions
        return [part.first.ids, part.last, part.first.value, part.first.weight, *ongoing]


def stored(graph: EpisodicGraph, split: str) -> Facts | Runs:
    """Return a split as the graph stores it: its facts, or the runs of a graph of intervals."""
    if not isinstance(graph.splits, RunSplits):
        return graph.split(split)
    graph.check_split(split)
    return graph.splits.runs[split]


def stored_in(graph: EpisodicGraph, *splits: str) -> Facts | Runs:
    """Return what some splits store, together; those that the graph does not have are empty."""
    found = [stored(graph, split) for split in splits if split in graph.splits]
    if len(found) == 1:
        return found[0]  # without a copy: questions ask for it
    if has_runs(graph):
        return Runs.concat(part for part in found if isinstance(part, Runs))
    return Facts.concat(part for part in found if isinstance(part, Facts))


def has_runs(graph: EpisodicGraph) -> bool:
    """Return whether a graph stores intervals as runs."""
    return isinstance(graph.splits, RunSplits)


def split_runs(graph: EpisodicGraph) -> dict[str, Runs]:
    """Return every split as runs: those of a graph of intervals, or each fact as a run of one time."""
    if isinstance(graph.splits, RunSplits):
        return graph.splits.runs
    return {name: Runs.of_points(facts) for name, facts in graph.splits.items()}


def with_runs(graph: EpisodicGraph, runs: Mapping[str, Runs]) -> EpisodicGraph:
    """Return the graph with other splits in the form that it has: runs, or where these have one time each, facts."""
    if has_runs(graph):
        return graph.with_splits(RunSplits(runs, graph.times.grain))
    return graph.with_splits({name: part.first for name, part in runs.items()})


def sampled(graph: EpisodicGraph, split: str, generator: torch.Generator) -> Facts:
    """Return the facts of a split, if there is one; of a graph of intervals, one of each run, at a random time."""
    found = stored_in(graph, split)
    return found.sample(generator) if isinstance(found, Runs) else found


def covered(runs: Runs, times: int) -> Tensor:
    """Return the number of facts at each time: (times,)."""
    begun = torch.bincount(runs.first.t, minlength=times + 1)
    return (begun - torch.bincount(runs.last + 1, minlength=times + 1)).cumsum(0)[:times]


def maximal_runs(facts: Facts, sizes: Mapping[str, int]) -> Runs:
    """Return the maximal blocks of consecutive times of true facts, sorted by (s, p, o, first time)."""
    facts = distinct(facts.true(), sizes)
    codes = encode(facts, sizes)
    # the next code is one more at the next time of the same triple, or at time 0 of another triple
    continues = (codes[1:] == codes[:-1] + 1) & (facts.t[1:] > 0)
    is_first = torch.ones(len(facts), dtype=torch.bool)
    is_first[1:] = ~continues
    is_last = torch.ones(len(facts), dtype=torch.bool)
    is_last[:-1] = ~continues
    return Runs(Facts(facts.ids[is_first]), facts.t[is_last])


def merge_runs(runs: Runs, sizes: Mapping[str, int]) -> Runs:
    """Return the same facts as disjoint runs, as few as possible, sorted by (s, p, o, first time).

    Runs of one triple that overlap or follow each other become one, without an end if one of them has none. Where
    weighted ones overlap, weights are added, and a run is cut wherever the weight changes.
    """
    if runs.first.weight is not None:
        runs = _add_overlapping_weights(runs, sizes)
    group, start, end = _coded(runs, sizes)
    start, order = stable_sort(start)
    reached = end[order].cummax(0).values
    first = runs.first[order]
    is_first = torch.ones(len(order), dtype=torch.bool)
    is_first[1:] = (start[1:] > reached[:-1] + 1) | (group[order][1:] != group[order][:-1])
    if first.weight is not None:  # they are disjoint already
        is_first[1:] |= first.weight[1:] != first.weight[:-1]
    is_last = torch.ones(len(order), dtype=torch.bool)
    is_last[:-1] = is_first[1:]
    last = reached[is_last] - (start - first.t)[is_last]
    ongoing = None
    if runs.ongoing is not None:
        count = int(is_first.sum())
        ongoing = torch.zeros(count, dtype=torch.int64)
        ongoing = ongoing.index_add_(0, is_first.cumsum(0) - 1, runs.ongoing[order].long()) > 0
    merged = Runs(first[is_first], last, ongoing)
    if merged.first.value is None:
        return merged
    return merged[stable_sort(encode(merged.first, sizes))[1]]


def overlaps(runs: Runs, others: Runs, sizes: Mapping[str, int]) -> Tensor:
    """Return whether each run shares a fact with one of `others`, whatever their values: (n,) bool."""
    width = sizes["time"] + 1
    triple = encode(runs.first, sizes, "spo") * width
    other = encode(others.first, sizes, "spo") * width
    begun = torch.searchsorted((other + others.first.t).sort().values, triple + runs.last, right=True)
    ended = torch.searchsorted((other + others.last).sort().values, triple + runs.first.t)
    return begun > ended


def is_canonical(runs: Runs, sizes: Mapping[str, int]) -> bool:
    """Return whether runs are what `merge_runs` returns: sorted, within the axis, disjoint per triple.

    Those without an end reach the last time.
    """
    if not len(runs):
        return True
    within = bool((runs.first.t <= runs.last).all()) and int(runs.last.max()) < sizes["time"]
    within = within and bool((runs.last[runs.goes_on] == sizes["time"] - 1).all())
    start = encode(runs.first, sizes)
    return within and bool((start[1:] > (start + runs.lengths - 1)[:-1]).all())


def _coded(runs: Runs, sizes: Mapping[str, int]) -> tuple[Tensor, Tensor, Tensor]:
    """Return the (triple, value) of each run as a number, and its first and last time encoded after it: (n,) each."""
    encode(Facts.of([]), {**sizes, "predicate": 2 * sizes["predicate"], "time": sizes["time"] + 1})  # refuses overflow
    group = 2 * encode(runs.first, sizes, "spo") + runs.first.truth
    width = sizes["time"] + 1  # so that the last time of one group and the first of the next are no neighbours
    return group, group * width + runs.first.t, group * width + runs.last


def _add_overlapping_weights(runs: Runs, sizes: Mapping[str, int]) -> Runs:
    """Return disjoint runs, cut wherever one of the given runs of a triple begins or ends, with weights added."""
    assert runs.first.weight is not None
    _, start, end = _coded(runs, sizes)
    cuts = torch.cat([start, end + 1]).unique()
    first_piece, stop_piece = torch.searchsorted(cuts, start), torch.searchsorted(cuts, end + 1)
    row, piece = expand_ranges(first_piece, stop_piece)
    weight = torch.zeros(len(cuts)).index_add_(0, piece, runs.first.weight[row])
    source = torch.full((len(cuts),), -1).scatter_(0, piece, row)  # a run that covers the piece
    used = (source >= 0).nonzero()[:, 0]
    source = source[used]
    shift = runs.first.t - start  # from codes to times
    first = runs.first[source].with_slot("t", cuts[used] + shift[source])
    ongoing = None
    if runs.ongoing is not None:  # the pieces that reach the last time and belong to a run without an end
        counts = torch.zeros(len(cuts), dtype=torch.int64).index_add_(0, stop_piece - 1, runs.ongoing.long())
        ongoing = counts[used] > 0
    return Runs(replace(first, weight=weight[used]), cuts[used + 1] - 1 + shift[source], ongoing)
