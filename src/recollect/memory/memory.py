"""The class Memory: train, save, load, and answer questions by label with tables of labels."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import polars as pl
import torch
from torch import Tensor

from recollect.errors import UserError, check_process
from recollect.evaluation.metrics import Evaluation
from recollect.graph.facts import EpisodicGraph
from recollect.graph.runs import split_runs
from recollect.memory.answering import Answering
from recollect.memory.bundle import malformed_refused, read_bundle, write_bundle
from recollect.memory.evaluating import evaluate_forecasts, evaluate_memory, is_forecast
from recollect.memory.learning import Learned, Learning, finish_runs, run_training
from recollect.memory.questions import (
    Time,
    slot_of_kind,
    slot_of_label,
)
from recollect.memory.saved import read_learned, to_bundle
from recollect.memory.scorer import MemoryScorer, only_model
from recollect.models.tensor_model import TensorModel
from recollect.training.callbacks import Callback
from recollect.training.recipe import Recipe
from recollect.training.run import TrainingRun


class Memory(Answering):
    """A learned graph that answers who, what, whom and when.

    >>> from recollect import Memory, Recipe, dataset
    >>> graph = dataset("world", countries=4, years=1)
    >>> memory = Memory.learn(graph, model="distmult", dim=4, recipe=Recipe(epochs=2))
    >>> memory.recall(subject=graph.entities.labels[0], predicate="Visits", time="2000-05", top=3).columns
    ['object', 'score', 'probability', 'status']
    """

    @property
    def model(self) -> TensorModel:
        """The model of a memory that has one; a sum has several `models`, and history alone has none."""
        return only_model(self.scorer)

    @property
    def models(self) -> tuple[TensorModel, ...]:
        """The models whose scores are added up."""
        return self.scorer.models

    @classmethod
    def learn(
        cls,
        graph: EpisodicGraph,
        *,
        model: str = "auto",
        dim: int | None = None,
        predicate_dim: int | None = None,
        time_dim: int | None = None,
        form: str = "episodic",
        static: bool | None = None,
        reciprocal: bool | None = None,
        time_levels: tuple[int, ...] | None = None,
        dtype: str = "float32",
        recipe: Recipe | str = "modern",
        history: bool = True,
        seed: int = 0,
        device: str = "cpu",
        progress: bool = False,
        callbacks: Iterable[Callback] = (),
    ) -> Memory:
        """Learn a graph and return its memory; `model="history"` needs no training.

        A graph without a valid split is learned whole: a tenth of its facts (at most 4,096) is held out to choose the
        number of epochs, the weights of models and history, and the calibration; then all facts are learned. A graph
        with a valid split uses it for these choices, learns its train split and can be evaluated on its test split.

        `model="auto"` is history alone for small graphs, and for larger ones history and a model, if that adds
        something. `model="cont+complex"` adds up the scores of several models; the same one twice is trained with two
        seeds. The options of each are those of `ModelConfig`; what is left out is chosen from the data and the recipe.
        `history=False` answers by the models alone. `progress` shows a bar on standard error; each callback receives
        every `Step` and `Epoch` record.
        """
        learning = Learning(
            graph, model=model, recipe=recipe, history=history, seed=seed, device=device, dim=dim,
            predicate_dim=predicate_dim, time_dim=time_dim, form=form, static=static, reciprocal=reciprocal,
            time_levels=time_levels, dtype=dtype,
        )  # fmt: skip
        reason = learning.reason
        for run in learning.runs():
            run_training(run, reason, progress=progress, callbacks=callbacks)
            reason = ""
        return cls.of(learning.result())

    @classmethod
    def from_run(cls, *runs: TrainingRun, history: bool = True) -> Memory:
        """Return the memory of finished training runs on one graph, whose models it adds up.

        With `history`, it also reads the facts around a question.
        """
        return cls.of(finish_runs(runs, history=history))

    @classmethod
    def of(cls, learned: Learned) -> Memory:
        """Return the memory of what was learned."""
        return cls(
            learned.scorer, learned.graph, learned.calibration, learned.about, learned.forecaster, learned.intervals
        )

    @classmethod
    def load(cls, path: str | Path) -> Memory:
        """Return the memory that was saved at `path`, after its files have been checked."""
        bundle = read_bundle(Path(path))
        with malformed_refused(path):
            return cls.of(read_learned(bundle))

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Write the memory to a directory that `Memory.load` reads."""
        learned = Learned(self.scorer, self.graph, self.calibration, self.about, self.forecaster, self.intervals)
        write_bundle(Path(path), to_bundle(learned), overwrite=overwrite)

    def __repr__(self) -> str:
        sizes = self.graph.sizes
        counts = f"{sizes['entity']:,} entities, {sizes['predicate']:,} predicates, {sizes['time']:,} times"
        return f"Memory({self.scorer}; {self.graph.name}: {counts}, {self.graph.counts['train']:,} facts)"

    def project(self, as_of: Time | None = None, *, progress: Callable[[float], None] | None = None) -> Memory:
        """Return the semantic memory of what holds as of a time, by default the last."""
        check_process()
        if self.model.config.form == "semantic":
            raise UserError("this is a semantic memory already; project an episodic one")
        time = self._time_index(as_of)
        if time >= len(self.graph.times):
            self.graph.times.index(as_of)  # type: ignore[arg-type]  # raises UserError: it is not on the axis
        model, calibration = self._knowledge.semantic_at(time, progress)
        splits = {name: part.at(time) for name, part in split_runs(self.graph).items()}
        projection = {"as_of": self.graph.times.label(time), "model": self.model.config.to_dict()}
        scorer, about = MemoryScorer((model,), None, {}), self.about | {"projection": projection}
        return Memory(scorer, self.graph.with_splits(splits), calibration, about)

    # -- evaluation and embeddings ----------------------------------------------------------------------------------

    def evaluate(self, split: str = "test", slots: str | None = None) -> Evaluation:
        """Return filtered and raw ranking metrics of every slot, and the reliability of probabilities.

        Where all times of the split are after those of the train split, each fact is asked for with everything before
        its time stored (single step). A graph of intervals is evaluated by one fact of each run, at a random time of
        it; `intervals` then compares predicted with true ones.
        """
        checked = None if slots is None else self._check_slots(slots)
        if self.forecaster is not None and is_forecast(self.forecaster, self.graph, split):
            return evaluate_forecasts(self.forecaster, self.graph, known=self.known, split=split, slots=checked)
        return evaluate_memory(
            self.scorer, self.calibration, self.graph, known=self.known, stored=self._stored, split=split,
            slots=checked or self.scorer.slots, intervals=self.intervals,
        )  # fmt: skip

    def embedding(self, label: Time, kind: str | None = None) -> Tensor:
        """Return the learned embedding of an entity, predicate or time, in the shape of its table's rows.

        `kind` ("entity", "predicate" or "time") is needed only for a label of several kinds.
        """
        slot = self._check_slots(slot_of_label(self.graph, label) if kind is None else slot_of_kind(kind))
        index: int = self.graph.axis(slot).index(label)  # type: ignore[arg-type]
        return self.model.rows(slot, ids=torch.tensor([index]))[0].detach().cpu()

    def embeddings(self, kind: str = "entity") -> pl.DataFrame:
        """Return the learned embeddings of all entities, predicates or times: columns label and embedding (array)."""
        check_process()
        slot = self._check_slots(slot_of_kind(kind))
        rows = self.model.rows(slot).detach().cpu()
        return pl.DataFrame({"label": list(self.graph.axis(slot).labels), "embedding": rows.numpy()})


load = Memory.load
