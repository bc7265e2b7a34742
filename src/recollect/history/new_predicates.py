"""Kernels for predicates that came after the fit: one class that all of them share, like the rarest fitted predicates.

Rare predicates have kernels close to the prior, what is usual for any predicate, which suits one that is new: with 40
predicates of ICEWS14 left out of the fit and then stored, their validation MRR of who and whom is 0.536; with the mean
of all classes it is 0.520, and fitted with them 0.646. The class is none of theirs, so that a new predicate is no
evidence for a rare one as if it were the same. For itself and for its inverse it has what rare predicates say about
themselves; for all others, and as evidence for these, what rare predicates and different ones say about each other.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from recollect.history.bins import Ints
from recollect.history.edges import Floats

RARE = 8  # one of so many classes is rare, the last ones: classes are numbered by the number of their facts


def more_classes(classes: Ints, fitted: int, predicates: int) -> Ints:
    """Return the classes of more predicates and their inverses, given those of `fitted` ones and perhaps later ones."""
    forward = classes[:fitted]
    count = int(forward.max(initial=-1)) + 1
    every = np.concatenate([forward, np.full(predicates - fitted, count)])
    return np.concatenate([every, every + every.max(initial=0) + 1])


def with_new_class(kernel: Floats) -> Floats:
    """Return a kernel (A, C, COUNT) with one class more in each direction: A and C grow by 1, or by 2 for inverses."""
    count = kernel.shape[1] // 2
    directions = kernel.shape[0] // count
    blocks = kernel.reshape(directions, count, 2, count, -1).swapaxes(1, 2)  # (directions, 2, count, count, COUNT)
    larger = np.zeros((directions, 2, count + 1, count + 1, kernel.shape[2]), dtype=kernel.dtype)
    larger[:, :, :count, :count] = blocks
    others = _shares_of_others(count).astype(kernel.dtype)
    larger[:, :, count, :count] = np.einsum("ji,xyijb->xyjb", others, blocks)
    larger[:, :, :count, count] = np.einsum("ij,xyijb->xyib", others, blocks)
    larger[:, :, count, count] = np.einsum("xyiib->xyib", blocks)[:, :, -_rare(count) :].mean(axis=2)
    return larger.swapaxes(1, 2).reshape(directions * (count + 1), 2 * (count + 1), -1)


def with_new_weights(weights: Mapping[str, Floats]) -> dict[str, Floats]:
    """Return the weights of popularity by asked slot with one class more; where the predicate is asked, all share."""
    larger = {}
    for slot, rows in weights.items():
        halves = np.split(rows, 2) if slot == "o" else [rows]
        parts = [np.concatenate([half, half[-_rare(len(half)) :].mean(axis=0, keepdims=True)]) for half in halves]
        larger[slot] = rows if slot == "p" else np.concatenate(parts)
    return larger


def _rare(count: int) -> int:
    """Return how many of `count` classes are rare."""
    return max(1, count // RARE)


def _shares_of_others(count: int) -> np.ndarray:
    """Return the share of each class (columns) in the new one as others see it (rows): equal among rare ones.

    A class does not see itself; the only rare class sees the mean of all others.
    """
    is_other = ~np.eye(count, dtype=bool)
    is_rare = is_other & (np.arange(count) >= count - _rare(count))
    chosen = np.where(is_rare.any(axis=1, keepdims=True), is_rare, is_other)
    return chosen / np.maximum(1, chosen.sum(axis=1, keepdims=True))
