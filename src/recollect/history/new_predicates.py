"""Kernels for predicates that came after the fit: one class that all of them share, the mean of the fitted classes.

As asked and as evidence, the class has the mean over all others of what different predicates say about each other; for
itself and for its inverse, the mean of what the same predicate says. Every class counts alike: a new predicate is not
likelier to be like a frequent one. (With MAX_CLASSES, rare predicates share a class. It is not taken: graphs of few
predicates have none, and their rarest predicate is as particular as any.)
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from recollect.history.bins import Ints
from recollect.history.edges import Floats


def more_classes(classes: Ints, fitted: int, predicates: int) -> Ints:
    """Return the classes of more predicates and their inverses, given those of `fitted` ones and perhaps later ones."""
    forward = classes[:fitted]
    count = int(forward.max(initial=-1)) + 1
    every = np.concatenate([forward, np.full(predicates - fitted, count)])
    return np.concatenate([every, every + every.max(initial=0) + 1])


def with_mean_class(kernel: Floats) -> Floats:
    """Return a kernel (A, C, COUNT) with one class more in each direction: A and C grow by 1, or by 2 for inverses."""
    count = kernel.shape[1] // 2
    asked, stored = kernel.shape[0] // max(1, count), 2
    blocks = kernel.reshape(asked, count, stored, count, -1).swapaxes(
        1, 2
    )  # by direction: (asked, stored, n, n, COUNT)
    larger = np.zeros((asked, stored, count + 1, count + 1, kernel.shape[2]), dtype=kernel.dtype)
    larger[:, :, :count, :count] = blocks
    same = np.einsum("...iib->...ib", blocks)
    others = max(1, count - 1)
    larger[:, :, count, :count] = (blocks.sum(axis=2) - same) / others
    larger[:, :, :count, count] = (blocks.sum(axis=3) - same) / others
    larger[:, :, count, count] = same.mean(axis=2)
    np.maximum(larger, 0, out=larger)  # differences of sums round below 0
    return larger.swapaxes(1, 2).reshape(asked * (count + 1), stored * (count + 1), -1)


def with_mean_weights(weights: Mapping[str, Floats]) -> dict[str, Floats]:
    """Return the weights of popularity by asked slot with one class more; where the predicate is asked, all share."""
    larger = {}
    for slot, rows in weights.items():
        halves = np.split(rows, 2) if slot == "o" else [rows]
        means = [np.concatenate([half, half.mean(axis=0, keepdims=True)]) for half in halves]
        larger[slot] = rows if slot == "p" else np.concatenate(means)
    return larger
