"""The service: answers typed questions to one memory. REST, MCP and the command line only translate."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import polars as pl

from recollect.errors import DataWarning, UserError
from recollect.graph.facts import SLOT_NAMES
from recollect.memory.memory import Memory
from recollect.memory.snapshot import Snapshot
from recollect.serve.browse import StoreView
from recollect.serve.messages import (
    MAX_ANSWERS,
    MAX_TOP,
    About,
    Answer,
    Answers,
    Between,
    Change,
    Changed,
    Changes,
    Completion,
    EntityFacts,
    Forget,
    GraphPart,
    Interval,
    Know,
    Label,
    Labels,
    ManyAnswers,
    Message,
    NewFact,
    NumberedAnswer,
    OneEntity,
    Picture,
    Recall,
    RecallMany,
    Reliability,
    Remember,
    Since,
    Timeline,
    Times,
    Triple,
    Undo,
    Why,
)
from recollect.serve.reliability import ReliabilityMeter
from recollect.serve.tables import (
    answer_fields,
    answers_of,
    complete_time,
    edges,
    example_fact,
    has_times,
    thinned,
    time_label,
)

SPO = ("subject", "predicate", "object")


class ReadOnlyError(UserError):
    """A change of a memory that is served read-only."""


class Service:
    """Answers questions to a memory, from several threads at a time; each by one snapshot of it."""

    def __init__(self, memory: Memory, *, read_only: bool = False) -> None:
        self.memory, self.read_only = memory, read_only
        self._lock, self._write_lock = Lock(), Lock()
        self._views: WeakKeyDictionary[Snapshot, StoreView] = WeakKeyDictionary()
        self._meter = ReliabilityMeter()

    @property
    def state(self) -> str:
        """A short text that changes whenever answers may change."""
        return self.memory.state

    def about(self) -> About:
        """Return what the memory is."""
        memory = self.memory.snapshot()
        graph, times = memory.graph, memory.graph.times
        axis = Times(grain=times.grain, first=times.label(0), last=times.label(len(times) - 1), count=len(times))
        return About(
            name=graph.name,
            entities=len(graph.entities),
            predicates=len(graph.predicates),
            times=axis if has_times(memory) else None,
            facts=graph.counts["train"],
            answers_by=str(memory.scorer),
            calibrated=[SLOT_NAMES[slot] for slot in memory.calibration.fits if slot in SLOT_NAMES],
            forecasts=memory.forecaster is not None,
            explains=memory.scorer.history is not None,
            as_of=memory.about.get("projection", {}).get("as_of"),
            read_only=self.read_only,
            state=self.state,
            example=example_fact(self._browse(memory)),
        )

    def recall(self, question: Recall) -> Answers:
        """Return the best answers for the one part that is not given."""
        given = {name: [getattr(question, name)] for name in SLOT_NAMES.values()}
        memory = self.memory.snapshot(question.known_at)
        found = memory.recall_many(given, top=question.top, include=question.include, explain=question.explain)
        return Answers(answers=answers_of(found))

    def recall_table(self, question: RecallMany) -> pl.DataFrame:
        """Return the answers to many questions as a table; its column `query` is the number of the question."""
        if len(question.questions) * question.top > MAX_ANSWERS:
            raise UserError(
                f"{len(question.questions):,} questions with up to {question.top} answers each; at most "
                f"{MAX_ANSWERS:,} answers are given together: ask fewer, or lower top"
            )
        names = SLOT_NAMES.values()
        given = {name: [getattr(each, name) for each in question.questions] for name in names}
        memory = self.memory.snapshot(question.known_at)
        return memory.recall_many(given, top=question.top, include=question.include, explain=question.explain)

    def recall_many(self, question: RecallMany) -> ManyAnswers:
        """Return the best answers to many questions."""
        table = self.recall_table(question)
        return ManyAnswers(answers=[NumberedAnswer(**answer) for answer in answer_fields(table)])

    def know(self, question: Know) -> Answers:
        """Return what holds as of a time."""
        memory = self.memory.snapshot(question.known_at)
        as_of = time_label(memory, memory.time_of(question.as_of))
        return Answers(answers=know(memory, question), as_of=as_of)

    def timeline(self, question: Triple) -> Timeline:
        """Return the probability of a fact over the times, and the intervals in which it held, the newest first."""
        memory = self.memory.snapshot(question.known_at)
        triple = (question.subject, question.predicate, question.object)
        intervals = memory.when(*triple)
        table = memory.probabilities(*triple)
        table = table[thinned(table["probability"].to_numpy(), question.points)]
        stored, predicted = (intervals.filter(status=status) for status in ("stored", "predicted"))
        shown = pl.concat([stored.head(MAX_TOP), predicted])
        return Timeline(
            times=table["time"].to_list(),
            probabilities=table["probability"].to_list(),
            intervals=[Interval(**row) for row in shown.iter_rows(named=True)],
        )

    def why(self, question: Why) -> Answer:
        """Return the probability of a fact and, if it is predicted, the stored facts that speak most for it."""
        given = {name: [getattr(question, name)] for name in SLOT_NAMES.values()}
        (answer,) = answers_of(self.memory.probability(given, explain=question.explain, known_at=question.known_at))
        return answer

    def labels(self, question: Completion) -> Labels:
        """Return labels that begin with a text, then those that contain it; times in their order."""
        memory = self.memory.snapshot()
        if question.kind == "time":
            return complete_time(memory, question)
        view = self._browse(memory)
        if question.kind == "entity":
            labels, index, facts = memory.graph.entities.labels, view.entities, view.entity_facts
        else:
            labels, index, facts = memory.graph.predicates.labels, view.predicates, view.predicate_facts
        found = index.find(question.text, question.top)
        return Labels(labels=[Label(label=labels[i], facts=int(facts[i])) for i in found])

    def entity(self, question: OneEntity) -> EntityFacts:
        """Return what holds of an entity, as subject and as object, as of a time."""
        memory = self.memory.snapshot(question.known_at)
        number = memory.graph.entities.index(question.label)
        as_of = time_label(memory, memory.time_of(question.as_of))
        held: dict[str, list[Answer]] = {}
        for role in ("subject", "object"):
            one_part = Know(**{role: question.label}, as_of=question.as_of, top=question.top, include=question.include)
            held[role] = know(memory, one_part)
        return EntityFacts(
            label=question.label,
            facts=int(self._browse(memory).entity_facts[number]),
            as_of=as_of,
            as_subject=held["subject"],
            as_object=held["object"],
        )

    def graph(self, question: Picture) -> GraphPart:
        """Return the stored facts that hold as of a time, around an entity or in all, and some that held before."""
        memory = self.memory.snapshot(question.known_at)
        view, time = self._browse(memory), memory.time_of(question.as_of)
        entity = None if question.entity is None else memory.graph.entities.index(question.entity)
        held = view.at(time, entity, question.depth, question.top)
        past = view.ended(time, entity, question.ended).runs if question.ended else held.runs[:0]
        runs = np.concatenate([held.runs, past])
        nodes = [] if entity is None else [entity]
        nodes += np.concatenate([view.s[runs], view.o[runs]]).tolist()
        labels = memory.graph.entities.labels
        return GraphPart(
            as_of=time_label(memory, time),
            nodes=[Label(label=labels[i], facts=int(view.entity_facts[i])) for i in dict.fromkeys(nodes)],
            edges=edges(view, runs, time),
            left_out=held.left_out,
        )

    def changes(self, question: Between) -> Changes:
        """Return what began and what ended between two times."""
        memory = self.memory.snapshot(question.known_at)
        view, times = self._browse(memory), memory.graph.times
        entity = None if question.entity is None else memory.graph.entities.index(question.entity)
        since, until = memory.time_of(question.since), memory.time_of(question.until)
        began = view.began_between(since, until, entity, question.top)
        ended = view.ended_between(since, until, entity, question.top)
        return Changes(
            since=times.label(since),
            until=times.label(until),
            began=edges(view, began.runs, until),
            ended=edges(view, ended.runs, until),
            left_out=began.left_out + ended.left_out,
        )

    def reliability(self) -> Reliability:
        """Return how far probabilities can be relied on, or that this is being measured."""
        return self._meter.of(self.memory.snapshot())

    # -- changes ------------------------------------------------------------------------------------------------------

    def remember(self, question: Remember, key: str | None = None) -> Changed:
        """Store facts that were not stored yet, all or none; they are on disk when this returns."""
        self._check_writable()
        rows = [given_parts(fact, NewFact) for fact in question.facts]
        facts: dict[str, Any] = {**rows[0]} if len(rows) == 1 else {"facts": rows}  # one may have a range as its time
        with self._write_lock, no_row_left_out():
            changed = self.memory.remember(**facts, inclusive_end=question.inclusive_end, key=key)
        return self._changed(changed)

    def forget(self, question: Forget, key: str | None = None) -> Changed:
        """Remove stored facts; those of several triples, or an entity, only if this is asked for."""
        parts: dict[str, Any] = {**given_parts(question, NewFact), "inclusive_end": question.inclusive_end}
        parts |= {} if question.entity is None else {"entity": question.entity}
        if question.preview:
            return self._changed(self.memory.forget(**parts, preview=True))
        self._check_writable()
        if not question.several:
            found = self.memory.forget(**parts, preview=True)
            triples = found.select(SPO).n_unique()
            if triples > 1 or "erased" in found["change"]:
                raise UserError(
                    f"{len(found):,} runs of {triples:,} triples would be forgotten; if so, give several=true"
                )
        return self._changed(self.memory.forget(**parts, key=key))

    def undo(self, question: Undo) -> Changed:
        """Take an event back, all of it or nothing, by an event of its own."""
        self._check_writable()
        return self._changed(self.memory.undo(question.event))

    def journal(self, question: Since) -> Changed:
        """Return what was remembered and forgotten between two moments, the latest changes if there are too many."""
        changes = self.memory.changes(question.since, question.until)
        return self._changed(changes.tail(question.top), max(0, len(changes) - question.top))

    def _check_writable(self) -> None:
        if self.read_only:
            raise ReadOnlyError("this memory is served read-only; ask whoever serves it to change it")

    def _changed(self, changes: pl.DataFrame, left_out: int = 0) -> Changed:
        """Return changes by label, as many as an answer may have."""
        rows = changes.head(MAX_TOP).with_columns(pl.col("known_at").dt.strftime("%Y-%m-%dT%H:%M:%S%.6fZ"))
        named = rows.rename({"from": "start", "to": "end"}).iter_rows(named=True)
        return Changed(
            changes=[Change(**row) for row in named],
            left_out=left_out + max(0, len(changes) - MAX_TOP),
            state=self.state,
        )

    def _browse(self, memory: Snapshot) -> StoreView:
        """Return the stored facts of a snapshot, indexed when they are first browsed and after each change."""
        with self._lock:
            if memory not in self._views:
                self._views[memory] = StoreView(memory.graph, memory.runs, has_times=has_times(memory))
            return self._views[memory]


@contextmanager
def no_row_left_out() -> Iterator[None]:
    """Raise UserError where a file would be read without some of its rows. One thread at a time may use it."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", DataWarning)
        try:
            yield
        except DataWarning as warning:
            raise UserError(f"{str(warning).partition(';')[0]}; correct it: nothing was changed") from warning


def given_parts(fact: NewFact | Forget, names: type[Message]) -> dict[str, str]:
    """Return the parts of a fact that are given, by name."""
    parts = {name: getattr(fact, name) for name in names.__struct_fields__}
    return {name: label for name, label in parts.items() if label is not None}


def know(memory: Snapshot, question: Know) -> list[Answer]:
    """Return what holds as of a time; every answer has that time."""
    given = {name: getattr(question, name) for name in SPO}
    found = memory.know(**given, as_of=question.as_of, top=question.top, include=question.include)
    return answers_of(found, time_label(memory, memory.time_of(question.as_of)))
