"""The class History: a scorer that reads the stored facts of a query's entities.

    λ(s, p, o, t) = Σ_{stored (s, p', o, t') except the fact itself} k[p, p', bin(t, t')] + Σ_c w[p, c] · share_c
    score         = log λ + c log π,    π = Σ_c w[p, c] · share_c the part of λ that popularity gives

p' runs over predicates and their inverses. Every asked slot has a kernel k and weights w of its own: `o` for who and
whom, `p` for what, `t` for when.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy

import numpy as np
import torch
from torch import Tensor

from recollect.engine import one_thread, parallel_for
from recollect.graph.facts import KINDS, Facts
from recollect.graph.replacing import Replaced
from recollect.graph.runs import Runs
from recollect.history.bins import Ints, Layout, interval_layout, lag_bins, layout_of
from recollect.history.edges import Floats, build_edges, change_edges, predicate_classes
from recollect.history.evidence import Evidence, find_evidence
from recollect.history.fit import fit_kernel, fitting_pass, predicate_kinds, reads_only_past, slot_queries, start_kernel
from recollect.history.new_predicates import more_classes, with_new_class, with_new_weights
from recollect.history.reference import NOT_CUT, blocks, loops
from recollect.history.shares import Popularity
from recollect.history.state import Parameters, check_ids, kernel_shape, read_tensors, to_tensors, weights_shape

ASKED = "opt"  # slots with a kernel; subjects are asked for as targets of inverse predicates
EDGES_PER_TRIPLE = 20  # to find the edges of one triple costs as much as to sort so many
MIN_RATE = 1e-30  # so that log λ is finite
POWERS = {"s": 0.0, "p": 0.2, "o": 0.0, "t": 0.4}  # c by asked slot: popularity tells times of equal λ apart


class History:
    """A scorer for the slots s p o t over an exact store of facts.

    >>> facts = Facts.of([(0, 0, 1, t) for t in range(9)] + [(0, 0, 2, 0)])
    >>> history = History.fit(facts, {"entity": 3, "predicate": 1, "time": 10})
    >>> history.score_against(Facts.of([(0, 0, 0, 9)]), "o").argmax().item()
    1
    """

    def __init__(
        self,
        facts: Facts | Runs,
        sizes: Mapping[str, int],
        classes: Ints,
        kernels: Mapping[str, Floats],
        weights: Mapping[str, Floats],
        fitted: int | None = None,
        *,
        layout: Layout | None = None,
        past: bool = False,
    ) -> None:
        """`fitted` is the number of predicates that kernels were fitted to, by default all; others share a class.

        `layout` and `past` are those of kernels that are to be fitted; given ones say it by themselves.
        """
        self.sizes, self.classes, self.kernels, self.weights = dict(sizes), classes, dict(kernels), dict(weights)
        self.fitted = sizes["predicate"] if fitted is None else fitted
        self.past = {slot: reads_only_past(kernel) for slot, kernel in self.kernels.items()}
        self.facts, self.bins = facts.true(), lag_bins(sizes["time"], layout or _layout(self.kernels))
        self.edges = build_edges(self.facts, sizes, classes, self.bins, past=past or any(self.past.values()))
        self.popularity = Popularity(self.edges, sizes)

    @classmethod
    def fit(
        cls,
        facts: Facts | Runs,
        sizes: Mapping[str, int],
        *,
        asked: str = ASKED,
        past: bool = False,
        seed: int = 0,
        progress: Callable[[float], None] = lambda share: None,
    ) -> History:
        """Fit the kernels of the asked slots to facts; with `past`, only by what was stored before each.

        With `past`, a run that began before the asked time is evidence up to the time before.
        """
        layout = interval_layout(sizes["time"]) if isinstance(facts, Runs) else Layout()
        history = cls(facts, sizes, predicate_classes(facts, sizes["predicate"]), {}, {}, layout=layout, past=past)
        for number, slot in enumerate(asked):

            def report(share: float, number: int = number) -> None:
                progress((number + share) / len(asked))

            with one_thread():
                fitted = history._fit_slot(slot, past, np.random.default_rng(seed), report)
            history.kernels[slot], history.weights[slot], history.past[slot] = *fitted, past
        return history

    def with_facts(self, facts: Facts | Runs, sizes: Mapping[str, int] | None = None) -> History:
        """Return the same kernels over another store."""
        return History(facts, sizes or self.sizes, self.classes, self.kernels, self.weights, self.fitted)

    def with_predicates(self, facts: Facts | Runs, sizes: Mapping[str, int]) -> History:
        """Return the same kernels over another store with more predicates, which share a class."""
        kernels, weights = self.kernels, self.weights
        if self.fitted == self.sizes["predicate"]:
            kernels = {slot: with_new_class(kernel) for slot, kernel in kernels.items()}
            weights = with_new_weights(weights)
        classes = more_classes(self.classes, self.fitted, sizes["predicate"])
        return History(facts, sizes, classes, kernels, weights, self.fitted)

    def with_first_predicates(self, facts: Facts | Runs, sizes: Mapping[str, int]) -> History:
        """Return the same kernels over another store with fewer predicates: the first ones."""
        forward, inverse = np.split(self.classes, 2)
        kept = sizes["predicate"]
        classes = np.concatenate([forward[:kept], inverse[:kept]])
        return History(facts, sizes, classes, self.kernels, self.weights, min(kept, self.fitted))

    @property
    def class_count(self) -> int:
        """The number of classes of predicates that the kernels have; inverses have as many."""
        every = next((kernel.shape[1] for kernel in self.kernels.values()), int(self.classes.max(initial=-1)) + 1)
        return every // 2

    def changed(self, facts: Facts | Runs, sizes: Mapping[str, int], replaced: Replaced) -> History:
        """Return the same kernels over a store that differs from this one by the rows that were replaced.

        There may be more entities and times, but each has the number that it had. Equal to `with_facts`, which sorts
        all edges again, but for a small change the others are only copied.
        """
        triples = replaced.triples
        if len(self.edges.table) < EDGES_PER_TRIPLE * len(triples) or any(self.past.values()):
            return self.with_facts(facts, sizes)
        other = copy(self)
        other.sizes, other.facts, other.bins = dict(sizes), facts.true(), lag_bins(sizes["time"], self.bins.layout)
        other.edges = change_edges(self.edges, triples, replaced.after, sizes, self.classes, other.bins)
        other.popularity = Popularity(other.edges, other.sizes)
        return other

    def with_kernels(self, kernels: Mapping[str, Floats], weights: Mapping[str, Floats]) -> History:
        """Return the same store with other kernels."""
        past = {slot: reads_only_past(kernel) for slot, kernel in kernels.items()}
        is_read_alike = not self.edges.has_runs or any(past.values()) == any(self.past.values())
        if not is_read_alike or _layout(kernels) != self.bins.layout:
            return History(self.facts, self.sizes, self.classes, kernels, weights, self.fitted)
        other = copy(self)
        other.kernels, other.weights, other.past = dict(kernels), dict(weights), past
        return other

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor], facts: Facts | Runs, sizes: Mapping[str, int]) -> History:
        """Return the history that `tensors` came from, over a store; raise ValueError if they do not fit it."""
        check_ids(facts, sizes)
        return cls(facts, sizes, *read_tensors(tensors, sizes))

    def tensors(self) -> dict[str, Tensor]:
        """Return what was fitted as contiguous float32 and int64 tensors, by names that begin with `history.`."""
        fitted = None if self.fitted == self.sizes["predicate"] else self.fitted
        return to_tensors(Parameters(self.classes, self.kernels, self.weights, fitted))

    def _fit_slot(
        self, slot: str, past: bool, rng: np.random.Generator, report: Callable[[float], None]
    ) -> tuple[Floats, Floats]:
        """Return kernel and weights of one asked slot."""
        directed = int(self.classes.max(initial=-1)) + 1
        kernel = start_kernel(*kernel_shape(slot, directed)[:2], self.bins.layout, past=past)
        weights = np.full(weights_shape(slot, directed), 0.01, dtype=np.float32)
        run = fitting_pass(self.edges, self.bins, self.sizes, self.classes, slot, past=past)
        kinds = predicate_kinds(len(kernel), directed // 2)
        queries, groups = slot_queries(self.edges, slot), self.bins.layout.groups
        return fit_kernel(run, queries, kernel, weights, kinds, groups, rng=rng, report=report)

    # -- scores -----------------------------------------------------------------------------------------------------

    def score(self, facts: Facts) -> Tensor:
        """Return the score of each fact's object: (B,)."""
        return self.score_against(facts, "o", facts.o[:, None])[:, 0]

    def score_against(self, facts: Facts, slot: str, candidates: Tensor | None = None) -> Tensor:
        """Return the score of fact b with `slot` replaced by candidate n: (B, N) for all ids or ids (N,) or (B, N)."""
        scores = torch.from_numpy(np.log(np.maximum(self._rates(facts, slot, POWERS[slot]), MIN_RATE)))
        if candidates is None:
            return scores
        return scores[:, candidates] if candidates.dim() == 1 else scores.gather(1, candidates)

    def rates(self, facts: Facts, slot: str) -> Floats:
        """Return λ of each fact with every id in `slot`: (B, N) float32."""
        return self._rates(facts, slot, 0.0)

    def _rates(self, facts: Facts, slot: str, power: float) -> Floats:
        """Return λ π^power of each fact with every id in `slot`: (B, N) float32."""
        out = np.empty((len(facts), self.sizes[KINDS[slot]]), dtype=np.float32)

        def body(first: int, last: int) -> None:
            for part in blocks(first, last):
                for n in range(part.start, part.stop):
                    out[n] = self._popularity(facts.ids[n].tolist(), slot)
                factor = out[part] ** np.float32(power) if power else np.float32(1)
                self._add_evidence(facts[part], slot, out[part])
                out[part] *= factor

        parallel_for(body, len(facts), 8 * out.size)
        return out

    def evidence(self, fact: Facts, slot: str) -> Evidence:
        """Return what speaks for one fact as the answer of a slot: stored facts and popularity, by share of λ."""
        s, p, o, t = fact.ids[0].tolist()
        u, r, v = (o, p + self.sizes["predicate"], s) if slot == "s" else (s, p, o)
        asked = "o" if slot == "s" else slot
        kernel, past = self.kernels[asked][self.classes[r]], self.past[asked]
        popularity = self._popularity([s, p, o, t], slot)[int(fact.column(slot))]
        return find_evidence(self.edges, self.bins, kernel, (u, r, v, t), float(popularity), past=past)

    def _popularity(self, fact: list[int], slot: str) -> Floats:
        """Return the part of λ that popularity gives to every id in `slot`: (N,)."""
        s, p, o, t = fact
        if slot == "p":
            return self.popularity.predicates(self.weights["p"][0], s, o, t, past=self.past["p"])
        if slot == "t":
            return self.popularity.times(self.weights["t"][self.classes[p]], s, p, o)
        u, r = (o, p + self.sizes["predicate"]) if slot == "s" else (s, p)
        return self.popularity.entities(self.weights["o"][self.classes[r]], u, r, t, past=self.past["o"])

    def _add_evidence(self, facts: Facts, slot: str, out: Floats) -> None:
        """Add the part of λ that stored facts give to every id in `slot`: (B, N)."""
        s, p, o, t = (facts.column(each).numpy() for each in "spot")
        inverse, edges, bins = p + self.sizes["predicate"], self.edges.table, self.bins.by_lag
        cut = self.bins.run if self.past["o" if slot == "s" else slot] else NOT_CUT
        if slot in "so":
            u, r, inverse = (o, inverse, p) if slot == "s" else (s, p, inverse)
            k, asked = self.kernels["o"], self.classes[r]
            loops().score_entities(self.edges.start, edges, bins, cut, k, u, r, inverse, asked, t, out)
            return
        first, last = self.edges.pair_ranges(s, o)
        k, is_loop = self.kernels[slot], s == o
        if slot == "p":
            every = np.arange(out.shape[1])
            loops().score_predicates(first, last, is_loop, edges, bins, cut, k, self.classes, every, t, out)
        else:
            inverse = np.where(is_loop, inverse, -1)
            loops().score_times(first, last, edges, bins, k, p, inverse, self.classes[p], out)


def _layout(kernels: Mapping[str, Floats]) -> Layout:
    """Return the layout of the bins of kernels, which all have the same."""
    return next((layout_of(kernel.shape[2]) for kernel in kernels.values()), Layout())
