"""Cache the semantic models that an episodic memory projects to."""

from __future__ import annotations

from collections.abc import Callable

from recollect.evaluation.calibration import Calibration, fit_platt
from recollect.graph.episodes import ends, starts
from recollect.graph.facts import EpisodicGraph, Facts
from recollect.graph.seeds import seeded
from recollect.memory.projection import Projection, project, sample_state
from recollect.models.tensor_model import TensorModel


class SemanticStates:
    """The state of a graph as of any time: a semantic model and its calibration, computed when first needed."""

    def __init__(self, model: TensorModel, graph: EpisodicGraph) -> None:
        self.model, self.graph = model, graph
        self._projection: Projection | None = None
        self._states: dict[int, tuple[TensorModel, Calibration]] = {}  # by time

    def at(self, time: int, progress: Callable[[float], None] | None = None) -> tuple[TensorModel, Calibration]:
        """Return the semantic model as of a time and the calibration of its scores.

        The first call solves for the time rows of all starts and ends; `progress` is called with the share done.
        """
        if self._projection is None:
            training = self.graph.with_splits({"train": self.graph.split("train")})
            self._projection = project(self.model, starts(training), ends(training), progress=progress)
        if time not in self._states:
            model = self._projection.at(time)
            seen = [self.graph.splits[name].true() for name in ("train", "valid") if name in self.graph.splits]
            fit = fit_platt(sample_state(model, Facts.concat(seen), time, generator=seeded(0)))
            self._states[time] = model, Calibration(dict.fromkeys("spo", fit))
        return self._states[time]
