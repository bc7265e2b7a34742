"""Rank true facts among all candidates of a slot, raw and filtered, in bounded memory.

rank = 1 + #greater + ½ #ties among the other candidates. The score of the true candidate is read from the same matrix
as the scores of the others. The filter subtracts the known candidates from these counts, so there is no loop over
queries.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from recollect.engine import one_thread, parallel_for, rank_counts
from recollect.errors import UserError
from recollect.graph.fact_index import FactIndex
from recollect.graph.facts import SLOT_NAMES, Facts, check_ids, stable_sort

TIES = {"realistic": 0.5, "optimistic": 0.0, "pessimistic": 1.0}  # tie policy -> share of ties that count as greater
SCORE_BYTES = 4 * 2**20  # scores per thread: large enough for a fast GEMM, small enough to stay in cache for counting
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
    that each thread holds at a time.
    """
    check_ids(slot, facts.column(slot), known.size(slot))
    # facts that differ only in the slot become neighbours, and so do those of one time and predicate: they share work
    _, order = stable_sort(known.keys(facts, slot))
    ordered = facts[order]
    counts = torch.empty(len(facts), 6, dtype=torch.int64)
    candidates = scorer.candidates(slot) if isinstance(scorer, QueryScorer) else None
    columns = None if candidates is None else candidates.T.contiguous()
    known.codes(slot)  # sorted here, once, not by every thread

    def count_range(start: int, stop: int) -> None:
        for first in range(start, stop, QUERY_FACTS):
            part = ordered[first : min(first + QUERY_FACTS, stop)]
            own, (rows, ids) = part.column(slot), _known_others(part, slot, known)
            for start_row, scores in _score_blocks(scorer, columns, part, slot, known.size(slot), budget):
                block = slice(start_row, start_row + len(scores))
                a, b = torch.searchsorted(rows, torch.tensor([block.start, block.stop])).tolist()
                found = _count(scores, own[block], rows[a:b] - start_row, ids[a:b], slot)
                counts[order[first + block.start : first + block.stop]] = found

    if isinstance(scorer, QueryScorer):
        work = len(facts) * (MATRIX_WORK * known.size(slot) if columns is None else columns.numel())
        with one_thread():
            parallel_for(count_range, len(facts), work)
    else:
        count_range(0, len(facts))
    greater, ties, others, *filtered = counts.unbind(dim=1)
    return {"raw": Ranking(greater, ties, others), "filtered": Ranking(*filtered)}


def _score_blocks(
    scorer: Scorer, columns: Tensor | None, facts: Facts, slot: str, size: int, budget: int
) -> Iterator[tuple[int, Tensor]]:
    """Yield (start, scores) for consecutive blocks of facts: scores (n, N), which the next block may overwrite.

    Scores are queries (B, d) @ columns (d, N), or `score_against` where columns is None.
    """
    itemsize = 8 if columns is None else columns.itemsize  # the widest dtype where the scorer's is not known yet
    rows = max(1, budget // (itemsize * size))
    if columns is not None:
        assert isinstance(scorer, QueryScorer)
        queries = scorer.queries(facts, slot)
        buffer = columns.new_empty(min(rows, len(facts)), size)
    for first in range(0, len(facts), rows):
        block = slice(first, first + rows)
        if columns is None:
            yield first, scorer.score_against(facts[block], slot)
        else:
            yield first, torch.mm(queries[block], columns, out=buffer[: len(queries[block])])


def _known_others(facts: Facts, slot: str, known: FactIndex) -> tuple[Tensor, Tensor]:
    """Return (row, id) pairs, sorted by row: fact `row` with `slot` set to an `id` other than its own is known."""
    rows, ids = known.find(facts, slot)
    is_other = ids != facts.column(slot)[rows]
    return rows[is_other], ids[is_other]


def _count(scores: Tensor, own: Tensor, rows: Tensor, ids: Tensor, slot: str) -> Tensor:
    """Return greater, ties, others among all candidates, then the same without known ones: (B, N) -> (B, 6).

    `own` (B,) are the true ids, (rows, ids) the known ones that the filter leaves out.
    """
    target = scores.gather(1, own.to(scores.device)[:, None])[:, 0]
    greater, equal, nan = (count.cpu() for count in rank_counts(scores, target))
    if nan.any():
        raise UserError(
            f"the model scores some {SLOT_NAMES[slot]} as NaN, so nothing can be ranked; "
            "train again with a lower learning rate"
        )
    raw = torch.stack([greater, equal - 1, torch.full_like(greater, scores.shape[1] - 1)], dim=1)
    known_scores = scores[rows.to(scores.device), ids.to(scores.device)].cpu()
    known_target = target.cpu()[rows]
    compared = torch.stack([known_scores > known_target, known_scores == known_target, torch.ones_like(rows).bool()])
    removed = torch.zeros_like(raw).index_add_(0, rows, compared.T.long())
    return torch.cat([raw, raw - removed], dim=1)
