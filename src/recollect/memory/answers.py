"""Find the best candidates of questions, and present them as tables."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl
import torch
from torch import Tensor

from recollect.engine import one_thread, parallel_for
from recollect.errors import UserError
from recollect.evaluation.calibration import Calibration
from recollect.graph.facts import KINDS, SLOTS, Facts
from recollect.models.tensor_model import TensorModel

BLOCK_BYTES = 32 * 2**20  # scores of a block of questions, and what is computed from them, per thread
CANDIDATE_BYTES = 32  # per candidate: score, probability, sorted score and its index


@dataclass(frozen=True)
class Best:
    """The best candidates of some questions, the best first: (n, k) each."""

    ids: Tensor
    scores: Tensor
    probabilities: Tensor  # float64


@torch.no_grad()
def best_candidates(model: TensorModel, calibration: Calibration, questions: Facts, slot: str, top: int) -> Best:
    """Return the `top` candidates of a slot with the highest scores; of equal scores the lower id comes first."""
    size = model.sizes[KINDS[slot]]
    count = min(max(0, top), size)
    ids = torch.empty(len(questions), count, dtype=torch.int64)
    scores = torch.empty(len(questions), count, dtype=model.dtype)
    probabilities = torch.empty(len(questions), count, dtype=torch.float64)
    rows_per_block = max(1, BLOCK_BYTES // (CANDIDATE_BYTES * size))

    def answer(start: int, stop: int) -> None:
        for first in range(start, stop, rows_per_block):
            block = slice(first, min(first + rows_per_block, stop))
            found = model.score_against(questions[block], slot).cpu()
            check_scores(found)
            # before selection: the last bit of a vectorised σ may depend on the length of the vector
            likely = calibration.probability(found, slot)
            best = found.argsort(dim=1, descending=True, stable=True)[:, :count]
            ids[block] = best
            scores[block] = found.gather(1, best)
            probabilities[block] = likely.gather(1, best)

    with one_thread():
        parallel_for(answer, len(questions), len(questions) * size * model.config.dim)
    return Best(ids, scores, probabilities)


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
    """Return columns of labels, then score, probability and status; the same columns where there is no answer."""
    status = ["stored" if known else "predicted" for known in stored.tolist()]
    schema = {name: pl.Int64 if name == "query" else pl.String for name in labels}
    return pl.DataFrame(
        {**labels, "score": scores.double().tolist(), "probability": probabilities.tolist(), "status": status},
        schema=schema | {"score": pl.Float64, "probability": pl.Float64, "status": pl.String},
    )


def check_scores(scores: Tensor) -> None:
    """Raise UserError if a score is NaN."""
    if scores.isnan().any():
        raise UserError("this memory scores some answers as NaN; train it again with a lower learning rate")
