"""The questions that a memory answers: each is answered by one snapshot, from start to end."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import polars as pl
from torch import Tensor

from recollect.evaluation.calibration import Calibration
from recollect.evaluation.intervals import IntervalPredictor
from recollect.evaluation.metrics import Evaluation
from recollect.graph.fact_index import FactIndex
from recollect.graph.facts import EpisodicGraph
from recollect.memory.answering.forecasts import Forecaster
from recollect.memory.answering.questions import Table, Time
from recollect.memory.answering.scorer import MemoryScorer, only_model
from recollect.memory.card import card
from recollect.memory.journal.moments import Moment
from recollect.memory.snapshot import Snapshot
from recollect.models.tensor_model import TensorModel


class Asking(ABC):
    """What a memory can be asked: any missing part of a fact, and what held at a time."""

    @abstractmethod
    def _at(self, known_at: Moment | None = None) -> Snapshot:
        """Return the state of the memory now, or what it was at a moment. Any thread may call it."""

    def snapshot(self, known_at: Moment | None = None) -> Snapshot:
        """Return the state of the memory, now or at a moment: all questions to it are answered by the same facts."""
        return self._at(known_at)

    def recall(
        self,
        *,
        subject: str | None = None,
        predicate: str | None = None,
        object: str | None = None,
        time: Time | None = None,
        top: int = 10,
        include: str = "all",
        explain: int = 0,
        known_at: Moment | None = None,
    ) -> pl.DataFrame:
        """Return the `top` best labels of the one slot that is not given.

        Columns: the slot, `score`, the probability that it completes a true fact, and whether that fact is *stored* or
        *predicted*. Stored facts come first, with probability 1, of several times the newest first. The probability of
        predicted ones is calibrated on facts that are not stored. `include` is "all", "stored" or "predicted". A time
        after the last stored one is answered by what was stored before, less surely the farther ahead it is; a stored
        interval without an end still holds then.
        With `explain=n` there is a column `why`: the n stored facts with the largest shares of the history's evidence.
        Of a memory with models, `model_share` says how much of the answer's lead over the mean candidate is theirs.

        A time coarser than the grain ("2014-12" of days) or a range ("1914..1918") asks about the whole period. Stored
        is then what holds at any time of it. The column `time` is the last such time, or the likeliest one of a
        predicted answer, whose probability is that of this time.

        With `known_at`, a moment, what was remembered and forgotten after it does not count. A moment is a datetime or
        a text like "2026-03-01T14:30:00"; without a zone it is in UTC, and a date is its end.
        """
        return self._at(known_at).recall(
            subject=subject, predicate=predicate, object=object, time=time, top=top, include=include, explain=explain
        )

    def recall_many(
        self,
        questions: Table,
        *,
        top: int = 10,
        include: str = "all",
        explain: int = 0,
        known_at: Moment | None = None,
    ) -> pl.DataFrame:
        """Return the `top` best answers to each row of a table of questions.

        Columns of the questions: subject, predicate, object, time; one of them is null, or left out, in each row, and
        different rows may leave different slots open. Columns of the answers: `query`, the number of the question from
        0, the fact with its open slot filled in, and score, probability and status as in `recall`.
        """
        return self._at(known_at).recall_many(questions, top=top, include=include, explain=explain)

    def probability(
        self, facts: Table, *, slot: str = "object", explain: int = 0, known_at: Moment | None = None
    ) -> pl.DataFrame:
        """Return score, probability and status of given facts, one row each.

        The probability is that of `recall` if `slot` were open: it is calibrated for the candidates of that slot. With
        `explain=n` there are the columns of `recall` that say why.
        """
        return self._at(known_at).probability(facts, slot=slot, explain=explain)

    def probabilities(
        self, subject: str, predicate: str, object: str, *, known_at: Moment | None = None
    ) -> pl.DataFrame:
        """Return the probability of a triple at every time, in order of time."""
        return self._at(known_at).probabilities(subject, predicate, object)

    def when(self, subject: str, predicate: str, object: str, *, known_at: Moment | None = None) -> pl.DataFrame:
        """Return the intervals in which a fact held: start, end, probability and status.

        Stored ones come first, with probability 1, the newest first. The last row is the likeliest interval apart from
        these; its probability is the mean over its times. A memory that learned no intervals predicts a single time.
        The end of a stored interval that has none is null.
        """
        return self._at(known_at).when(subject, predicate, object)

    def know(
        self,
        *,
        subject: str | None = None,
        predicate: str | None = None,
        object: str | None = None,
        as_of: Time | None = None,
        top: int = 10,
        include: str = "all",
        progress: Callable[[float], None] | None = None,
        known_at: Moment | None = None,
    ) -> pl.DataFrame:
        """Return what holds as of a time, by default the last, among the facts with the given parts, at most `top`.

        A time coarser than the grain, or a range, is a period; what holds at its last time is returned.

        Stored facts come first, with probability 1, those that began last before the others. Predicted ones follow by
        probability: what is likely to hold though it was never stored. A memory without history asks the semantic
        memory that it projects to; its first question solves for the starts and ends of all facts, and calls
        `progress` with the share that is done. After the last stored time, intervals without an end are stored, and
        everything else is predicted.

        `as_of` is about the world, `known_at` about the memory: what it had remembered by then.
        """
        return self._at(known_at).know(
            subject=subject, predicate=predicate, object=object, as_of=as_of, top=top, include=include,
            progress=progress,
        )  # fmt: skip

    def forecast(
        self,
        *,
        subject: str | None = None,
        predicate: str | None = None,
        object: str | None = None,
        horizon: int = 7,
        top: int = 10,
        explain: int = 0,
        known_at: Moment | None = None,
    ) -> pl.DataFrame:
        """Return the `top` likeliest facts with the given parts in each of the next `horizon` steps.

        Columns: subject, predicate, object, time and the probability that the fact holds then, given what is stored;
        with `explain=n` also `why`, the n stored facts with the largest shares of the evidence.
        """
        return self._at(known_at).forecast(
            subject=subject, predicate=predicate, object=object, horizon=horizon, top=top, explain=explain
        )

    def evaluate(self, split: str = "test", slots: str | None = None) -> Evaluation:
        """Return filtered and raw ranking metrics of every slot, and the reliability of probabilities.

        Where all times of the split are after those of the train split, each fact is asked for with everything before
        its time stored (single step). A graph of intervals is evaluated by one fact of each run, at a random time of
        it; `intervals` then compares predicted with true ones.
        """
        return self._at().evaluate(split, slots)

    def card(self, *, split: str | None = None, licence: str | None = None, figure: str | Path | None = None) -> str:
        """Return a card in Markdown, as model hubs show it: data, evaluation of a split, calibration, use.

        The split is by default test, else valid, if there is one. `licence` is that of the data, where it is not a
        published dataset; a reliability diagram is drawn to the path `figure`, and the card shows it.
        """
        return card(self._at(), split=split, licence=licence, figure=figure)

    def embedding(self, label: Time, kind: str | None = None) -> Tensor:
        """Return the learned embedding of an entity, predicate or time, in the shape of its table's rows.

        `kind` ("entity", "predicate" or "time") is needed only for a label of several kinds.
        """
        return self._at().embedding(label, kind)

    def embeddings(self, kind: str = "entity") -> pl.DataFrame:
        """Return the learned embeddings of all entities, predicates or times: columns label and embedding (array)."""
        return self._at().embeddings(kind)

    # -- what a memory consists of -----------------------------------------------------------------------------------

    @property
    def graph(self) -> EpisodicGraph:
        """The stored facts, with their vocabularies and time axis."""
        return self._at().graph

    @property
    def known(self) -> FactIndex:
        """The index of the facts of all splits."""
        return self._at().known

    @property
    def scorer(self) -> MemoryScorer:
        """What answers are ranked by: the models and the history of the stored facts."""
        return self._at().scorer

    @property
    def model(self) -> TensorModel:
        """The model of a memory that has one; a sum has several `models`, and history alone has none."""
        return only_model(self.scorer)

    @property
    def models(self) -> tuple[TensorModel, ...]:
        """The models whose scores are added up."""
        return self.scorer.models

    @property
    def calibration(self) -> Calibration:
        """What turns scores into probabilities."""
        return self._at().calibration

    @property
    def about(self) -> Mapping[str, Any]:
        """How the memory was learned; it is saved with it."""
        return self._at().about

    @property
    def forecaster(self) -> Forecaster | None:
        """What answers about times after the last stored one."""
        return self._at().forecaster

    @property
    def intervals(self) -> IntervalPredictor | None:
        """What predicts when facts held, of a graph of intervals."""
        return self._at().intervals
