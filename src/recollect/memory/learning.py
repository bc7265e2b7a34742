"""Learn a memory from a graph: train its models, fit the history of its facts, fit their weights, calibrate."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

from recollect.engine import one_thread
from recollect.errors import UserError
from recollect.evaluation.calibration import Calibration
from recollect.graph.facts import EpisodicGraph
from recollect.graph.runs import stored
from recollect.history.cells import CellRates
from recollect.history.history import History
from recollect.memory.fitting import HeldOut, fit_with_history, fit_without_history
from recollect.memory.progress import ProgressBar
from recollect.memory.scorer import MemoryScorer
from recollect.models.config import ModelConfig
from recollect.training.auto import HISTORY, SEED_STEP
from recollect.training.callbacks import Callback
from recollect.training.recipe import Recipe
from recollect.training.run import TrainingRun

Progress = Callable[[float], None]


@dataclass(frozen=True, eq=False)
class Learned:
    """What a memory is made from."""

    scorer: MemoryScorer
    graph: EpisodicGraph
    calibration: Calibration
    about: Mapping[str, Any]


class Learning:
    """Learn a graph: train each of `runs` to its end, then take the `result`.

    The models of a sum are trained one after another, each with a seed of its own.
    """

    def __init__(
        self,
        graph: EpisodicGraph,
        configs: Sequence[ModelConfig],
        *,
        recipe: Recipe | str = "modern",
        history: bool = True,
        seed: int = 0,
        device: str = "cpu",
    ) -> None:
        self.graph, self.configs, self.recipe = graph, tuple(configs), recipe
        self.history, self.seed, self.device = history, seed, device
        self.finished: list[TrainingRun] = []

    def runs(self) -> Iterator[TrainingRun]:
        """Yield the training runs in order. Iterate each to its end before the next is asked for."""
        for number, config in enumerate(self.configs):
            seed = self.seed + SEED_STEP * number
            run = TrainingRun(self.graph, config, recipe=self.recipe, seed=seed, device=self.device)
            yield run
            self.finished.append(run)

    def result(self, progress: Progress = lambda share: None) -> Learned:
        """Return what was learned, after the last run; `progress` receives the share of the history that is fitted."""
        if not self.configs:
            return learn_history(self.graph, seed=self.seed, progress=progress)
        return finish_runs(self.finished, history=self.history, seed=self.seed, progress=progress)


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


def learn_history(graph: EpisodicGraph, *, seed: int = 0, progress: Progress = lambda share: None) -> Learned:
    """Return a memory of history alone: no training, ready in seconds."""
    return _finish((), graph, {"model": HISTORY, "seed": seed}, seed, progress)


def finish_runs(
    runs: Sequence[TrainingRun],
    *,
    history: bool = True,
    seed: int | None = None,
    progress: Progress = lambda share: None,
) -> Learned:
    """Return what finished runs of one graph learned; with `history`, and for episodic models, its history too."""
    if not runs:
        raise UserError("a memory is learned from at least one training run; none was given")
    graph = runs[0].graph
    if any(run.graph.fingerprint != graph.fingerprint for run in runs):
        raise UserError("the models of a memory are trained on one graph; these runs have several")
    if len({run.model.config.form for run in runs}) > 1:
        raise UserError("the models of a memory have one form, episodic or semantic; these runs have both")
    models, reports = zip(*(run.result() for run in runs), strict=True)
    seed = runs[0].seed if seed is None else seed
    about = reports[0] if len(runs) == 1 else {"seed": seed, "runs": list(reports)}
    if history and models[0].config.form == "episodic":
        return _finish(models, graph, about, seed, progress)
    with one_thread():
        weights, calibration = fit_without_history(models, HeldOut.of(graph), seed)
    return Learned(MemoryScorer(models, None, weights), graph, calibration, about)


def _finish(models: Any, graph: EpisodicGraph, about: Mapping[str, Any], seed: int, progress: Progress) -> Learned:
    """Fit the history of a graph, then all weights and the calibration on its validation split, never on its test."""
    history = History.fit(stored(graph, "train"), graph.sizes, seed=seed, progress=progress)
    unfitted = MemoryScorer(models, history, {}, CellRates.fit(history, seed=seed))
    with one_thread():
        weights, calibration = fit_with_history(unfitted, HeldOut.of(graph), seed)
    return Learned(replace(unfitted, weights=weights), graph, calibration, about)
