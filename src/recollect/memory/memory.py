"""The class Memory: train, save, load, and answer questions by label with tables of labels."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import polars as pl

from recollect.evaluation.calibration import Calibration
from recollect.evaluation.intervals import IntervalPredictor
from recollect.graph.facts import EpisodicGraph
from recollect.io.tables.reading import Source
from recollect.memory.answering.forecasts import Forecaster
from recollect.memory.answering.questions import Time
from recollect.memory.answering.scorer import MemoryScorer
from recollect.memory.asking import Asking
from recollect.memory.journal.effects import addition_of, fresh_facts, removal_of
from recollect.memory.journal.inputs import FactParts
from recollect.memory.journal.moments import Moment
from recollect.memory.learning.learn import Learned, Learning, ShowProgress, finish_runs, not_shown, run_training
from recollect.memory.learning.relearning import relearn
from recollect.memory.snapshot import Snapshot
from recollect.memory.timeline import Check, Timeline
from recollect.training.callbacks import Callback
from recollect.training.recipe import Recipe
from recollect.training.run import TrainingRun


class Memory(Asking):
    """A learned graph that answers who, what, whom and when.

    Examples:
        >>> from recollect import Memory, dataset
        >>> graph = dataset("world", countries=4, years=1)
        >>> memory = Memory.learn(graph, model="history")
        >>> person, _, country, month = graph.table(graph.split("train")[:1]).row(0)
        >>> memory.recall(subject=person, object=country, time=month, top=1).select("predicate", "status").rows()
        [('Foreign minister of', 'stored')]
        >>> memory.know(subject=person, as_of=month, top=1).columns
        ['subject', 'predicate', 'object', 'score', 'probability', 'status']
        >>> memory.when(person, "Foreign minister of", country).columns
        ['start', 'end', 'probability', 'status']
        >>> memory.forecast(subject=person, horizon=2, top=1)["time"].to_list()
        ['2001-01', '2001-02']
        >>> memory.evaluate("test", slots="o").split
        'test'
        >>> memory.remember(subject=person, predicate="Visits", object="Atlantis", time="2001-01").height
        1
        >>> memory.recall(subject=person, predicate="Visits", time="2001-01", top=1)["object"].to_list()
        ['Atlantis']
        >>> memory.forget(object="Atlantis").height
        1
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
        self._timeline = Timeline(Learned(scorer, graph, calibration, about, forecaster, intervals))

    def _at(self, known_at: Moment | None = None) -> Snapshot:
        return self._timeline.now() if known_at is None else self._timeline.at(known_at)

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
        tables: str | Path | None = None,
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
        `history=False` answers by the models alone. `tables` is a folder for embedding tables that do not fit in
        memory: they are trained in memory-mapped files there, which vanish at the end. `progress` shows a bar on
        standard error; each callback receives every `Step` and `Epoch` record.
        """
        learning = Learning(
            graph, model=model, recipe=recipe, history=history, seed=seed, device=device, dim=dim,
            predicate_dim=predicate_dim, time_dim=time_dim, form=form, static=static, reciprocal=reciprocal,
            time_levels=time_levels, dtype=dtype, tables=None if tables is None else Path(tables),
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
        """Return the memory that was saved at `path`, after its files have been checked.

        Examples:
            >>> from tempfile import TemporaryDirectory
            >>> from recollect import Memory, dataset, load
            >>> memory = Memory.learn(dataset("world", countries=4, years=1), model="history")
            >>> with TemporaryDirectory() as folder:
            ...     memory.save(f"{folder}/world.memory")
            ...     load(f"{folder}/world.memory").graph.fingerprint == memory.graph.fingerprint
            True
        """
        memory = cls.__new__(cls)  # of a timeline that is there already: its states are indexed once
        memory._timeline = Timeline.load(Path(path))
        return memory

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Write the memory to a directory that `Memory.load` reads, with everything that was remembered since."""
        self._timeline.save(Path(path), overwrite=overwrite)

    # -- learning after deployment ------------------------------------------------------------------------------------

    def remember(
        self,
        facts: Source = None,
        *,
        subject: str | None = None,
        predicate: str | None = None,
        object: str | None = None,
        time: Time | None = None,
        start: Time | None = None,
        end: Time | None = None,
        columns: Mapping[str, str | int] | None = None,
        dates: str | None = None,
        inclusive_end: bool = False,
        key: str | None = None,
    ) -> pl.DataFrame:
        """Store facts that were not stored yet, all or none, and return what was added.

        `facts` is a file, a table, or rows (subject, predicate, object, time) or (subject, predicate, object, start,
        end); `columns`, `dates` and `inclusive_end` are those of `recollect.read`. One fact is given by its parts:
        `time` is one time or a range "2014-03-01..2014-03-05", both ends included; `start` and `end` are [start, end).
        In a memory of intervals, an end that is left out is not known yet: the fact holds until it is forgotten from a
        time on. New entities, predicates and times are fine. Facts that are stored are left alone.

        The change of a memory that was loaded is on disk when this returns, in the journal that is a sibling of its
        folder, and visible to the next question, in this process and in all others that have the memory open. That of
        any other memory is kept in main memory; `save` it and `load` it for durable changes. A change with a `key` is
        made once: given again, say by a client that did not hear of the first, it does nothing; with other facts, it is
        an error.
        Columns: event, known_at, change, subject, predicate, object, from, to.
        """
        parts = FactParts(subject=subject, predicate=predicate, object=object, time=time, start=start, end=end)
        options = {"columns": columns, "dates": dates, "inclusive_end": inclusive_end}
        request = None if key is None else _request(key, ("remember", facts, parts, options))
        return self._timeline.change(addition_of(facts, parts, options), request=request)

    def forget(
        self,
        facts: Source = None,
        *,
        entity: str | None = None,
        subject: str | None = None,
        predicate: str | None = None,
        object: str | None = None,
        time: Time | None = None,
        start: Time | None = None,
        end: Time | None = None,
        columns: Mapping[str, str | int] | None = None,
        dates: str | None = None,
        inclusive_end: bool = False,
        preview: bool = False,
        check: Check | None = None,
        key: str | None = None,
    ) -> pl.DataFrame:
        """Remove stored facts, all or none, and return what was removed; what is not stored is left alone.

        Facts are given as to `remember`. Parts that are left out match everything, and a time coarser than the grain
        means all of it: `forget(subject="Turkey", time="2014-12")`. `entity` removes an entity altogether, from facts,
        labels and embeddings, at every `known_at` too; `consolidate` then removes its label from the disk.
        With `preview`, what would be removed is returned and stays; `check` is given it before it is removed, and all
        of it stays if that raises an error. `key` is that of `remember`.
        """
        parts = FactParts(subject=subject, predicate=predicate, object=object, time=time, start=start, end=end)
        options = {"columns": columns, "dates": dates, "inclusive_end": inclusive_end}
        effect = removal_of(facts, entity, parts, options)
        if preview:
            return self._timeline.preview(effect)
        request = None if key is None else _request(key, ("forget", facts, entity, parts, options))
        return self._timeline.change(effect, request=request, check=check)

    def undo(self, event: int) -> pl.DataFrame:
        """Take back what was remembered or forgotten as one event, all of it or nothing, and return what changed.

        The number of an event is in the table that `remember` and `forget` return, and in `changes`. Facts that were
        changed again since then stay as they are now.
        """
        return self._timeline.undo(event)

    def consolidate(self, *, show: ShowProgress = not_shown) -> bool:
        """Train on all that is stored now, from the weights that there are, and replace the saved memory in one step.

        Return False if nothing was changed since the last time. Questions are answered meanwhile, and changes are
        accepted; they are not lost. Of entities that were erased, no trace is left in the files.
        """
        return self._timeline.consolidate(
            lambda learned, delta: relearn(learned, fresh_facts(learned, delta), show=show)
        )

    @property
    def state(self) -> str:
        """A text that differs whenever answers may; it is the same for all processes that have the memory open."""
        return self._timeline.version()

    def changes(self, since: Moment | None = None, until: Moment | None = None) -> pl.DataFrame:
        """Return what was remembered and forgotten between two moments, in order.

        Columns: event, a number for what was changed together, known_at, change ("added", "removed" or "erased"),
        subject, predicate, object, from and to; `to` is null where no end is known.
        """
        return self._timeline.changes(since, until)

    def project(self, as_of: Time | None = None, *, progress: Callable[[float], None] | None = None) -> Memory:
        """Return the semantic memory of what holds as of a time, by default the last."""
        return Memory.of(self._at().projected(as_of, progress))

    def __repr__(self) -> str:
        graph, scorer = self.graph, self.scorer
        sizes = graph.sizes
        counts = f"{sizes['entity']:,} entities, {sizes['predicate']:,} predicates, {sizes['time']:,} times"
        return f"Memory({scorer}; {graph.name}: {counts}, {graph.counts['train']:,} facts)"


def _request(key: str, content: tuple[Any, ...]) -> tuple[str, str]:
    """Return a key and a content as the journal records them: by their digests, since there may be labels in them."""
    return f"request {_digest(key)}", _digest(repr(content))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


load = Memory.load
