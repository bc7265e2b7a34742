"""Say why: the stored facts that speak for predicted answers, by label, with their shares of the evidence."""

from __future__ import annotations

from typing import Any

import polars as pl
import torch
from torch import Tensor

from recollect.errors import UserError
from recollect.graph.facts import SLOT_NAMES, EpisodicGraph
from recollect.history.evidence import Evidence
from recollect.history.history import History
from recollect.memory.answering.answers import Answers
from recollect.memory.answering.forecasts import Forecaster
from recollect.memory.answering.scorer import UNFITTED, MemoryScorer

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


@torch.no_grad()
def model_shares(scorer: MemoryScorer, answers: Answers, slot: str) -> list[float | None]:
    """Return the share of each predicted answer's lead that the models give, the history giving the rest; None if none.

    The lead is the score less the mean score of all candidates. A share below 0 or above 1 says that one part speaks
    against the answer.
    """
    if scorer.history is None or not scorer.models:
        return [None] * len(answers.facts)
    queries, rows = answers.query.unique(return_inverse=True)
    first = torch.full_like(queries, len(rows)).scatter_reduce_(0, rows, torch.arange(len(rows)), "amin")
    asked, own = answers.facts[first], answers.facts.column(slot)
    total = scorer.score_against(asked, slot).double()
    weight = scorer.weights.get(slot, UNFITTED)[-1]
    by_history = weight * scorer.history.score_against(asked, slot).double()
    lead, given = ((each[rows, own] - each.mean(dim=1)[rows]).tolist() for each in (total, by_history))
    return [
        None if is_stored or whole <= 0 else 1 - part / whole
        for whole, part, is_stored in zip(lead, given, answers.stored.tolist(), strict=True)
    ]


def with_explanations(
    table: pl.DataFrame, reasons: list[Reasons | None], shares: list[float | None], query: Tensor
) -> pl.DataFrame:
    """Return a table of answers, in the order of their questions, with the reasons of answers to `query` (m,).

    The column `model_share` is there if models have a share.
    """
    order = query.argsort(stable=True).tolist()
    why = pl.Series("why", [reasons[row] for row in order], dtype=WHY)
    share = pl.Series("model_share", [shares[row] for row in order], dtype=pl.Float64)
    return table.with_columns(why) if share.null_count() == len(share) else table.with_columns(share, why)
