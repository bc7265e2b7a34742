"""The likeliest facts of the next steps as a table."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from recollect.errors import UserError
from recollect.graph.facts import EpisodicGraph
from recollect.memory.answering.explanations import WHY, reasons
from recollect.memory.answering.forecasts import Forecaster


def forecast_table(
    forecaster: Forecaster, graph: EpisodicGraph, given: Mapping[str, int], horizon: int, top: int, explain: int
) -> pl.DataFrame:
    """Return subject, predicate, object, time, probability, and with `explain` why, of each of the next steps."""
    if not 1 <= horizon <= len(graph.times):
        raise UserError(
            f"cannot forecast {horizon} steps ahead; wanted 1 to {len(graph.times)}, as many as the record has"
        )
    parts = []
    for time in range(forecaster.last + 1, forecaster.last + 1 + horizon):
        found = forecaster.ask(time, given, top)
        table = graph.table(found.facts).with_columns(probability=found.probabilities.numpy())
        if explain:
            cells, asked = forecaster.cells_at(time - forecaster.last), found.facts.with_slot("t", forecaster.last + 1)
            why = [reasons(graph, cells.evidence(fact), explain) for fact in asked.split(1)]
            table = table.with_columns(pl.Series("why", why, dtype=WHY))
        parts.append(table)
    return pl.concat(parts)
