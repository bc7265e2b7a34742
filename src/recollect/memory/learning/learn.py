"""Learn a memory from a graph: train its models, fit the history of its facts, fit their weights, calibrate.

A graph with a validation split chooses epochs, weights and calibration by it. Any other is learned whole: some facts
are held out for these choices first (`folds`), then models and history learn all facts.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, replace
from itertools import repeat
from pathlib import Path
from typing import Any

from recollect.engine import one_thread
from recollect.errors import UserError
from recollect.evaluation.calibration import Calibration
from recollect.evaluation.intervals import IntervalPredictor
from recollect.graph.facts import EpisodicGraph
from recollect.graph.runs import stored
from recollect.history.cells import CellRates
from recollect.history.history import History
from recollect.memory.answering.forecasts import Forecaster, fit_forecaster
from recollect.memory.answering.held_out import HeldOut
from recollect.memory.answering.intervals import fit_predictor
from recollect.memory.answering.scorer import MemoryScorer
from recollect.memory.learning.fitting import Fold, calibration_of, fit_fold
from recollect.memory.learning.folds import has_validation, held_out_folds
from recollect.memory.learning.model_growth import GrownModels
from recollect.memory.learning.progress import ProgressBar
from recollect.models.config import ModelConfig
from recollect.models.tensor_model import TensorModel
from recollect.training.auto import HISTORY, SEED_STEP, resolve_configs
from recollect.training.callbacks import Callback
from recollect.training.distributed.processes import ALONE, Processes
from recollect.training.distributed.run import DistributedRun
from recollect.training.recipe import Recipe, parse_recipe
from recollect.training.run import TrainingRun, fits_only_mapped, parse_device

REFIT_FACTS = 20_000  # a history of more facts is fitted once, without the few held-out ones, which are then stored too
INTERVAL_TIMES = 4096  # thresholds of predicted intervals are fitted, time by time, on axes of at most so many times

Progress = Callable[[float], None]
ShowProgress = Callable[[], AbstractContextManager[Progress]]


def not_shown() -> AbstractContextManager[Progress]:
    """Show no progress."""
    return nullcontext(lambda share: None)


@dataclass(frozen=True, eq=False)
class Learned:
    """What a memory is made from."""

    scorer: MemoryScorer
    graph: EpisodicGraph
    calibration: Calibration
    about: Mapping[str, Any]
    forecaster: Forecaster | None = None  # of a memory with history
    intervals: IntervalPredictor | None = None  # of a graph of intervals
    models: GrownModels | None = None  # of a memory that grew since they were trained; not saved


class Learning:
    """Learn a graph: train each of `runs` to its end, then take the `result`.

    The models of a sum are trained one after another, each with a seed of its own. What is learned whole is trained
    twice: without the held-out facts to find the number of epochs, then with all facts for as many.
    """

    def __init__(
        self,
        graph: EpisodicGraph,
        *,
        model: str = "auto",
        recipe: Recipe | str = "modern",
        history: bool = True,
        seed: int = 0,
        device: str = "cpu",
        stored: Sequence[ModelConfig] = (),
        show: ShowProgress = not_shown,
        tables: Path | None = None,
        processes: Processes = ALONE,
        shard: bool = False,
        **options: Any,
    ) -> None:
        """`options` and `stored` are those of `resolve_configs`; `show` shows the share of the history that is fitted.

        The model "auto" keeps its model only if it adds something to the history. `tables` is that of `TrainingRun`.
        Several `processes` train together; with `shard`, none of them holds all rows of entities and predicates. The
        first process has the result.
        """
        if shard and processes.count == 1:
            raise UserError("one process alone holds all rows; to shard them, start several with torchrun")
        self.tables, self.processes, self.shard = tables, processes, shard
        self.graph, self.seed, self.device, self.show = graph, seed, parse_device(device), show
        self.recipe = recipe if isinstance(recipe, Recipe) else parse_recipe(recipe)
        self.is_auto = model.lower() == "auto"
        self.configs, self.reason = resolve_configs(
            graph, self.recipe, model=model, history=history, stored=stored, **options
        )
        self.recipes = [self.recipe] * len(self.configs)
        self.with_history = history and all(config.form == "episodic" for config in self.configs)
        self.is_whole = not has_validation(graph)
        self.note = ""  # why a model that was trained is not used
        self.finished: list[TrainingRun] = []
        self._choice: Choice | None = None
        self._valid_mrr: list[float | None] = []  # of each model, on held-out facts

    def runs(self) -> Iterator[TrainingRun]:
        """Yield the training runs in order. Iterate each to its end before the next is asked for."""
        if not self.configs:
            return
        fold = self._fold()
        self.finished = yield from self._train(fold, self.recipes)
        models, reports = _results(self.finished)
        self._valid_mrr = [report["training"]["valid_mrr"] for report in reports]
        self.note = self.processes.by_first(lambda: self._choose(models, fold))
        if not self.note and fold is not self.graph:
            recipes = [
                replace(run.recipe, epochs=report["training"]["best_epoch"])
                for run, report in zip(self.finished, reports, strict=True)
            ]
            self.finished, models = [], ()  # their tables are needed no more
            self.finished = yield from self._train(self.graph, recipes)

    def _choose(self, models: tuple[TensorModel, ...], fold: EpisodicGraph) -> str:
        """Fit weights and calibration; return why models are left out, or nothing if they are not."""
        self._choice = choose(
            models, fold, history=self.with_history, seed=self.seed, show=self.show, is_fold=fold is not self.graph
        )
        if self.is_auto and self.with_history and self._choice.fold is not None and not self._choice.fold.is_gain:
            return _no_gain(models, self._choice.fold)
        return ""

    def _fold(self) -> EpisodicGraph:
        """Return the graph whose valid split chooses epochs, weights and calibration."""
        return next(held_out_folds(self.graph, self.seed), self.graph) if self.is_whole else self.graph

    def _train(
        self, graph: EpisodicGraph, recipes: Sequence[Recipe]
    ) -> Generator[TrainingRun, None, list[TrainingRun]]:
        """Yield one run for each model; return them."""
        finished = []
        for number, recipe in enumerate(recipes):
            run = self._run(graph, number, recipe)
            yield run
            run.trainer.finish_()
            finished.append(run)
        return finished

    def _run(self, graph: EpisodicGraph, number: int, recipe: Recipe) -> TrainingRun:
        """Return the training run of one model, with a seed of its own."""
        seed = self.seed + SEED_STEP * number
        config = self.configs[number]
        options: dict[str, Any] = {"recipe": recipe, "seed": seed, "device": self.device, "tables": self.tables}
        if self.processes.count == 1:
            return TrainingRun(graph, config, **options)
        return DistributedRun(graph, config, processes=self.processes, shard=self.shard, **options)

    @property
    def fits_only_mapped(self) -> bool:
        """Whether some model can be trained only with its tables in memory-mapped files."""
        if self.processes.count > 1:
            return False  # several processes shard tables instead
        recipes = [self.recipe.for_model(config.model) for config in self.configs]
        return any(map(fits_only_mapped, self.configs, repeat(self.graph.sizes), recipes))

    def result(self) -> Learned:
        """Return what was learned, after the last run."""
        if self._choice is None or self.note:
            return learn_history(self.graph, seed=self.seed, show=self.show)
        models, reports = _results(self.finished)
        for report, mrr in zip(reports, self._valid_mrr, strict=True):
            report["training"]["valid_mrr"] = mrr
        choice = self._choice
        if self.is_whole:
            with self.show() as progress:
                choice = choice.with_all_facts(self.graph, self.seed, progress)
        return choice.learned(models, self.graph, _about(reports, self.seed), seed=self.seed, show=self.show)


@dataclass(frozen=True, eq=False)
class Choice:
    """What held-out facts chose: weights and calibration of the scores of models and of the history of all others."""

    history: History | None
    cells: CellRates | None
    weights: Mapping[str, tuple[float, ...]]
    calibration: Calibration
    fold: Fold | None = None
    intervals: IntervalPredictor | None = None

    def learned(
        self,
        models: tuple[TensorModel, ...],
        graph: EpisodicGraph,
        about: Mapping[str, Any],
        *,
        seed: int,
        show: ShowProgress = not_shown,
    ) -> Learned:
        """Return a memory of these models; with a history, it forecasts too."""
        scorer = MemoryScorer(models, self.history, self.weights, self.cells)
        forecaster = None
        if self.history is not None:
            with show() as progress:
                forecaster = fit_forecaster(self.history, graph, seed=seed, progress=progress)
        return Learned(scorer, graph, self.calibration, about, forecaster, self.intervals)

    def with_all_facts(self, graph: EpisodicGraph, seed: int, progress: Progress) -> Choice:
        """Return the same with a history of all facts of a graph."""
        if self.history is None or self.cells is None:
            return self
        every = stored(graph, "train")
        if len(every) > REFIT_FACTS:
            history = self.history.with_facts(every)
            return replace(self, history=history, cells=CellRates(history, self.cells.kernel))
        history = History.fit(every, graph.sizes, seed=seed, progress=progress)
        return replace(self, history=history, cells=CellRates.fit(history, seed=seed))


def choose(
    models: tuple[TensorModel, ...],
    graph: EpisodicGraph,
    *,
    history: bool,
    seed: int,
    show: ShowProgress = not_shown,
    is_fold: bool = False,
) -> Choice:
    """Fit weights and calibration on the validation split of a graph, never on its test split."""
    held_out = HeldOut.of(graph, is_fold=is_fold)
    fitted = cells = None
    if history:
        with show() as progress:
            fitted = History.fit(stored(graph, "train"), graph.sizes, seed=seed, progress=progress)
        cells = CellRates.fit(fitted, seed=seed)
    scorer = MemoryScorer(models, fitted, {}, cells)
    if not len(held_out.facts):
        return Choice(fitted, cells, {}, calibration_of([], graph, scorer.slots))
    with one_thread():
        fold = fit_fold(scorer, held_out, seed)
        scorer = replace(scorer, weights=fold.weights)
        intervals = None
        if history and len(graph.times) <= INTERVAL_TIMES:
            intervals = fit_predictor(scorer, graph, held_out.stored, seed=seed)
        calibration = calibration_of([fold], graph, scorer.slots)
        return Choice(fitted, cells, fold.weights, calibration, fold, intervals)


def learn_history(graph: EpisodicGraph, *, seed: int = 0, show: ShowProgress = not_shown) -> Learned:
    """Return a memory of history alone: no training, ready in seconds."""
    about = {"model": HISTORY, "seed": seed}
    if has_validation(graph):
        choice = choose((), graph, history=True, seed=seed, show=show)
        return choice.learned((), graph, about, seed=seed, show=show)
    choices = [
        choose((), fold, history=True, seed=seed, show=show, is_fold=True) for fold in held_out_folds(graph, seed)
    ]
    calibration = calibration_of([choice.fold for choice in choices if choice.fold is not None], graph)
    if choices:
        with show() as progress:
            whole = choices[0].with_all_facts(graph, seed, progress)
    else:
        whole = choose((), graph, history=True, seed=seed, show=show)
    return replace(whole, calibration=calibration).learned((), graph, about, seed=seed, show=show)


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


def finish_runs(runs: Sequence[TrainingRun], *, history: bool = True) -> Learned:
    """Return what finished runs of one graph learned; with `history`, and for episodic models, its history too."""
    if not runs:
        raise UserError("a memory is learned from at least one training run; none was given")
    graph = runs[0].graph
    if any(run.graph.fingerprint != graph.fingerprint for run in runs):
        raise UserError("the models of a memory are trained on one graph; these runs have several")
    if len({run.model.config.form for run in runs}) > 1:
        raise UserError("the models of a memory have one form, episodic or semantic; these runs have both")
    models, reports = _results(runs)
    choice = choose(models, graph, history=history and models[0].config.form == "episodic", seed=runs[0].seed)
    return choice.learned(models, graph, _about(reports, runs[0].seed), seed=runs[0].seed)


def _results(runs: Sequence[TrainingRun]) -> tuple[tuple[TensorModel, ...], list[dict[str, Any]]]:
    """Return the models and the reports of finished runs."""
    results = [run.result() for run in runs]
    return tuple(model for model, _ in results), [report for _, report in results]


def _about(reports: Sequence[Mapping[str, Any]], seed: int) -> Mapping[str, Any]:
    return reports[0] if len(reports) == 1 else {"seed": seed, "runs": list(reports)}


def _no_gain(models: Sequence[TensorModel], fold: Fold) -> str:
    """Return the sentence that says why the memory is history alone."""
    names = " + ".join(type(model).__name__ for model in models)
    gain, error = fold.mean_gain
    return (
        f"history alone: {names} changes the MRR of {len(fold.gain):,} held-out answers by {gain:+.3f} ± {error:.3f}, "
        "so it is left out"
    )
