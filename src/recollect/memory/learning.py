"""Learn a memory from a graph: train a model, fit the history of its facts, weigh both, calibrate."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

from recollect.engine import one_thread
from recollect.evaluation.calibration import Calibration, calibrate_predicted
from recollect.graph.fact_index import FactIndex
from recollect.graph.facts import EpisodicGraph, Facts
from recollect.graph.seeds import seeded
from recollect.history.cells import CellRates
from recollect.history.history import History
from recollect.memory.forecasts import Forecaster, fit_forecaster
from recollect.memory.knowledge import CELL, fit_cells
from recollect.memory.progress import ProgressBar
from recollect.memory.scorer import MemoryScorer, fit_weights
from recollect.models.tensor_model import TensorModel
from recollect.training.callbacks import Callback
from recollect.training.run import TrainingRun

HISTORY = "history"  # the model name of a memory that has no model


@dataclass(frozen=True, eq=False)
class Learned:
    """What a memory is made from."""

    scorer: MemoryScorer
    graph: EpisodicGraph
    calibration: Calibration
    about: Mapping[str, Any]
    forecaster: Forecaster | None = None  # of a memory with history


def run_training(run: TrainingRun, reason: str, *, progress: bool, callbacks: Iterable[Callback]) -> None:
    """Train to the end; show a bar on standard error with `progress`, and pass every record to the callbacks."""
    receivers = list(callbacks)
    with ExitStack() as stack:
        if progress:
            bar = stack.enter_context(ProgressBar(run))
            if reason:
                bar.progress.console.print(reason, markup=False)
            receivers.append(bar)
        for record in run:
            for receiver in receivers:
                receiver.on_record(record)


def learn_history(
    graph: EpisodicGraph, *, seed: int = 0, progress: Callable[[float], None] = lambda share: None
) -> Learned:
    """Return a memory of history alone: no training, ready in seconds."""
    history = History.fit(graph.split("train"), graph.sizes, seed=seed, progress=progress)
    about = {"model": HISTORY, "seed": seed}
    return _with_history(None, history, graph, about, seed)


def finish_run(run: TrainingRun, *, history: bool = True) -> Learned:
    """Return what a finished run learned; with `history`, and for an episodic model, the history of its facts too."""
    model, calibration, about = run.result()
    if not history or model.config.form == "semantic":
        return Learned(MemoryScorer(model, None, {}), run.graph, calibration, about)
    fitted = History.fit(run.graph.split("train"), run.graph.sizes, seed=run.seed)
    return _with_history(model, fitted, run.graph, about, run.seed)


def _with_history(
    model: TensorModel | None,
    history: History,
    graph: EpisodicGraph,
    about: Mapping[str, Any],
    seed: int,
) -> Learned:
    """Weigh model and history and calibrate their sum on the validation split, never on the test split."""
    cells = CellRates.fit(history, seed=seed)
    forecaster = fit_forecaster(history, graph, seed=seed)
    valid = graph.splits.get("valid", Facts.of([])).true()
    if not len(valid):
        unfitted = Calibration({}, among_predicted=True)
        return Learned(MemoryScorer(model, history, {}, cells), graph, unfitted, about, forecaster)
    train = graph.split("train")
    stored, known = (FactIndex(facts, graph.sizes) for facts in (train, Facts.concat([train, valid])))
    generator = seeded(seed)
    with one_thread():
        weights = {}
        if model is not None:
            weights = fit_weights(model, history, valid, known=known, generator=generator)
        scorer = MemoryScorer(model, history, weights, cells)
        calibration = calibrate_predicted(
            scorer, valid, stored=stored, known=known, slots=scorer.slots, generator=generator
        )
        fits = {**calibration.fits, CELL: fit_cells(cells, stored, valid, generator)}
    return Learned(scorer, graph, replace(calibration, fits=fits), about, forecaster)
