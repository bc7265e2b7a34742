"""Learn a memory again from where it is: its models start from their tables, and train a few epochs on all facts.

Every fact of the store is trained on, old and new alike. A model that was trained as long as held-out facts allow would
overfit the old ones; so its tables become the mean of those that it started from and those that it reached. What
chooses epochs, weights and calibration must be new to the models: a part of the facts that were stored since they were
trained is held out for it, in a memory that has forgotten them. A few such facts say little; then weights, kernels and
calibration stay, and models keep their smaller weight at new times.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

import polars as pl
import torch

from recollect.graph.fact_index import FactIndex
from recollect.graph.facts import EpisodicGraph, Facts
from recollect.graph.runs import has_runs
from recollect.graph.seeds import seeded
from recollect.memory.journal.changes import REMOVED, SCHEMA, Delta
from recollect.memory.learning.folds import MOST
from recollect.memory.learning.growth import grow
from recollect.memory.learning.learn import Learned, Learning, ShowProgress, not_shown
from recollect.models.tensor_model import TensorModel
from recollect.training.auto import HISTORY, SEED_STEP
from recollect.training.recipe import Recipe
from recollect.training.run import TrainingRun

EPOCHS = 4  # at most, over all facts, at the learning rate of the first training. After 30 days of ICEWS14, who: MRR of
# facts of these days 0.647 and of older ones 0.693; before, 0.645 and 0.693; without the mean, 0.643 and 0.690.
SHARE = 0.25  # of the new facts, that are held out
RELEARNED = "relearned"  # the key of the description of a memory that lists later trainings
ENOUGH = 400  # held-out facts; with fewer, what they would choose stays as it is


def relearn(
    learned: Learned,
    fresh: Facts | None = None,
    *,
    epochs: int = EPOCHS,
    seed: int = 0,
    device: str = "cpu",
    show: ShowProgress = not_shown,
) -> Learned:
    """Return a memory of the same graph that was trained on all its facts, from the tables of `learned` on.

    `fresh` are the facts that its models were not trained on, in the ids of its graph.
    """
    learning = Relearning(learned, fresh, epochs=epochs, seed=seed, device=device, show=show)
    for run in learning.runs():
        for _ in run:
            pass
    return learning.result()


class Relearning(Learning):
    """Learn the graph of a memory again: train each of `runs` to its end, then take the `result`."""

    def __init__(
        self,
        learned: Learned,
        fresh: Facts | None = None,
        *,
        epochs: int = EPOCHS,
        seed: int = 0,
        device: str = "cpu",
        show: ShowProgress = not_shown,
    ) -> None:
        """The arguments are those of `relearn`."""
        super().__init__(learned.graph, model=HISTORY, seed=seed, device=device, show=show)
        self.learned, self.fresh = learned, Facts.of([]) if fresh is None else fresh
        self.configs = [model.config for model in learned.scorer.models]
        self.recipes = [_shortened(recipe, epochs) for recipe in _recipes(learned)]
        self.with_history = learned.scorer.history is not None
        self.held_out = self._draw_held_out()

    @property
    def is_chosen_again(self) -> bool:
        """Whether kernels, weights and calibration are fitted again; else they stay."""
        return not self.is_whole or len(self.held_out) > 0

    def runs(self) -> Iterator[TrainingRun]:
        """Yield the training runs in order. Iterate each to its end before the next is asked for."""
        if self.is_chosen_again:
            yield from super().runs()
        else:
            self.finished = yield from self._train(self.graph, self.recipes)

    def result(self) -> Learned:
        """Return what was learned, after the last run."""
        if self.is_chosen_again:
            found = super().result()
        else:
            models = tuple(run.result()[0] for run in self.finished)
            scorer = replace(self.learned.scorer, trained=models, grow=None)
            found = replace(self.learned, scorer=scorer, models=None)
        return replace(found, about=self._about())

    def _about(self) -> Mapping[str, Any]:
        """Return the description of the first training, with the epochs that were added."""
        about = dict(self.learned.about)
        epochs = max((run.trainer.epoch for run in self.finished), default=0)
        return about | {RELEARNED: [*about.get(RELEARNED, []), {"epochs": epochs, "fresh": len(self.fresh)}]}

    def _draw_held_out(self) -> Facts:
        """Return the fresh facts that choose weights and calibration; none if they are few, or if there is a split."""
        count = min(MOST, int(SHARE * len(self.fresh)))
        if count < ENOUGH or not self.is_whole or has_runs(self.graph):
            return Facts.of([])
        return self.fresh[torch.randperm(len(self.fresh), generator=seeded(self.seed))[:count]]

    def _fold(self) -> EpisodicGraph:
        """Return the graph whose valid split chooses epochs, weights and calibration."""
        if not self.is_whole:
            return self.graph
        train = self.graph.split("train")
        is_held = FactIndex(self.held_out, self.graph.sizes).contains(train)
        return self.graph.with_splits({"train": train[~is_held], "valid": train[is_held]})

    @cached_property
    def _without_held_out(self) -> Learned:
        """The memory after it has forgotten the held-out facts: rows that were solved with them are solved again."""
        axis = self.graph.times
        bins = pl.Series((axis.first + self.held_out.t * axis.step).tolist(), dtype=pl.Int64)
        table = self.graph.table(self.held_out).with_columns(change=pl.lit(REMOVED), first=bins, last=bins)
        return grow(self.learned, Delta(table.select(SCHEMA.names()), step=axis.step))

    def _run(self, graph: EpisodicGraph, number: int, recipe: Recipe) -> TrainingRun:
        """Return the training run of one model, from its tables on."""
        is_fold = self.is_whole and graph is not self.graph
        start = self._without_held_out if is_fold else self.learned
        seed, initial = self.seed + SEED_STEP * number, start.scorer.models[number]
        return _Continued(graph, recipe=recipe, seed=seed, device=self.device, initial=initial)


class _Continued(TrainingRun):
    """A training run whose result has the mean of the weights that it started from and those that it reached."""

    def __init__(self, graph: EpisodicGraph, *, initial: TensorModel, **options: Any) -> None:
        super().__init__(graph, initial.config, initial=initial, **options)
        self._initial = initial

    def result(self) -> tuple[TensorModel, dict[str, Any]]:
        """Return the model and a training report."""
        return self._mean

    @cached_property
    def _mean(self) -> tuple[TensorModel, dict[str, Any]]:
        model, about = super().result()
        start = self._initial.state_dict()
        with torch.no_grad():
            for name, weight in model.named_parameters():
                weight.lerp_(start[name].to(weight), 0.5)
        return model, about


def _recipes(learned: Learned) -> list[Recipe]:
    """Return the recipes that the models of a memory were first trained with."""
    about = learned.about
    reports = about["runs"] if "runs" in about else [about] * len(learned.scorer.models)
    names = [model.config.model for model in learned.scorer.models]
    return [
        Recipe.from_dict(report.get("recipe", {})).for_model(name) for name, report in zip(names, reports, strict=True)
    ]


def _shortened(recipe: Recipe, epochs: int) -> Recipe:
    """Return a recipe of fewer epochs, each of them validated."""
    return replace(recipe, epochs=epochs, validate_every=1)
