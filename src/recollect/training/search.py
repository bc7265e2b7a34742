"""Search recipe settings on the validation split: many short runs, the promising ones longer, in one study.

Optuna proposes settings around a recipe (`recollect[search]`) and prunes a run that is behind the others at the same
epoch. The graph that is searched on has no test split, so nothing here can read it. The study is in a file, or in any
storage of Optuna that several processes share; a trial whose process died is tried again by another one.
"""

from __future__ import annotations

import json
import math
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from recollect.errors import UserError, import_extra
from recollect.graph.facts import EpisodicGraph
from recollect.io.atomic import explained_errors, locked, write_text
from recollect.io.plots import bars
from recollect.models.config import ModelConfig
from recollect.models.parameters import equations_of
from recollect.models.zoo import parse_model
from recollect.training.recipe import Recipe
from recollect.training.run import TrainingRun
from recollect.training.trainer import Epoch

STUDY, FOUND, FIGURE = "study.db", "search.json", "importance.png"
# option: (lowest, highest, log scale); the recipe's own values are tried first
SPACE: dict[str, tuple[float, float, bool]] = {
    "learning_rate": (0.01, 0.5, True),
    "penalty": (1e-4, 1e-1, True),
    "smoothness": (1e-2, 1e3, True),
    "dropout": (0.0, 0.6, False),
    "label_smoothing": (0.0, 0.3, False),
    "time_rate": (0.02, 2.0, True),
}
HEARTBEAT_SECONDS = 10  # between two signs of life of a trial
GRACE_SECONDS = 60  # without a sign of life, after which a trial is given to another worker
LOCK_SECONDS = 60  # that a worker waits for another one to write the same SQLite file
MIN_IMPORTANCE_VALUES = 4  # distinct results below which importances are not estimated

Progress = Callable[[str, float], None]  # (what is being done, share of the time that has passed)


