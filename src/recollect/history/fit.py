"""Fit kernels by minorise-maximise: conditional likelihood of each stored fact's answer, that fact left out.

A query is a stored fact with one slot asked for, in the store without that fact. A stored run is asked for at one time,
another in each pass, in the store without that run. With Z = Σ λ over the candidates (each column of shares counts as
1), hits[c] = Σ k[c]/λ(answer) over the evidence for the answer, and exposure[c] = Σ 1/Z over the evidence for any
candidate, a pass is

    k[c] ← (α + hits[c]) / (α / prior[c] + exposure[c])        (a step RELAXATION times as long on the log scale)

and the same for the weights of popularity. The prior is affinity[r, r'] × profile[kind, bin] × a factor by group of
bins, estimated anew in every pass; kinds are the same predicate, its inverse and any other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from recollect.engine import parallel_for
from recollect.history.bins import Bins, Ints, Layout
from recollect.history.edges import PREDICATE, TIME, Edges, Floats
from recollect.history.reference import NOT_CUT, blocks, loops
from recollect.history.shares import LeftOutShares

PASSES = 12
SAMPLED_PASSES = 36  # where a pass reads a sample: validation MRR of who on ICEWS05-15 is 0.709 instead of 0.698
RELAXATION = 1.8  # exponent of the multiplicative update: between 1 and 2 it converges in fewer passes
STRENGTH = 3.0  # α: facts that the prior of a kernel value counts as
AFFINITY_STRENGTH = 0.3  # facts that an affinity of 1 counts as
GROUP_STRENGTH = 2.0  # facts that a group factor of 1 counts as
PASS_EDGES = 150_000_000  # edges visited per pass; larger stores are sampled, with another sample in each pass
TIME_COST = 16  # of an edge visited in a query for a time, relative to other queries
OLDER_START = 0.1  # of facts that are not the closest, relative to the closest
TINY = 1e-12


@dataclass
class Statistics:
    """Sums over queries: (A, C, COUNT) for the kernel, (A, W) for the weights of popularity."""

    hits: Floats
    exposure: Floats
    weight_hits: Floats
    weight_exposure: Floats
    log_likelihood: float = 0.0

    @classmethod
    def zeros(cls, kernel: Floats, weights: Floats) -> Statistics:
        return cls(np.zeros_like(kernel), np.zeros_like(kernel), np.zeros_like(weights), np.zeros_like(weights))

    @property
    def arrays(self) -> tuple[Floats, Floats, Floats, Floats]:
        """All four sums, in the order that compiled passes take them."""
        return self.hits, self.exposure, self.weight_hits, self.weight_exposure

    def add_(self, other: Statistics, factor: float = 1.0, keep: float = 1.0) -> None:
        """Set self to keep · self + factor · other."""
        for mine, added in zip(self.arrays, other.arrays, strict=True):
            mine *= keep
            mine += factor * added
        self.log_likelihood = keep * self.log_likelihood + factor * other.log_likelihood


# adds the sums of queries, edges (n,) at times (n,), given kernel and weights
Pass = Callable[[Floats, Floats, Ints, Ints, Statistics], None]


class Queries(NamedTuple):
    """The edges whose answer is asked for. Neighbours in a group share work and are sampled together."""

    edge: Ints  # (n,)
    group: Ints  # (n,): 0, 1, 2, …, ascending
    cost: Ints  # (n,): edges visited for the query
    first: Ints  # (n,): the first time of the edge
    length: Ints  # (n,): the number of its times

    def sample(self, share: float, rng: np.random.Generator) -> tuple[Ints, Ints]:
        """Return a share of the edges, by whole groups, and one time of each: (m,), (m,)."""
        edge, time, length = self.edge, self.first, self.length
        if share < 1.0:
            groups = int(self.group.max(initial=-1)) + 1
            chosen = (rng.random(groups) < share)[self.group]
            edge, time, length = edge[chosen], time[chosen], length[chosen]
        if length.max(initial=1) > 1:
            time = time + (rng.random(len(time)) * length).astype(np.int64)
        return edge, time


def slot_queries(edges: Edges, slot: str) -> Queries:
    """Return the queries of an asked slot: all edges by (source, time) for `o`, one edge of each run for others."""
    of_pair = np.diff(edges.pairs)[:, 0]
    if slot == "o":
        queries = np.lexsort((edges.column(TIME), edges.source))
    else:
        queries = np.flatnonzero(edges.column(PREDICATE) < edges.predicates)
    first, length = edges.column(TIME)[queries], edges.lengths[queries]
    if slot != "o":
        cost = of_pair[queries] * (TIME_COST if slot == "t" else 1)
        return Queries(queries, np.arange(len(queries)), cost, first, length)
    source = edges.source[queries]
    is_first = np.append(True, (np.diff(source) != 0) | (np.diff(first) != 0))[: len(queries)]
    if edges.has_runs:
        is_first[:] = True  # each is asked for at a time of its own
    of_source = np.diff(edges.start)[source]  # counted once for a group
    cost = of_pair[queries] + np.where(is_first, of_source, 0)
    return Queries(queries, np.cumsum(is_first) - 1, cost, first, length)


def fitting_pass(
    edges: Edges, bins: Bins, sizes: Mapping[str, int], classes: Ints, slot: str, *, past: bool = False
) -> Pass:
    """Return the function that adds the sums of queries for a slot."""
    shares = LeftOutShares(edges, slot, sizes, past=past)
    members = np.bincount(classes[: sizes["predicate"]]).astype(np.float32)  # predicates per class
    cut = bins.run if past else NOT_CUT

    def entity_pass(k: Floats, w: Floats, queries: Ints, times: Ints, sums: Statistics) -> None:
        sums.log_likelihood += loops().entity_pass(
            edges.start, edges.table, bins.by_lag, cut, edges.pairs, edges.mirrors_of_twins(queries, times, past=past),
            edges.twins(queries, times, past=past), k, w, shares.of(queries, times), queries, edges.source[queries],
            times, *sums.arrays,
        )  # fmt: skip

    def predicate_pass(k: Floats, w: Floats, queries: Ints, times: Ints, sums: Statistics) -> None:
        of_any, columns = np.zeros_like(k[0]), np.tensordot(members, k, axes=1)
        sums.log_likelihood += loops().predicate_pass(
            edges.table, bins.by_lag, cut, edges.pairs, edges.mirror, classes, k, columns, w,
            shares.of(queries, times), queries, times, of_any, *sums.arrays,
        )  # fmt: skip
        sums.exposure += members[:, None, None] * of_any

    def time_pass(k: Floats, w: Floats, queries: Ints, times: Ints, sums: Statistics) -> None:
        sums.log_likelihood += loops().time_pass(
            edges.table, bins.by_lag, bins.run, bins.ranges, bins.layout.firsts, edges.pairs, edges.mirror,
            sizes["time"], k, w, shares.of(queries, times), queries, times, *sums.arrays,
        )  # fmt: skip

    return {"o": entity_pass, "p": predicate_pass, "t": time_pass}[slot]


def fit_kernel(
    run: Pass,
    queries: Queries,
    kernel: Floats,
    weights: Floats,
    kinds: Ints,
    groups: Ints,
    *,
    rng: np.random.Generator,
    report: Callable[[float], None] = lambda share: None,
) -> tuple[Floats, Floats]:
    """Return kernel and weights after passes over the queries, or over samples of them where they cost too much.

    `kinds` (A, C) are those of `predicate_kinds`, `groups` (COUNT,) the groups of bins in the prior. A bin whose kernel
    starts at 0 stays 0.
    """
    total = int(queries.cost.sum())
    share = min(1.0, PASS_EDGES / max(1, total))
    passes = PASSES if share == 1.0 else SAMPLED_PASSES
    is_sampled = share < 1.0 or queries.length.max(initial=1) > 1  # other facts, or other times of runs, in each pass
    average = Statistics.zeros(kernel, weights)
    allowed = kernel > 0
    for number in range(passes):
        sums = _run_pass(run, kernel, weights, *queries.sample(share, rng), int(total * share))
        step = (number + 1) ** -0.6 if is_sampled else 1.0
        average.add_(sums, factor=step / share, keep=1 - step)
        prior = _prior(average, kinds, groups)
        target = (STRENGTH + average.hits) / (STRENGTH / np.maximum(prior, TINY) + average.exposure)
        ratio = np.where(allowed, target, 0) / np.maximum(kernel, TINY)
        kernel = (kernel * ratio**RELAXATION).astype(np.float32) if number else np.where(allowed, target, 0)
        typical = (average.weight_hits.sum(0) + 0.1) / (average.weight_exposure.sum(0) + 1.0)
        weights = ((1 + average.weight_hits) / (1 / typical + average.weight_exposure)).astype(np.float32)
        report((number + 1) / passes)
    return kernel, weights


def _run_pass(run: Pass, kernel: Floats, weights: Floats, queries: Ints, times: Ints, work: int) -> Statistics:
    """Return the sums over all queries; threads sum ranges of their own, which are added in order."""
    parts: dict[int, Statistics] = {}

    def body(first: int, last: int) -> None:
        parts[first] = Statistics.zeros(kernel, weights)
        for part in blocks(first, last):
            run(kernel, weights, queries[part], times[part], parts[first])

    parallel_for(body, len(queries), 16 * work)
    first, *others = sorted(parts)
    total = parts[first]
    for start in others:
        total.add_(parts[start])
    return total


def _prior(sums: Statistics, kinds: Ints, groups: Ints) -> Floats:
    """Return the prior mean of every kernel value: (A, C, COUNT)."""
    hits, exposure = sums.hits, sums.exposure
    total_hits, affinity = hits.sum(2), np.ones(kinds.shape, dtype=np.float32)
    members = [kinds == kind for kind in range(3)]
    hits_by_kind = [hits[chosen].sum(0) for chosen in members]
    profile, expected = np.empty((3, hits.shape[2]), dtype=np.float32), np.empty_like(affinity)
    for _ in range(4):
        for kind, chosen in enumerate(members):
            profile[kind] = (hits_by_kind[kind] + 1e-3) / (affinity[chosen] @ exposure[chosen] + 1e-3)
            expected[chosen] = exposure[chosen] @ profile[kind]
        affinity = (AFFINITY_STRENGTH + total_hits) / (AFFINITY_STRENGTH + expected)
    prior: Floats = affinity[:, :, None] * profile[kinds]
    for group in range(groups.max() + 1):
        within = groups == group
        expected = (exposure[:, :, within] * prior[:, :, within]).sum(2)
        factor = (GROUP_STRENGTH + hits[:, :, within].sum(2)) / (GROUP_STRENGTH + expected)
        prior[:, :, within] *= factor[:, :, None]
    return prior


def predicate_kinds(classes: int, predicates: int) -> Ints:
    """Return 0 for the same predicate, 1 for its inverse, 2 for any other: (A, C), C = 2 · predicates classes."""
    asked, other = np.arange(classes)[:, None], np.arange(2 * predicates)[None, :]
    is_inverse = other == (asked + predicates) % (2 * predicates)
    return np.where(asked == other, 0, np.where(is_inverse, 1, 2))


def start_kernel(classes: int, others: int, chosen: Layout, *, past: bool) -> Floats:
    """Return the kernel that passes start from, (classes, others, COUNT); with `past`, zeros for lag 0 and the future.

    Facts that are not the closest start low: passes raise a value faster than they lower it.
    """
    kernel = np.ones((classes, others, chosen.count), dtype=np.float32)
    kernel[:, :, chosen.groups % 3 == 0] = OLDER_START
    kernel[:, :, 0] = 0 if past else 1
    if past:
        kernel[:, :, 1 + chosen.side :] = 0
    return kernel


def reads_only_past(kernel: Floats) -> bool:
    """Return whether a kernel is 0 for lag 0 and the future, as one fitted with `past` is."""
    return not kernel[:, :, 0].any() and not kernel[:, :, 1 + kernel.shape[2] // 2 :].any()
