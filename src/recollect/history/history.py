"""The class History: a scorer that reads the stored facts of a query's entities.

    λ(s, p, o, t) = Σ_{stored (s, p', o, t') except the fact itself} k[p, p', bin(t, t')] + Σ_c w[p, c] · share_c
    score         = log λ

p' runs over predicates and their inverses. Every asked slot has a kernel k and weights w of its own: `o` for who and
whom, `p` for what, `t` for when.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import torch
from torch import Tensor

from recollect.engine import one_thread, parallel_for
from recollect.graph.facts import KINDS, Facts
from recollect.history.bins import Ints, lag_bins
from recollect.history.edges import PREDICATE, TARGET, TIME, Floats, build_edges, predicate_classes
from recollect.history.fit import fit_kernel, fitting_pass, predicate_kinds, reads_only_past, slot_queries, start_kernel
from recollect.history.reference import blocks, loops
from recollect.history.shares import Popularity
from recollect.history.state import Parameters, check_ids, kernel_shape, read_tensors, to_tensors, weights_shape

ASKED = "opt"  # slots with a kernel; subjects are asked for as targets of inverse predicates
MIN_RATE = 1e-30  # so that log λ is finite


class History:
    """A scorer for the slots s p o t over an exact store of facts.

    >>> facts = Facts.of([(0, 0, 1, t) for t in range(9)] + [(0, 0, 2, 0)])
    >>> history = History.fit(facts, {"entity": 3, "predicate": 1, "time": 10})
    >>> history.score_against(Facts.of([(0, 0, 0, 9)]), "o").argmax().item()
    1
    """

    def __init__(
        self,
        facts: Facts,
        sizes: Mapping[str, int],
        classes: Ints,
        kernels: Mapping[str, Floats],
        weights: Mapping[str, Floats],
    ) -> None:
        self.sizes, self.classes, self.kernels, self.weights = dict(sizes), classes, dict(kernels), dict(weights)
        self.past = {slot: reads_only_past(kernel) for slot, kernel in self.kernels.items()}
        self.facts, self.bins = facts.true(), lag_bins(sizes["time"])
        self.edges = build_edges(self.facts, sizes, classes, self.bins)
        self.popularity = Popularity(self.edges, sizes)

    @classmethod
    def fit(
        cls,
        facts: Facts,
        sizes: Mapping[str, int],
        *,
        asked: str = ASKED,
        past: bool = False,
        seed: int = 0,
        progress: Callable[[float], None] = lambda share: None,
    ) -> History:
        """Fit the kernels of the asked slots to facts; with `past`, only by what was stored before each."""
        history = cls(facts, sizes, predicate_classes(facts, sizes["predicate"]), {}, {})
        for number, slot in enumerate(asked):

            def report(share: float, number: int = number) -> None:
                progress((number + share) / len(asked))

            with one_thread():
                fitted = history._fit_slot(slot, past, np.random.default_rng(seed), report)
            history.kernels[slot], history.weights[slot], history.past[slot] = *fitted, past
        return history

    def with_facts(self, facts: Facts, sizes: Mapping[str, int] | None = None) -> History:
        """Return the same kernels over another store."""
        return History(facts, sizes or self.sizes, self.classes, self.kernels, self.weights)

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor], facts: Facts, sizes: Mapping[str, int]) -> History:
        """Return the history that `tensors` came from, over a store; raise ValueError if they do not fit it."""
        check_ids(facts, sizes)
        return cls(facts, sizes, *read_tensors(tensors, sizes))

    def tensors(self) -> dict[str, Tensor]:
        """Return what was fitted as contiguous float32 and int64 tensors, by names that begin with `history.`."""
        return to_tensors(Parameters(self.classes, self.kernels, self.weights))

    def _fit_slot(
        self, slot: str, past: bool, rng: np.random.Generator, report: Callable[[float], None]
    ) -> tuple[Floats, Floats]:
        """Return kernel and weights of one asked slot."""
        directed = int(self.classes.max(initial=-1)) + 1
        kernel = start_kernel(*kernel_shape(slot, directed)[:2], past=past)
        weights = np.full(weights_shape(slot, directed), 0.01, dtype=np.float32)
        run = fitting_pass(self.edges, self.bins, self.sizes, self.classes, slot, past=past)
        kinds = predicate_kinds(len(kernel), directed // 2)
        return fit_kernel(run, slot_queries(self.edges, slot), kernel, weights, kinds, rng=rng, report=report)

    # -- scores -----------------------------------------------------------------------------------------------------

    def score(self, facts: Facts) -> Tensor:
        """Return log λ of each fact's object: (B,)."""
        return self.score_against(facts, "o", facts.o[:, None])[:, 0]

    def score_against(self, facts: Facts, slot: str, candidates: Tensor | None = None) -> Tensor:
        """Return log λ of fact b with `slot` replaced by candidate n: (B, N) for all ids or ids (N,) or (B, N)."""
        scores = torch.from_numpy(np.log(np.maximum(self.rates(facts, slot), MIN_RATE)))
        if candidates is None:
            return scores
        return scores[:, candidates] if candidates.dim() == 1 else scores.gather(1, candidates)

    def rates(self, facts: Facts, slot: str) -> Floats:
        """Return λ of each fact with every id in `slot`: (B, N) float32."""
        out = np.empty((len(facts), self.sizes[KINDS[slot]]), dtype=np.float32)
        run = {"s": self._entity_rates, "o": self._entity_rates, "p": self._predicate_rates, "t": self._time_rates}

        def body(first: int, last: int) -> None:
            for part in blocks(first, last):
                run[slot](facts[part], slot, out[part])

        parallel_for(body, len(facts), 8 * out.size)
        return out

    def _entity_rates(self, facts: Facts, slot: str, out: Floats) -> None:
        edges, t = self.edges, facts.t.numpy()
        u, r, inverse = facts.s.numpy(), facts.p.numpy(), facts.p.numpy() + self.sizes["predicate"]
        if slot == "s":
            u, r, inverse = facts.o.numpy(), inverse, r
        asked = self.classes[r]
        for n in range(len(u)):
            rows = edges.table[edges.start[u[n]] : edges.start[u[n] + 1]]
            stored = rows[(rows[:, TIME] == t[n]) & (rows[:, PREDICATE] == r[n]), TARGET]
            weights = self.weights["o"][asked[n]]
            out[n] = self.popularity.entities(weights, int(r[n]), *self._counted("o", stored, t[n]))
        loops().score_entities(
            edges.start, edges.table, self.bins.by_lag, self.kernels["o"], u, r, inverse, asked, t, out
        )

    def _counted(self, slot: str, stored: Ints, t: int) -> tuple[Ints, int | None]:
        """Return which candidates popularity counts one fact less of, and the time before which it counts facts."""
        return (stored[:0], t) if self.past[slot] else (stored, None)

    def _predicate_rates(self, facts: Facts, slot: str, out: Floats) -> None:
        edges, t, (first, last) = self.edges, facts.t.numpy(), self._pair_ranges(facts)
        for n, (s, o) in enumerate(zip(facts.s.tolist(), facts.o.tolist(), strict=True)):
            rows = edges.table[first[n] : last[n]]
            stored = rows[(rows[:, TIME] == t[n]) & (rows[:, PREDICATE] < self.sizes["predicate"]), PREDICATE]
            out[n] = self.popularity.predicates(self.weights["p"][0], s, o, *self._counted("p", stored, t[n]))
        is_loop = (facts.s == facts.o).numpy()
        loops().score_predicates(
            first, last, is_loop, edges.table, self.bins.by_lag, self.kernels["p"], self.classes, t, out
        )

    def _time_rates(self, facts: Facts, slot: str, out: Floats) -> None:
        edges, p, (first, last) = self.edges, facts.p.numpy(), self._pair_ranges(facts)
        asked = self.classes[p]
        for n, (s, o) in enumerate(zip(facts.s.tolist(), facts.o.tolist(), strict=True)):
            rows = edges.table[first[n] : last[n]]
            stored = rows[rows[:, PREDICATE] == p[n], TIME]
            out[n] = self.popularity.times(self.weights["t"][asked[n]], s, int(p[n]), o, stored)
        inverse = torch.where(facts.s == facts.o, facts.p + self.sizes["predicate"], -1).numpy()
        loops().score_times(first, last, edges.table, self.bins.by_lag, self.kernels["t"], p, inverse, asked, out)

    def _pair_ranges(self, facts: Facts) -> tuple[Ints, Ints]:
        """Return the range of edges from each fact's subject to its object: (B,), (B,)."""
        wanted = facts.s.numpy() * self.sizes["entity"] + facts.o.numpy()
        codes = self.edges.pair_codes
        return np.searchsorted(codes, wanted), np.searchsorted(codes, wanted, side="right")
