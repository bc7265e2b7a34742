"""The expected number of facts of every cell (s, p, o, t), given nothing: what is likely to hold at a time.

    λ(s, p, o, t) = Σ_{stored (s, p', o, t') except the fact itself} k[p, p', bin(t, t')] + w[p] / (E² T)

Fitted like the kernels of questions, but to the unconditional likelihood Σ_facts log λ − Σ_cells λ: the exposure of a
bin is the number of (edge, time) combinations in it, whatever the kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import torch
from torch import Tensor

from recollect.engine import one_thread
from recollect.graph.facts import Facts
from recollect.history.bins import COUNT, Ints
from recollect.history.edges import PREDICATE, TARGET, Floats
from recollect.history.fit import Statistics, fit_kernel, predicate_kinds, start_kernel
from recollect.history.history import History


class CellRates:
    """λ of cells between entities that some stored fact joins."""

    def __init__(self, history: History, kernel: Floats) -> None:
        self.history, self.kernel = history, kernel
        edges = history.edges
        first = np.flatnonzero(edges.pairs[:, 0] == np.arange(len(edges.pairs)))
        self.first, self.last = edges.pairs[first, 0], edges.pairs[first, 1]  # the edges of each pair (u, v): (n,)
        self.subject, self.object = edges.source[first], edges.column(TARGET)[first]

    @classmethod
    def fit(
        cls, history: History, *, seed: int = 0, progress: Callable[[float], None] = lambda share: None
    ) -> CellRates:
        """Fit the kernel to the stored facts of a history."""
        from recollect.history import cell_kernels

        edges, bins, sizes = history.edges, history.bins, history.sizes
        directed = int(history.classes.max(initial=-1)) + 1
        members = np.bincount(history.classes[: sizes["predicate"]], minlength=directed // 2).astype(np.float32)
        widths = np.zeros((directed, COUNT), dtype=np.float64)
        cell_kernels.total_widths(edges.table, bins.run, bins.ranges, sizes["time"], widths)
        exposure = (members[:, None, None] * widths[None]).astype(np.float32)
        queries = np.flatnonzero(edges.column(PREDICATE) < sizes["predicate"])
        share = 1 / (sizes["entity"] ** 2 * sizes["time"])

        def run(k: Floats, w: Floats, part: Ints, sums: Statistics) -> None:
            fraction = np.float32(len(part) / max(1, len(queries)))
            sums.exposure += exposure * fraction
            sums.weight_exposure += members[:, None] * fraction
            sums.log_likelihood += cell_kernels.cell_pass(
                edges.table, bins.by_lag, edges.pairs, edges.mirror, k, w, share, part, sums.hits, sums.weight_hits
            )

        kernel = start_kernel(directed // 2, directed, past=False) * 1e-2
        weights = np.ones((directed // 2, 1), dtype=np.float32)
        cost = np.diff(edges.pairs[queries])[:, 0]
        kinds = predicate_kinds(directed // 2, directed // 2)
        with one_thread():
            fitted, _ = fit_kernel(
                run, queries, cost, kernel, weights, kinds, rng=np.random.default_rng(seed), report=progress
            )
        return cls(history, fitted)

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor], history: History) -> CellRates:
        """Return the rates that `tensors` came from; raise ValueError if they do not fit the history."""
        directed = int(history.classes.max(initial=-1)) + 1
        kernel = tensors["kernel"]
        if kernel.shape != (directed // 2, directed, COUNT) or kernel.dtype != torch.float32:
            raise ValueError("the kernel of its cells does not have the shape of its predicates")
        if not bool((kernel.isfinite() & (kernel >= 0)).all()):
            raise ValueError("the kernel of its cells is not all finite and at least 0")
        return cls(history, kernel.numpy())

    def tensors(self) -> dict[str, Tensor]:
        """Return the kernel as a tensor: (A, C, COUNT) float32."""
        return {"kernel": torch.tensor(self.kernel)}

    def at(self, time: int, subject: int | None = None, object: int | None = None) -> tuple[Ints, Floats]:
        """Return the pairs with the given entities, as numbers of `subject` and `object`, and λ at a time: (n, P)."""
        from recollect.history import kernels

        chosen = np.ones(len(self.first), dtype=bool)
        if subject is not None:
            chosen &= self.subject == subject
        if object is not None:
            chosen &= self.object == object
        pairs = np.flatnonzero(chosen)
        out = np.zeros((len(pairs), self.history.sizes["predicate"]), dtype=np.float32)
        is_loop = self.subject[pairs] == self.object[pairs]
        kernels.score_predicates(
            self.first[pairs], self.last[pairs], is_loop, self.history.edges.table, self.history.bins.by_lag,
            self.kernel, self.history.classes, np.full(len(pairs), time), out,
        )  # fmt: skip
        return pairs, out

    def facts(self, pairs: Ints, predicates: Ints, time: int) -> Facts:
        """Return facts by the number of their pair and their predicate: (n,), (n,)."""
        columns = [self.subject[pairs], predicates, self.object[pairs], np.full(len(pairs), time)]
        return Facts.of(np.stack(columns, axis=1).tolist())
