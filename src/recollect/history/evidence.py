"""Evidence: the stored facts that speak for a fact, and what each of them adds to λ."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from recollect.graph.facts import Facts
from recollect.history.bins import Bins
from recollect.history.edges import CLASS, END, PREDICATE, TIME, Edges, Floats
from recollect.history.reference import NOT_CUT, bin_at


@dataclass(frozen=True, eq=False)
class Evidence:
    """What speaks for a fact, as shares of its λ: shares.sum() + popularity = 1.

    Without stored fact n, λ less popularity is lower by shares[n] · rate, provided that the bins of the other facts of
    its triple do not depend on it: it is at lag 0, or it is the only fact of its triple on its side, or it is neither
    the closest on its side nor in the run that reaches the step next to t.
    """

    facts: Facts  # n stored facts, or the facts of stored runs that are closest to t, largest share first
    shares: Tensor  # (n,) float64, all positive
    popularity: float
    rate: float  # λ


def find_evidence(
    edges: Edges, bins: Bins, kernel: Floats, query: tuple[int, int, int, int], popularity: float, *, past: bool
) -> Evidence:
    """Return the evidence for the edge (u, r, v, t), given the kernel of r (C, COUNT) and the popularity part of λ.

    With `past`, no fact at or after t is read.
    """
    u, r, v, t = query
    first, last = edges.pair_ranges(np.array([u]), np.array([v]))
    rows = edges.table[first[0] : last[0]].astype(np.int64)
    predicate, time = rows[:, PREDICATE], np.clip(t - past, rows[:, TIME], rows[:, END])
    inverse = (r + edges.predicates) % (2 * edges.predicates) if u == v else r
    is_answer = (time == t) & ((predicate == r) | (predicate == inverse))
    cut = bins.run if past else NOT_CUT
    added = np.where(is_answer, 0, kernel[rows[:, CLASS], bin_at(rows, bins.by_lag, cut, np.array(t))])
    is_inverse = predicate >= edges.predicates
    subject, object_ = np.where(is_inverse, v, u), np.where(is_inverse, u, v)
    ids = np.stack([subject, predicate % max(1, edges.predicates), object_, time], axis=1)
    ids, index = np.unique(ids, axis=0, return_inverse=True)  # a fact of u with itself has two edges
    added = np.bincount(index.reshape(-1), added, minlength=len(ids))
    order = np.argsort(-added, kind="stable")[: np.count_nonzero(added)]
    rate = popularity + float(added.sum())
    facts = Facts(torch.from_numpy(ids[order]))
    if rate == 0:
        return Evidence(facts, torch.empty(0, dtype=torch.float64), 1.0, rate)
    return Evidence(facts, torch.from_numpy(added[order] / rate), popularity / rate, rate)
