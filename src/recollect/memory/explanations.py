"""Say why: the stored facts that speak for predicted answers, by label, with their shares of the evidence."""

from __future__ import annotations

from typing import Any

import polars as pl
from torch import Tensor

from recollect.errors import UserError
from recollect.graph.facts import SLOT_NAMES, EpisodicGraph
from recollect.history.evidence import Evidence
from recollect.history.history import History
from recollect.memory.answers import Answers
from recollect.memory.forecasts import Forecaster

WHY = pl.List(pl.Struct({**dict.fromkeys(SLOT_NAMES.values(), pl.String), "share": pl.Float64}))
Reasons = list[dict[str, Any]]


def explanations(
    source: History | Forecaster | None, graph: EpisodicGraph, answers: Answers, slot: str, count: int
) -> list[Reasons | None]:
    """Return the `count` stored facts with the largest shares of λ for each predicted answer; None for stored ones.

    Shares are of the history's λ. The model's θ is a sum over latent axes and names no facts.
    """
    if source is None:
        raise UserError("this memory has no history to explain its answers by; learn it with history=True")
    found: list[Reasons | None] = []
    for row, is_stored in enumerate(answers.stored.tolist()):
        if is_stored:
            found.append(None)
            continue
        found.append(reasons(graph, source.evidence(answers.facts[row : row + 1], slot), count))
    return found


def reasons(graph: EpisodicGraph, evidence: Evidence, count: int) -> Reasons:
    """Return the `count` stored facts with the largest shares, by label."""
    facts = graph.table(evidence.facts[:count]).to_dicts()
    shares = evidence.shares[:count].tolist()
    return [fact | {"share": share} for fact, share in zip(facts, shares, strict=True)]


def with_explanations(table: pl.DataFrame, reasons: list[Reasons | None], query: Tensor) -> pl.DataFrame:
    """Return a table of answers, in the order of their questions, with the reasons of answers to `query` (m,)."""
    order = query.argsort(stable=True).tolist()
    return table.with_columns(pl.Series("why", [reasons[row] for row in order], dtype=WHY))
