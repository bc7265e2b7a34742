"""Compiled loops behind `cells`: the time that edges spend in each bin, and the hits of a pass over all facts."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from recollect.engine.kernels import kernel
from recollect.history.edges import CLASS, TIME
from recollect.history.kernels import bin_at, bin_widths

Array = npt.NDArray[Any]


@kernel
def total_widths(edges: Array, runs: Array, ranges: Array, times: int, out: Array) -> None:
    """out[c, b] += the number of times of the axis from which each edge of class c is in bin b."""
    width = np.empty(out.shape[1], np.float32)
    for j in range(len(edges)):
        bin_widths(edges, runs, ranges, j, j, times, width)
        width[0] = 1
        for b in range(len(width)):
            out[np.uint64(edges[j, CLASS]), b] += width[b]


@kernel
def cell_pass(
    edges: Array, bins: Array, pairs: Array, mirror: Array, k: Array, weights: Array, share: float, queries: Array,
    hits: Array, weight_hits: Array,
) -> float:  # fmt: skip
    """Add the hits of facts, each left out of its own evidence; return Σ log λ."""
    total = 0.0
    for q in range(len(queries)):
        e = queries[q]
        t, a = edges[e, TIME], np.uint64(edges[e, CLASS])
        rate = weights[a, 0] * np.float32(share)
        for j in range(pairs[e, 0], pairs[e, 1]):
            if j != e and j != mirror[e]:
                rate += k[a, np.uint64(edges[j, CLASS]), bin_at(edges, bins, j, t)]
        by_rate = np.float32(1) / rate
        for j in range(pairs[e, 0], pairs[e, 1]):
            if j != e and j != mirror[e]:
                c, b = np.uint64(edges[j, CLASS]), bin_at(edges, bins, j, t)
                hits[a, c, b] += k[a, c, b] * by_rate
        weight_hits[a, 0] += weights[a, 0] * np.float32(share) * by_rate
        total += np.log(rate)
    return total