@dataclass(frozen=True)
class Search:
    """A search for the settings of a recipe; another one in the same folder continues its study.

    With `storage`, workers on any machine share a study: a database as SQLAlchemy writes it (postgresql://…), a Redis
    server (redis://…), or the path of a journal file of Optuna.
    """

    graph: EpisodicGraph
    config: ModelConfig
    recipe: Recipe
    folder: Path
    seed: int = 0
    storage: str | None = None

    def __post_init__(self) -> None:
        if not len(self.graph.splits.get("valid", ())):
            raise UserError(
                f"{self.graph.name} has no valid split to choose by; split it first, or give --split random"
            )
        without_test = {name: self.graph.splits[name] for name in ("train", "valid")}
        object.__setattr__(self, "graph", self.graph.with_splits(without_test))
        object.__setattr__(self, "recipe", self.recipe.for_model(self.config.model))

    def run(self, minutes: float, progress: Progress | None = None, *, runs: int | None = None) -> dict[str, Any]:
        """Try settings until the time is over, or `runs` of them; write and return the result."""
        if not (math.isfinite(minutes) and minutes > 0):
            raise UserError(f"a budget is a number of minutes above 0; got {minutes}")
        optuna = find_optuna()
        self._training_run(self.recipe)  # raise at once what cannot be built
        seconds = 60 * minutes
        with _errors_only(optuna), self._explained_errors(optuna), self._opened_study(optuna) as study:
            start = time.monotonic()  # the study is open: all of the time is for runs

            def train(trial: Any) -> float:
                return self._run_trial(trial, lambda: (time.monotonic() - start) / seconds, progress)

            try:
                # a UserError fails only its trial: it diverged, or the time was over before a validation
                study.optimize(train, n_trials=runs, timeout=seconds, catch=UserError)
            except KeyboardInterrupt:
                if finished_trials(study):
                    self._write(optuna, study)
                raise
            return self._write(optuna, study)

    @contextmanager
    def _explained_errors(self, optuna: Any) -> Iterator[None]:
        """Raise UserError if the study cannot be written."""
        from sqlalchemy.exc import SQLAlchemyError

        place, advice = str(self.folder), "free some space"
        if self.storage is not None:
            place, advice = "the storage of the study", "see that it can be reached"
        advice += "; finished runs are kept: the same command continues the search"
        try:
            with explained_errors(self.folder, advice):
                yield
        except (SQLAlchemyError, optuna.exceptions.StorageInternalError) as error:
            reason = str(error.__cause__ or error).partition("\n")[0]
            raise UserError(f"{place}: cannot be written ({reason}); {advice}") from error

    def _training_run(self, recipe: Recipe) -> TrainingRun:
        return TrainingRun(self.graph, self.config, recipe=recipe, seed=self.seed)

    @contextmanager
    def _opened_study(self, optuna: Any) -> Iterator[Any]:
        """Yield the study in the folder, created if there is none; refuse one of other settings."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with ExitStack() as stack:
            with locked(self.folder / STUDY):  # one worker at a time creates the tables of a new study
                storage = open_storage(optuna, self.storage or f"sqlite:///{self.folder / STUDY}")
                if isinstance(storage, optuna.storages.RDBStorage):
                    stack.callback(storage.engine.dispose)
                    stack.callback(storage.remove_session)
                study = optuna.create_study(
                    storage=storage,
                    study_name="recollect",
                    direction="maximize",
                    load_if_exists=True,
                    pruner=optuna.pruners.SuccessiveHalvingPruner(reduction_factor=3),
                )
                settings = self._settings()
                if study.user_attrs.get("about", settings) != settings:
                    place = self.folder if self.storage is None else "the storage"
                    raise UserError(f"{place} holds a search for other data, model, dims or recipe; choose another one")
                study.set_user_attr("about", settings)
                trials = study.get_trials(deepcopy=False)
                if all(trial.state == optuna.trial.TrialState.FAIL for trial in trials):
                    study.enqueue_trial({name: getattr(self.recipe, name) for name in self.space()})
            # with the same seed, the settings of earlier trials, or of other workers, would be proposed again
            seed = self.seed + len(trials) if self.storage is None else None
            study.sampler = optuna.samplers.TPESampler(
                seed=seed, n_startup_trials=8, constant_liar=self.storage is not None
            )
            yield study

    def space(self) -> dict[str, tuple[float, float, bool]]:
        """Return the options to search: those that this model uses and that the recipe does not set to 0."""
        equation = equations_of(parse_model(self.config.model), self.config)[""]
        time_axes = {"smoothness": 1, "time_rate": 2}  # minimum of axes of a time's row for which the option matters
        space = {}
        for name, (low, high, log) in SPACE.items():
            value = getattr(self.recipe, name)
            if value and equation.order("t") >= time_axes.get(name, 0):
                space[name] = (min(low, value), max(high, value), log)
        return space

    def _run_trial(self, trial: Any, share_passed: Callable[[], float], progress: Progress | None) -> float:
        """Return the best validation MRR of one run, which may be pruned or stopped by the end of time."""
        bounds = self.space()
        settings = {name: trial.suggest_float(name, low, high, log=log) for name, (low, high, log) in bounds.items()}
        run = self._training_run(replace(self.recipe, **settings))
        best = max((each["valid_mrr"] for each in finished_trials(trial.study)), default=0.0)
        label = f"run {trial.number + 1}" + (f", best valid MRR {best:.3f}" if best else "")
        stopped = "done"
        for record in run:
            if progress is not None:
                progress(label, min(1.0, share_passed()))
            if isinstance(record, Epoch) and record.mrr is not None:
                trial.report(record.mrr, record.epoch)
                if trial.should_prune():
                    stopped = "behind"
                    break
            if share_passed() > 1:
                stopped = "time"
                break
        trial.set_user_attr("stopped", stopped)
        trial.set_user_attr("epochs", run.trainer.epoch)
        trial.set_user_attr("best_epoch", run.trainer.best_epoch)
        if run.trainer.best_mrr is None:
            raise UserError("the time was over before the first validation")
        return run.trainer.best_mrr

    def _settings(self) -> dict[str, Any]:
        """Return what every run of a study has in common."""
        return {
            "data": self.graph.fingerprint,
            **self.config.to_dict(),
            "recipe": self.recipe.to_dict(),
            "seed": self.seed,
        }

    def _write(self, optuna: Any, study: Any) -> dict[str, Any]:
        """Write search.json, and a figure of the importances; return the content of search.json."""
        trials = finished_trials(study)
        if not trials:
            raise UserError(
                "not one run came to a validation in that time; give a larger --budget, or validate more often"
            )
        best = max(trials, key=lambda trial: trial["valid_mrr"])
        found = {
            **self._settings(),
            "name": self.graph.name,
            "best": best,
            "recipe": replace(self.recipe, **best["settings"]).to_dict(),
            "importance": _importance(optuna, study),
            "trials": trials,
        }
        write_text(self.folder / FOUND, json.dumps(found, indent=1) + "\n")
        if found["importance"]:
            bars(found["importance"], "What settings matter to validation MRR", "importance", self.folder / FIGURE)
        return found


def open_storage(optuna: Any, address: str) -> Any:
    """Return the Optuna storage of an address; databases notice trials whose worker died, and offer them again."""
    try:
        if address.startswith("redis"):
            return optuna.storages.JournalStorage(optuna.storages.journal.JournalRedisBackend(address))
        if "://" not in address:
            return optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(address))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)  # heartbeats are called that
            return optuna.storages.RDBStorage(
                address,
                engine_kwargs={"connect_args": {"timeout": LOCK_SECONDS}} if address.startswith("sqlite") else None,
                heartbeat_interval=HEARTBEAT_SECONDS,
                grace_period=GRACE_SECONDS,
                heartbeat_stale_trial_callback=optuna.storages.RetryHeartbeatStaleTrialCallback(),
            )
    except ImportError as error:
        reason = str(error.__cause__ or error).partition("\n")[0]
        raise UserError(f"the storage needs a package that is not here ({reason}); install it with pip") from error


@contextmanager
def _errors_only(optuna: Any) -> Iterator[None]:
    """Let Optuna log nothing below errors, and restore its verbosity afterwards."""
    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        yield
    finally:
        optuna.logging.set_verbosity(verbosity)


def finished_trials(study: Any) -> list[dict[str, Any]]:
    """Return the trials of an Optuna study that have a result, as plain dictionaries."""
    trials = []
    for trial in study.get_trials(deepcopy=False):
        if trial.value is None:
            continue
        attributes = {name: trial.user_attrs[name] for name in ("epochs", "best_epoch", "stopped")}
        trials.append({"trial": trial.number, "valid_mrr": trial.value, **attributes, "settings": trial.params})
    return trials


def _importance(optuna: Any, study: Any) -> dict[str, float]:
    """Return how much each option decides about a high MRR (PED-ANOVA), sum 1; empty if there are too few results."""
    values = {trial["valid_mrr"] for trial in finished_trials(study)}
    if len(values) < MIN_IMPORTANCE_VALUES:
        return {}
    evaluator = optuna.importance.PedAnovaImportanceEvaluator()
    return dict(optuna.importance.get_param_importances(study, evaluator=evaluator))


def find_optuna() -> Any:
    """Return the module optuna; raise UserError if it is not installed."""
    return import_extra("optuna", "optuna", needed_by="search", extra="search")
