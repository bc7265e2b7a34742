"""The expected number of facts of every cell (s, p, o, t), given nothing: what is likely to hold at a time.

    λ(s, p, o, t) = Σ_{stored (s, p', o, t') except the fact itself} k[p, p', bin(t, t')] + w[p] / (E² T)

Fitted like the kernels of questions, but to the unconditional likelihood Σ_facts log λ − Σ_cells λ: the exposure of a
bin is the number of (edge, time) combinations in it, whatever the kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from recollect.engine import one_thread
from recollect.graph.facts import Facts
from recollect.history.bins import Ints
from recollect.history.edges import CLASS, EARLIER, END, FUTURE_RUN, LATER, PAST_RUN, TARGET, TIME, Floats
from recollect.history.evidence import Evidence, find_evidence
from recollect.history.fit import (
    Statistics,
    fit_kernel,
    predicate_kinds,
    reads_only_past,
    slot_queries,
    start_kernel,
)
from recollect.history.history import History
from recollect.history.new_predicates import with_new_class
from recollect.history.reference import NOT_CUT, bin_at, loops, others_of_pair
from recollect.history.state import is_rate

PASS_COST = 16  # of an edge in NumPy, relative to compiled passes
START = 0.01  # the kernel that passes start from: facts per cell
WIDTH_EDGES = 2**16  # edges whose bins are counted at a time
REPEATED, MOST_REPEATS = 2**15, 64  # runs are asked for at several times: so many in all, and at most so many of each


class CellRates:
    """λ of cells between entities that some stored fact joins."""

    def __init__(self, history: History, kernel: Floats) -> None:
        self.history, self.kernel, self.past = history, kernel, reads_only_past(kernel)

    @cached_property
    def first(self) -> Ints:
        """The first edge of each pair (u, v): (n,)."""
        codes = self.history.edges.pair_codes
        return np.flatnonzero(np.append(True, codes[1:] != codes[:-1])[: len(codes)])

    @cached_property
    def last(self) -> Ints:
        """The edge after the last one of each pair: (n,)."""
        return np.append(self.first[1:], len(self.history.edges.table))[: len(self.first)]

    @cached_property
    def subject(self) -> Ints:
        """The entity u of each pair: (n,)."""
        return self.history.edges.source[self.first]

    @cached_property
    def object(self) -> Ints:
        """The entity v of each pair: (n,)."""
        return self.history.edges.table[self.first, TARGET].astype(np.int64)

    @classmethod
    def fit(
        cls,
        history: History,
        *,
        ahead: int = 0,
        seed: int = 0,
        progress: Callable[[float], None] = lambda share: None,
    ) -> CellRates:
        """Fit the kernel to the stored facts of a history.

        With `ahead` h > 0, a fact at t is expected by the facts at t − h and before alone: its evidence is that for
        t − h + 1, with past lags only.
        """
        edges, sizes = history.edges, history.sizes
        directed = int(history.classes.max(initial=-1)) + 1
        members = np.bincount(history.classes[: sizes["predicate"]], minlength=directed // 2).astype(np.float32)
        exposure = members[:, None, None] * _total_widths(history, past=ahead > 0)[None]
        bins, cut = history.bins.by_lag, history.bins.run if ahead else NOT_CUT
        queries = slot_queries(edges, "p")
        queries = queries._replace(cost=PASS_COST * queries.cost)

        repeats = max(1, min(MOST_REPEATS, REPEATED // max(1, len(queries.edge)))) if edges.has_runs else 1

        def run(k: Floats, w: Floats, part: Ints, times: Ints, sums: Statistics) -> None:
            for number in range(repeats):
                first, length = edges.column(TIME)[part], edges.lengths[part]
                add(k, w, part, first + (times - first + number * length // repeats) % length, sums)

        def add(k: Floats, w: Floats, part: Ints, times: Ints, sums: Statistics) -> None:
            seen = times - max(0, ahead - 1)
            q, j = others_of_pair(edges.table, cut, edges.pairs, edges.mirror, part, seen)
            asked, rows, facts = edges.table[part], edges.table[j], edges.lengths[part] / repeats
            entry = np.ravel_multi_index((asked[q, CLASS], rows[:, CLASS], bin_at(rows, bins, cut, seen[q])), k.shape)
            rates, popularity = k.reshape(-1)[entry], w[asked[:, CLASS], 0] / _cells(sizes)
            total = popularity + np.bincount(q, rates, minlength=len(part))
            added = facts[q] * rates / total[q]  # the time that is asked for stands for all facts of the run
            sums.hits.reshape(-1)[:] += np.bincount(entry, added, minlength=k.size).astype(np.float32)
            np.add.at(sums.weight_hits[:, 0], asked[:, CLASS], facts * popularity / total)
            fraction = np.float32(len(part) / max(1, len(queries.edge)) / repeats)
            sums.exposure += exposure * fraction
            sums.weight_exposure += members[:, None] * fraction
            sums.log_likelihood += float((facts * np.log(total)).sum())

        chosen = history.bins.layout
        kernel = start_kernel(directed // 2, directed, chosen, past=ahead > 0) * np.float32(START)
        weights = np.ones((directed // 2, 1), dtype=np.float32)
        kinds, rng = predicate_kinds(directed // 2, directed // 2), np.random.default_rng(seed)
        with one_thread():
            fitted, _ = fit_kernel(run, queries, kernel, weights, kinds, chosen.groups, rng=rng, report=progress)
        return cls(history, fitted)

    def with_history(self, history: History) -> CellRates:
        """Return the same kernel over another store, which may have predicates that came after the fit."""
        is_same = len(self.kernel) == history.class_count
        return CellRates(history, self.kernel if is_same else with_new_class(self.kernel))

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor], history: History) -> CellRates:
        """Return the rates that `tensors` came from; raise ValueError if they do not fit the history."""
        directed = int(history.classes.max(initial=-1)) + 1
        kernel = tensors["kernel"]
        if kernel.shape != (directed // 2, directed, history.bins.layout.count) or kernel.dtype != torch.float32:
            raise ValueError("the kernel of its cells does not have the shape of its predicates")
        if not is_rate(kernel):
            raise ValueError("the kernel of its cells is not all finite and at least 0")
        return cls(history, kernel.numpy())

    def tensors(self) -> dict[str, Tensor]:
        """Return the kernel as a tensor: (A, C, COUNT) float32."""
        return {"kernel": torch.tensor(self.kernel)}

    def pairs(self, subject: int | None = None, object: int | None = None) -> Ints:
        """Return the pairs with the given entities, as positions in `subject` and `object`: (n,)."""
        chosen = np.ones(len(self.first), dtype=bool)
        if subject is not None:
            chosen &= self.subject == subject
        if object is not None:
            chosen &= self.object == object
        return np.flatnonzero(chosen)

    def at(self, time: int, pairs: Ints, predicates: Ints | None = None) -> Floats:
        """Return λ of every predicate, or of some, of pairs (n,) at a time: (n, P)."""
        asked = np.arange(self.history.sizes["predicate"]) if predicates is None else predicates
        out = np.zeros((len(pairs), len(asked)), dtype=np.float32)
        is_loop = self.subject[pairs] == self.object[pairs]
        bins, times = self.history.bins, np.full(len(pairs), time)
        loops().score_predicates(
            self.first[pairs], self.last[pairs], is_loop, self.history.edges.table, bins.by_lag,
            bins.run if self.past else NOT_CUT, self.kernel, self.history.classes, asked, times, out,
        )  # fmt: skip
        return out

    def evidence(self, fact: Facts) -> Evidence:
        """Return the stored facts that speak for one fact, by share of its λ."""
        s, p, o, t = fact.ids[0].tolist()
        kernel = self.kernel[self.history.classes[p]]
        return find_evidence(self.history.edges, self.history.bins, kernel, (s, p, o, t), 0.0, past=self.past)

    def facts(self, pairs: Ints, predicates: Ints, time: int) -> Facts:
        """Return facts by the number of their pair and their predicate: (n,), (n,)."""
        columns = [self.subject[pairs], predicates, self.object[pairs], np.full(len(pairs), time)]
        return Facts.of(np.stack(columns, axis=1).tolist())


def _cells(sizes: Mapping[str, int]) -> int:
    """Return the number of cells of a predicate: E² T."""
    return sizes["entity"] ** 2 * sizes["time"]


def _total_widths(history: History, *, past: bool) -> Floats:
    """Return the number of (edge, time) combinations of each class and bin: (C, COUNT)."""
    table, times, chosen = history.edges.table, history.sizes["time"], history.bins.layout
    total = np.zeros((int(history.classes.max(initial=-1)) + 1, chosen.count))
    lowest, highest = history.bins.ranges
    near, older, future = chosen.firsts - 1
    shortest_run, longest_run = np.array(chosen.runs), np.array([*chosen.runs[1:], times + 1]) - 1
    for first in range(0, len(table), WIDTH_EDGES):
        rows = table[first : first + WIDTH_EDGES]
        t, end, each = rows[:, TIME], rows[:, END], np.arange(len(rows))
        widths = np.zeros((len(rows), chosen.count))
        widths[:, 0] = 1 if past else end - t + 1
        if past:  # at the times after the first, the run up to the time before
            widths[:, 1 : 1 + near] += np.maximum(0, np.minimum(longest_run, (end - t)[:, None]) - shortest_run + 1)
        sides = (
            (1, PAST_RUN, np.minimum(rows[:, LATER], times - 1) - end, times - 1 - end),
            (1 + future, FUTURE_RUN, t - np.maximum(rows[:, EARLIER], 0), t),
        )
        for start, run, closest, longest in sides:  # lags 1 … closest as the closest fact, then as an older one
            widths[each, rows[:, run]] += closest >= 1
            part = slice(start + near, start + older)
            widths[:, part] += np.maximum(0, np.minimum(highest[part], closest[:, None]) - lowest[part] + 1)
            part = slice(start + older, start + future)
            shortest = np.maximum(lowest[part], closest[:, None] + 1)
            widths[:, part] += np.maximum(0, np.minimum(highest[part], longest[:, None]) - shortest + 1)
        np.add.at(total, rows[:, CLASS], widths)
    return total.astype(np.float32)
