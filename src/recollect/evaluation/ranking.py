"""Rank true facts among all candidates of a slot, raw and filtered, in bounded memory.

rank = 1 + #greater + ½ #ties among the other candidates. The score of the true candidate is read from the same matrix
as the scores of the others.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor
from torch.backends import mkldnn
from torch.nn.functional import linear

from recollect.engine import one_thread, parallel_for, rank_counts
from recollect.errors import UserError
from recollect.graph.fact_index import FactIndex
from recollect.graph.facts import SLOT_NAMES, Facts, check_ids, stable_sort

TIES = {"realistic": 0.5, "optimistic": 0.0, "pessimistic": 1.0}  # tie policy -> share of ties that count as greater
SCORE_BYTES = 2 * 2**20  # scores per thread: large enough for a fast GEMM, small enough to stay in cache for counting
QUERY_FACTS = 4096  # facts per call of `queries`: neighbours share work, and queries are small compared with scores

MATRIX_WORK = 1024  # multiply-adds per candidate that is no vector: a guess, at least that of a matrix of 32 × 32


class Scorer(Protocol):
    """Anything that can be ranked: scores of facts, and of facts with one slot replaced."""

    def score(self, facts: Facts) -> Tensor:
        """Return the score of each fact: (B,)."""

    def score_against(self, facts: Facts, slot: str, candidates: Tensor | None = None) -> Tensor:
        """Return the score of fact b with `slot` replaced by candidate n: (B, N) for all ids or ids (N,) or (B, N)."""


@runtime_checkable
class QueryScorer(Scorer, Protocol):
    """A scorer whose scores are matrix products; several threads may call its methods at once."""

    def queries(self, facts: Facts, slot: str) -> Tensor:
        """Return rows (B, d) with score_against(facts, slot) = queries @ candidates(slot).T."""

    def candidates(self, slot: str) -> Tensor | None:
        """Return all candidates of a slot, (N, d); None if its scores are no such product."""


@dataclass(frozen=True)
class Ranking:
    """Counts of each fact's competitors: (n,) each."""

    greater: Tensor  # candidates with a greater score
    ties: Tensor  # other candidates with the same score
    others: Tensor  # other candidates

    def ranks(self, policy: str = "realistic") -> Tensor:
        """Return the rank of each fact, from 1: (n,) float64."""
        return 1 + self.greater.double() + TIES[policy] * self.ties.double()


@torch.no_grad()
def rank(scorer: Scorer, facts: Facts, slot: str, *, known: FactIndex, budget: int = SCORE_BYTES) -> dict[str, Ranking]:
    """Return the "raw" and the "filtered" ranking of each fact's own id of `slot` among all ids.

    The filtered ranking leaves out every other id that completes a known fact. `budget` bounds the bytes of scores
    that each thread ranks at a time.
    """
    with one_thread() if isinstance(scorer, QueryScorer) else nullcontext():
        check_ids(slot, facts.column(slot), known.size(slot))
        counts = _count(scorer, facts, slot, known, budget)
        has_nan = bool((counts < 0).any())
    if has_nan:
        raise UserError(
            f"the model scores some {SLOT_NAMES[slot]} as NaN, so nothing can be ranked; "
            "train again with a lower learning rate"
        )
    raw, filtered = counts.unbind(dim=1)
    return {"raw": Ranking(*raw.unbind(dim=1)), "filtered": Ranking(*filtered.unbind(dim=1))}


def _count(scorer: Scorer, facts: Facts, slot: str, known: FactIndex, budget: int) -> Tensor:
    """Return greater, ties and others of each fact, raw and filtered, as `rank_counts` does: (n, 2, 3)."""
    # facts that differ only in the slot become neighbours, and so do those of one time and predicate: they share work
    keys, order = stable_sort(known.keys(facts, slot))
    ordered = facts[order]
    known_ids = known.ids(slot)  # sorted here, once, not by every thread
    counts = torch.empty(len(facts), 2, 3, dtype=torch.int64)
    candidates = scorer.candidates(slot) if isinstance(scorer, QueryScorer) else None
    if candidates is not None and mkldnn.is_available() and candidates.is_cpu and candidates.dtype == torch.float32:
        candidates = candidates.to_mkldnn()  # oneDNN: twice as fast as MKL on AMD CPUs with AVX-512, else equal

    def count_range(start: int, stop: int) -> None:
        for first in range(start, stop, QUERY_FACTS):
            part = slice(first, min(first + QUERY_FACTS, stop))
            own, (begin, end) = ordered[part].column(slot), known.ranges(keys[part], slot)
            for block, scores in _score_blocks(scorer, candidates, ordered[part], slot, known.size(slot), budget):
                found = rank_counts(scores, own[block], begin[block], end[block], known_ids)
                counts[order[part][block]] = found

    if isinstance(scorer, QueryScorer):
        work = len(facts) * (MATRIX_WORK * known.size(slot) if candidates is None else candidates.numel())
        parallel_for(count_range, len(facts), work)
    else:
        count_range(0, len(facts))
    return counts


def _score_blocks(
    scorer: Scorer, candidates: Tensor | None, facts: Facts, slot: str, size: int, budget: int
) -> Iterator[tuple[slice, Tensor]]:
    """Yield (block, scores) for consecutive blocks of facts: scores (n, N).

    Scores are queries (B, d) @ candidates (N, d).T, or `score_against` where candidates is None.
    """
    itemsize = 8 if candidates is None else candidates.itemsize  # the widest dtype where the scorer's is not known yet
    rows = max(1, budget // (itemsize * size))
    if candidates is not None:
        assert isinstance(scorer, QueryScorer)
        queries = scorer.queries(facts, slot)
    for first in range(0, len(facts), rows):
        block = slice(first, first + rows)
        if candidates is None:
            yield block, scorer.score_against(facts[block], slot)
        elif candidates.is_mkldnn:
            yield block, linear(queries[block].to_mkldnn(), candidates).to_dense()
        else:
            yield block, linear(queries[block], candidates)
