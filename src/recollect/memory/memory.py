"""The class Memory: train, save, load, and answer questions by label with tables of labels."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from recollect.evaluation.calibration import Calibration
from recollect.evaluation.intervals import IntervalPredictor
from recollect.graph.facts import EpisodicGraph
from recollect.memory.asking import Asking, Moment
from recollect.memory.bundle import malformed_refused, read_bundle, write_bundle
from recollect.memory.forecasts import Forecaster
from recollect.memory.learning import Learned, Learning, finish_runs, run_training
from recollect.memory.questions import Time
from recollect.memory.saved import read_learned, to_bundle
from recollect.memory.scorer import MemoryScorer
from recollect.memory.snapshot import Snapshot
from recollect.training.callbacks import Callback
from recollect.training.recipe import Recipe
from recollect.training.run import TrainingRun


class Memory(Asking):
    """A learned graph that answers who, what, whom and when.

    >>> from recollect import Memory, Recipe, dataset
    >>> graph = dataset("world", countries=4, years=1)
    >>> memory = Memory.learn(graph, model="distmult", dim=4, recipe=Recipe(epochs=2))
    >>> memory.recall(subject=graph.entities.labels[0], predicate="Visits", time="2000-05", top=3).columns
    ['object', 'score', 'probability', 'status']
    """

    def __init__(
        self,
        scorer: MemoryScorer,
        graph: EpisodicGraph,
        calibration: Calibration,
        about: Mapping[str, Any],
        forecaster: Forecaster | None = None,
        intervals: IntervalPredictor | None = None,
    ) -> None:
        """`about` says how the memory was learned; it is saved with it."""
        self._snapshot = Snapshot(Learned(scorer, graph, calibration, about, forecaster, intervals))

    def _at(self, known_at: Moment | None = None) -> Snapshot:
        return self._snapshot

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
        write_bundle(Path(path), to_bundle(self._at().learned), overwrite=overwrite)

    def project(self, as_of: Time | None = None, *, progress: Callable[[float], None] | None = None) -> Memory:
        """Return the semantic memory of what holds as of a time, by default the last."""
        return Memory.of(self._at().projected(as_of, progress))

    def __repr__(self) -> str:
        graph, scorer = self.graph, self.scorer
        sizes = graph.sizes
        counts = f"{sizes['entity']:,} entities, {sizes['predicate']:,} predicates, {sizes['time']:,} times"
        return f"Memory({scorer}; {graph.name}: {counts}, {graph.counts['train']:,} facts)"


load = Memory.load
