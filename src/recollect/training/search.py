"""Settings found on the validation split: many short runs, the promising ones longer, all kept in one file.

Optuna proposes settings around a recipe (`recollect[search]`); a run that falls behind the others at the same epoch
is given up. The graph that is searched on has no test split, so that nothing here can look at it.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from recollect.errors import UserError
from recollect.graph.facts import EpisodicGraph
from recollect.io.atomic import write_text
from recollect.io.plots import bars
from recollect.models.config import ModelConfig
from recollect.models.zoo import parse_model
from recollect.training.recipe import Recipe
from recollect.training.run import TrainingRun
from recollect.training.trainer import Epoch

STUDY, FOUND, FIGURE = "study.db", "search.json", "importance.png"
# from, to and whether on a log scale; a recipe's own value is the first that is tried
SPACE: dict[str, tuple[float, float, bool]] = {
    "learning_rate": (0.01, 0.5, True),
    "penalty": (1e-4, 1e-1, True),
    "smoothness": (1e-2, 1e3, True),
    "dropout": (0.0, 0.6, False),
    "label_smoothing": (0.0, 0.3, False),
    "time_rate": (0.02, 2.0, True),
}


@dataclass(frozen=True)
class Search:
    """What is searched, and where the study is kept: the same call goes on with it."""

    graph: EpisodicGraph
    model: str
    dim: dict[str, int]
    recipe: Recipe
    folder: Path
    form: str = "episodic"
    seed: int = 0

    def config(self, recipe: Recipe) -> ModelConfig:
        """Return the model of a trial."""
        static = self.form == "both"
        return ModelConfig(
            model=self.model,
            dim=self.dim["entity"],
            predicate_dim=self.dim["predicate"],
            time_dim=self.dim["time"],
            form="episodic" if static else self.form,
            static=static,
            reciprocal=recipe.reciprocal,
            time_levels=(1,) if self.form == "semantic" else recipe.levels,
        )

    def __post_init__(self) -> None:
        if not len(self.graph.splits.get("valid", ())):
            raise UserError(
                f"{self.graph.name} has no valid split to choose by; split it first, or give --split random"
            )
        known = {name: self.graph.splits[name] for name in ("train", "valid")}
        object.__setattr__(self, "graph", self.graph.with_splits(known))

    def run(
        self, minutes: float, tell: Callable[[str, float], None] | None = None, *, runs: int | None = None
    ) -> dict[str, Any]:
        """Try settings until the time is over, or so many; writes and returns what was found."""
        if not (math.isfinite(minutes) and minutes > 0):
            raise UserError(f"a budget is a number of minutes above 0; got {minutes}")
        optuna = find_optuna()
        self._learning(self.recipe)  # what cannot be built is told at once
        study = self._study(optuna)
        end, trials = time.monotonic() + 60 * minutes, list(_trials(study))
        count, best = len(trials), max((trial["valid_mrr"] for trial in trials), default=0.0)
        try:
            while time.monotonic() < end and (runs is None or count < len(trials) + runs):
                count += 1
                doing = f"run {count}" + (f", best valid MRR {best:.3f}" if best else "")

                def told(doing: str = doing) -> None:
                    if tell is not None:
                        tell(doing, min(1.0, 1 - (end - time.monotonic()) / 60 / minutes))

                trial = study.ask()
                try:
                    value = self._try(trial, self._suggest(trial), end, told)
                except UserError:  # it diverged, or the time was over before a validation
                    study.tell(trial, state=optuna.trial.TrialState.FAIL)
                    continue
                study.tell(trial, value)  # of one that was cut short too: it was behind
                best = max(best, value)
        except KeyboardInterrupt:
            if list(_trials(study)):
                self._write(optuna, study)
            raise
        return self._write(optuna, study)

    def _learning(self, recipe: Recipe) -> TrainingRun:
        return TrainingRun(self.graph, self.config(recipe), recipe=recipe, seed=self.seed)

    def _study(self, optuna: Any) -> Any:
        """The study in the folder, made if there is none; what it was made for is what it goes on with."""
        self.folder.mkdir(parents=True, exist_ok=True)
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        study = optuna.create_study(
            storage=f"sqlite:///{self.folder / STUDY}",
            study_name="recollect",
            direction="maximize",
            load_if_exists=True,
            sampler=optuna.samplers.TPESampler(seed=self.seed, n_startup_trials=8),
            pruner=optuna.pruners.SuccessiveHalvingPruner(reduction_factor=3),
        )
        about = self._about()
        if study.user_attrs.get("about", about) != about:
            raise UserError(f"{self.folder} holds a search for other data, model, dims or recipe; choose another --out")
        study.set_user_attr("about", about)
        for trial in study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.RUNNING,)):
            study.tell(trial.number, state=optuna.trial.TrialState.FAIL)  # cut off; nothing runs here now
        earlier = study.get_trials(deepcopy=False)
        waiting = any(trial.state == optuna.trial.TrialState.WAITING for trial in earlier)
        if not waiting and not list(_trials(study)):
            study.enqueue_trial({name: getattr(self.recipe, name) for name in self._space()})
        if earlier:  # another stretch must not propose what the last one did
            study.sampler.reseed_rng()
        return study

    def _space(self) -> dict[str, tuple[float, float, bool]]:
        """The settings that matter to this model: a recipe leaves what it does not use at 0."""
        space, order = {}, parse_model(self.model).episodic.order("t")
        unused = {0: ("smoothness", "time_rate"), 1: ("time_rate",)}.get(order, ())
        for name, (low, high, log) in SPACE.items():
            value = getattr(self.recipe, name)
            if value and name not in unused:
                space[name] = (min(low, value), max(high, value), log)
        return space

    def _suggest(self, trial: Any) -> dict[str, Any]:
        return {name: trial.suggest_float(name, low, high, log=log) for name, (low, high, log) in self._space().items()}

    def _try(self, trial: Any, settings: dict[str, Any], end: float, tell: Callable[[], None]) -> float:
        """The best validation MRR of one run, which the others, or the end of time, may cut short."""
        recipe = replace(self.recipe, **settings)
        learning = self._learning(recipe)
        stopped = "done"
        for record in learning:
            tell()
            if isinstance(record, Epoch) and record.mrr is not None:
                trial.report(record.mrr, record.epoch)
                if trial.should_prune():
                    stopped = "behind"
                    break
            if time.monotonic() > end:
                stopped = "time"
                break
        trial.set_user_attr("stopped", stopped)
        trial.set_user_attr("epochs", learning.training.epoch)
        trial.set_user_attr("best_epoch", learning.training.best_epoch)
        if learning.training.best_mrr is None:
            raise UserError("the time was over before the first validation")
        return learning.training.best_mrr

    def _about(self) -> dict[str, Any]:
        return {
            "data": self.graph.fingerprint,
            "model": self.model,
            "form": self.form,
            "ranks": self.dim,
            "recipe": self.recipe.told(),
            "seed": self.seed,
        }

    def _write(self, optuna: Any, study: Any) -> dict[str, Any]:
        trials = list(_trials(study))
        if not trials:
            raise UserError(
                "not one run came to a validation in that time; give a larger --budget, or validate more often"
            )
        best = max(trials, key=lambda trial: trial["valid_mrr"])
        found = {
            **self._about(),
            "name": self.graph.name,
            "best": best,
            "recipe": replace(self.recipe, **best["settings"]).told(),
            "importance": _importance(optuna, study),
            "trials": trials,
        }
        write_text(self.folder / FOUND, json.dumps(found, indent=1) + "\n")
        if found["importance"]:
            bars(found["importance"], "What settings matter to validation MRR", "importance", self.folder / FIGURE)
        return found


def _trials(study: Any) -> Iterator[dict[str, Any]]:
    for trial in study.get_trials(deepcopy=False):
        if trial.value is not None:
            told = {name: trial.user_attrs[name] for name in ("epochs", "best_epoch", "stopped")}
            yield {"trial": trial.number, "valid_mrr": trial.value, **told, "settings": trial.params}


def _importance(optuna: Any, study: Any) -> dict[str, float]:
    """How much of the differences between runs each setting explains; nothing where there are too few of them."""
    values = {trial.value for trial in study.get_trials(deepcopy=False) if trial.value is not None}
    if len(values) < 4:
        return {}
    evaluator = optuna.importance.PedAnovaImportanceEvaluator()
    try:
        return dict(optuna.importance.get_param_importances(study, evaluator=evaluator))
    except (ValueError, RuntimeError):
        return {}


def find_optuna() -> Any:
    try:
        import optuna
    except ImportError as error:
        raise UserError("search needs optuna, which is not installed; pip install 'recollect[search]'") from error
    return optuna
