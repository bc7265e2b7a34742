"""What answers about times after the last stored one: forecasts, and stored intervals without an end, which go on."""

from __future__ import annotations

import warnings

from recollect.errors import DataWarning, UserError
from recollect.graph.facts import EpisodicGraph
from recollect.memory.answering.forecasts import Forecaster
from recollect.memory.answering.questions import holds_on


def forecaster_at(forecaster: Forecaster | None, graph: EpisodicGraph, time: int, include: str) -> Forecaster | None:
    """Return what predicts a time after the last; None, with a warning, if there is only what goes on without an end.

    Raise UserError if nothing can answer.
    """
    reach = len(graph.times)
    if forecaster is not None and (time - forecaster.last <= reach or not holds_on(graph)):
        return forecaster
    if not holds_on(graph):
        raise cannot_forecast(graph, time)
    if include != "stored":
        warnings.warn(
            f"time {graph.times.label(time)!r} is after the last, {graph.times.label(reach - 1)}, and farther than "
            "this memory can forecast; only stored intervals without an end are answers",
            DataWarning,
            stacklevel=2,
        )
    return None


def cannot_forecast(graph: EpisodicGraph, time: int) -> UserError:
    """Return the error for a time after the last that nothing answers about."""
    times = graph.times
    return UserError(
        f"time {times.label(time)!r} is after the last, {times.label(len(times) - 1)}, and this memory cannot "
        "forecast; train it again, with history"
    )
