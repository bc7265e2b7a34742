"""Fit kernels by minorise-maximise: conditional likelihood of each stored fact's answer, that fact left out.

With Z = Σ λ over the candidates, hits[c] = Σ k[c]/λ(answer) over the evidence for the answer, and exposure[c] = Σ 1/Z
over the evidence for any candidate, a pass is

    k[c] ← (α + hits[c]) / (α / prior[c] + exposure[c])        (a step RELAXATION times as long on the log scale)

and the same for the weights of popularity. The prior is affinity[r, r'] × profile[kind, bin] × a factor by group of
bins, estimated anew in every pass; kinds are the same predicate, its inverse and any other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from recollect.engine import parallel_for
from recollect.history import bins as binning
from recollect.history.bins import Ints
from recollect.history.edges import Floats

PASSES = 12
RELAXATION = 1.8  # exponent of the multiplicative update: between 1 and 2 it converges in fewer passes
STRENGTH = 3.0  # α: facts that the prior of a kernel value counts as
AFFINITY_STRENGTH = 0.3  # facts that an affinity of 1 counts as
GROUP_STRENGTH = 2.0  # facts that a group factor of 1 counts as
PASS_EDGES = 150_000_000  # edges visited per pass; larger stores are sampled, with another sample in each pass
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


Pass = Callable[[Floats, Floats, Ints, Statistics], None]  # adds the sums of queries, given kernel and weights


def fit_kernel(
    run: Pass,
    queries: Ints,
    cost: Ints,
    kernel: Floats,
    weights: Floats,
    kinds: Ints,
    *,
    rng: np.random.Generator,
    report: Callable[[float], None] = lambda share: None,
) -> tuple[Floats, Floats]:
    """Return kernel and weights after PASSES passes over the queries, or samples of them where they cost too much.

    `queries` are consecutive groups that share work; `cost` (n,) is the number of edges that each query visits. A bin
    whose kernel starts at 0 stays 0.
    """
    share = min(1.0, PASS_EDGES / max(1, int(cost.sum())))
    average = Statistics.zeros(kernel, weights)
    allowed = kernel > 0
    for number in range(PASSES):
        sample = queries if share == 1.0 else queries[rng.random(len(queries)) < share]
        sums = _run_pass(run, kernel, weights, sample, int(cost.sum() * share))
        step = 1.0 if share == 1.0 else (number + 1) ** -0.6
        average.add_(sums, factor=step / share, keep=1 - step)
        prior = _prior(average, kinds)
        target = (STRENGTH + average.hits) / (STRENGTH / np.maximum(prior, TINY) + average.exposure)
        ratio = np.where(allowed, target, 0) / np.maximum(kernel, TINY)
        kernel = (kernel * ratio**RELAXATION).astype(np.float32) if number else np.where(allowed, target, 0)
        typical = (average.weight_hits.sum(0) + 0.1) / (average.weight_exposure.sum(0) + 1.0)
        weights = ((1 + average.weight_hits) / (1 / typical + average.weight_exposure)).astype(np.float32)
        report((number + 1) / PASSES)
    return kernel, weights


def _run_pass(run: Pass, kernel: Floats, weights: Floats, queries: Ints, work: int) -> Statistics:
    """Return the sums over all queries; threads sum ranges of their own, which are added in order."""
    parts: dict[int, Statistics] = {}

    def body(first: int, last: int) -> None:
        parts[first] = Statistics.zeros(kernel, weights)
        run(kernel, weights, queries[first:last], parts[first])

    parallel_for(body, len(queries), 16 * work)
    first, *others = sorted(parts)
    total = parts[first]
    for start in others:
        total.add_(parts[start])
    return total


def _prior(sums: Statistics, kinds: Ints) -> Floats:
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
    groups = binning.bin_groups()
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


def start_kernel(classes: int, others: int, *, past: bool) -> Floats:
    """Return the kernel that passes start from, (classes, others, COUNT); with `past`, zeros for lag 0 and the future.

    Facts that are not the closest start low: passes raise a value faster than they lower it.
    """
    kernel = np.ones((classes, others, binning.COUNT), dtype=np.float32)
    kernel[:, :, binning.bin_groups() % 3 == 0] = OLDER_START
    kernel[:, :, 0] = 0 if past else 1
    if past:
        kernel[:, :, 1 + binning.SIDE :] = 0
    return kernel
