"""Find the best candidates of questions, stored ones first, and present them as tables."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl
import torch
from torch import Tensor

from recollect.engine import one_thread, parallel_for
from recollect.errors import UserError
from recollect.evaluation.calibration import Calibration
from recollect.evaluation.ranking import Scorer
from recollect.graph.fact_index import FactIndex
from recollect.graph.facts import KINDS, SLOTS, Facts
from recollect.models.tensor_model import TensorModel

BLOCK_BYTES = 32 * 2**20  # scores of a block of questions, and what is computed from them, per thread
CANDIDATE_BYTES = 64  # per candidate: score, logit, probability, sorted scores and their indices
WORK = 64  # multiply-adds per candidate: a guess, about those of a dim of 64
INCLUDE = ("all", "stored", "predicted")


@dataclass(frozen=True)
class Answers:
    """m answers to some questions: (m,) each, the best answer of each question first."""

    query: Tensor  # the number of the question
    facts: Facts  # the question with its open slot filled in
    scores: Tensor  # float64
    probabilities: Tensor  # float64
    stored: Tensor  # bool

    @classmethod
    def concat(cls, parts: Iterable[Answers]) -> Answers:
        """Return all answers in the order of their questions."""
        parts = list(parts)
        query, order = torch.cat([part.query for part in parts]).sort(stable=True)
        facts = Facts.concat([part.facts for part in parts])[order]
        columns = (
            torch.cat([getattr(part, name) for part in parts])[order] for name in ("scores", "probabilities", "stored")
        )
        return cls(query, facts, *columns)


NO_ANSWERS = Answers(
    torch.empty(0, dtype=torch.int64),
    Facts.of([]),
    torch.empty(0, dtype=torch.float64),
    torch.empty(0, dtype=torch.float64),
    torch.empty(0, dtype=torch.bool),
)


def check_include(include: str) -> None:
    """Raise UserError for an unknown choice of answers."""
    if include not in INCLUDE:
        raise UserError(f"cannot include {include!r}; choose one of {', '.join(INCLUDE)}")


@torch.no_grad()
def best_answers(
    scorer: Scorer,
    calibration: Calibration,
    stored: FactIndex,
    questions: Facts,
    slot: str,
    top: int,
    include: str,
) -> Answers:
    """Return at most `top` answers of each question: stored ones, the newest first, then predicted ones by score.

    Of equal scores the lower id comes first. `stored` finds the stored answers.
    """
    size = stored.size(slot)
    rows_per_block = max(1, BLOCK_BYTES // (CANDIDATE_BYTES * size))
    parts: dict[int, Answers] = {}

    def answer(start: int, stop: int) -> None:
        for first in range(start, stop, rows_per_block):
            block = questions[first : min(first + rows_per_block, stop)]
            scores = scorer.score_against(block, slot).cpu().double()
            check_scores(scores)
            is_stored = stored.mask(block, slot)
            probabilities = calibration.answer_probabilities(scores, is_stored, slot)
            order = _order(scores, is_stored, slot, include)[:, : max(0, top)]
            flags = is_stored.gather(1, order)
            kept = flags if include == "stored" else ~flags if include == "predicted" else torch.ones_like(flags)
            row, _ = kept.nonzero(as_tuple=True)
            ids = order[kept]
            parts[first] = Answers(
                first + row, block[row].with_slot(slot, ids), scores[row, ids], probabilities[row, ids], flags[kept]
            )

    with one_thread():
        parallel_for(answer, len(questions), len(questions) * size * WORK)
    return Answers.concat([NO_ANSWERS, *(parts[first] for first in sorted(parts))])


@torch.no_grad()
def own_answers(scorer: Scorer, calibration: Calibration, stored: FactIndex, facts: Facts, slot: str) -> Tensor:
    """Return score, probability and status (1 for stored) of each fact's own id of a slot: (3, B) float64."""
    own = facts.column(slot)[:, None]
    scores = scorer.score_against(facts, slot).cpu().double()
    check_scores(scores)
    is_stored = stored.mask(facts, slot)
    probabilities = calibration.answer_probabilities(scores, is_stored, slot)
    return torch.stack([each.gather(1, own)[:, 0] for each in (scores, probabilities, is_stored.double())])


def _order(scores: Tensor, stored: Tensor, slot: str, include: str) -> Tensor:
    """Return candidates by status, then score, or for stored times the latest first: (B, N) ids."""
    newest_first = torch.arange(scores.shape[1], dtype=scores.dtype).expand_as(scores)
    ranked = torch.where(stored, newest_first, scores) if slot == "t" else scores
    by_score = ranked.argsort(dim=1, descending=True, stable=True)
    status = stored.gather(1, by_score)
    return by_score.gather(1, status.int().argsort(dim=1, descending=include != "predicted", stable=True))


@torch.no_grad()
def best_triples(model: TensorModel, given: Mapping[str, int], top: int) -> tuple[Facts, Tensor]:
    """Return the `top` triples with the highest scores among those with the given ids, the best first, and the scores.

    The largest open slot is scored by one product per query; the queries are all combinations of the other slots.
    """
    sizes = {slot: model.sizes[KINDS[slot]] for slot in "spo" if slot not in given}
    top = min(max(0, top), math.prod(sizes.values()))
    if not sizes:
        fact = Facts.of([[given.get(slot, 0) for slot in SLOTS]])
        return fact[:top], model.score(fact)[:top].cpu()
    ranked = max(sizes, key=lambda slot: sizes[slot])
    size = sizes.pop(ranked)
    shape = [*sizes.values(), size]  # cells are numbered in the order of `sizes`, then of the ranked slot

    def facts(cells: Tensor) -> Facts:
        """Return the facts of cell numbers: (n,) -> n facts."""
        ids = dict(zip([*sizes, ranked], torch.unravel_index(cells, shape), strict=True))
        return Facts.from_columns(*(ids.get(slot, torch.full_like(cells, given.get(slot, 0))) for slot in SLOTS))

    best, scores = torch.empty(0, dtype=torch.int64), torch.empty(0, dtype=model.dtype)
    cells_per_block = size * max(1, BLOCK_BYTES // (CANDIDATE_BYTES * size))
    for start in range(0, math.prod(shape), cells_per_block):
        cells = torch.arange(start, min(start + cells_per_block, math.prod(shape)))
        found = model.score_against(facts(cells[::size]), ranked).cpu().flatten()
        check_scores(found)
        # the best so far come first: of equal scores the lower ids stay, whatever the blocks
        merged = torch.cat([scores, found])
        order = merged.argsort(descending=True, stable=True)[:top]
        best, scores = torch.cat([best, cells])[order], merged[order]
    return facts(best), scores


def answer_table(
    labels: Mapping[str, list[Any]], scores: Tensor, probabilities: Tensor, stored: Tensor
) -> pl.DataFrame:
    """Return columns of labels, then score (null for NaN), probability and status, even if there is no answer."""
    status = ["stored" if known else "predicted" for known in stored.tolist()]
    numbers = [None if math.isnan(score) else score for score in scores.tolist()]
    schema = {name: pl.Int64 if name == "query" else pl.String for name in labels}
    return pl.DataFrame(
        {**labels, "score": numbers, "probability": probabilities.tolist(), "status": status},
        schema=schema | {"score": pl.Float64, "probability": pl.Float64, "status": pl.String},
    )


def check_scores(scores: Tensor) -> None:
    """Raise UserError if a score is NaN."""
    if scores.isnan().any():
        raise UserError("this memory scores some answers as NaN; train it again with a lower learning rate")
