"""The service: answers typed questions to one memory. REST, MCP and the command line only translate."""

from __future__ import annotations

from threading import Lock

import numpy as np
import polars as pl
from numpy.typing import NDArray

from recollect.graph.facts import SLOT_NAMES
from recollect.memory.memory import Memory
from recollect.memory.periods import is_period, parse_period
from recollect.memory.questions import time_index
from recollect.serve.browse import Ints, StoreView
from recollect.serve.messages import (
    MAX_TOP,
    About,
    Answer,
    Answers,
    Between,
    Changes,
    Completion,
    Edge,
    EntityFacts,
    Fact,
    GraphPart,
    Interval,
    Know,
    Label,
    Labels,
    OneEntity,
    Picture,
    Reason,
    Recall,
    Timeline,
    Times,
    Triple,
    Why,
)

SPO = ("subject", "predicate", "object")


class Service:
    """Answers questions to a memory, from several threads at a time."""

    def __init__(self, memory: Memory, *, state: str = "", read_only: bool = False) -> None:
        """`state` changes whenever answers may change."""
        self.memory, self.read_only, self._state = memory, read_only, state
        self._lock = Lock()
        self._view: StoreView | None = None

    @property
    def state(self) -> str:
        """A short text that changes whenever answers may change."""
        return self._state

    @property
    def has_times(self) -> bool:
        """Whether the memory is episodic."""
        return "t" in self.memory.scorer.slots

    @property
    def view(self) -> StoreView:
        """The stored facts, indexed when they are first browsed and whenever they have changed."""
        graph = self.memory.graph
        with self._lock:
            if self._view is None or self._view.graph is not graph:
                self._view = StoreView(graph, has_times=self.has_times)
            return self._view

    # -- questions ----------------------------------------------------------------------------------------------------

    def about(self) -> About:
        """Return what the memory is."""
        memory, graph = self.memory, self.memory.graph
        times = graph.times
        return About(
            name=graph.name,
            entities=len(graph.entities),
            predicates=len(graph.predicates),
            times=Times(grain=times.grain, first=times.label(0), last=times.label(len(times) - 1), count=len(times))
            if self.has_times
            else None,
            facts=graph.counts["train"],
            answers_by=str(memory.scorer),
            calibrated=[SLOT_NAMES[slot] for slot in memory.calibration.fits if slot in SLOT_NAMES],
            forecasts=memory.forecaster is not None,
            explains=memory.scorer.history is not None,
            as_of=memory.about.get("projection", {}).get("as_of"),
            read_only=self.read_only,
            state=self.state,
            example=self._example(),
        )

    def recall(self, question: Recall) -> Answers:
        """Return the best answers for the one part that is not given."""
        given = {name: [getattr(question, name)] for name in SLOT_NAMES.values()}
        found = self.memory.recall_many(given, top=question.top, include=question.include, explain=question.explain)
        return Answers(answers=answers_of(found))

    def know(self, question: Know) -> Answers:
        """Return what holds as of a time."""
        given = {name: getattr(question, name) for name in SPO}
        found = self.memory.know(**given, as_of=question.as_of, top=question.top, include=question.include)
        as_of = self._time_label(self._time(question.as_of))
        return Answers(answers=answers_of(found, time=as_of), as_of=as_of)

    def timeline(self, question: Triple) -> Timeline:
        """Return the probability of a fact over the times, and the intervals in which it held, the newest first."""
        triple = (question.subject, question.predicate, question.object)
        table = self.memory.probabilities(*triple)
        table = table[thinned(table["probability"].to_numpy(), question.points)]
        intervals = self.memory.when(*triple)
        stored, predicted = (intervals.filter(status=status) for status in ("stored", "predicted"))
        shown = pl.concat([stored.head(MAX_TOP), predicted])
        return Timeline(
            times=table["time"].to_list(),
            probabilities=table["probability"].to_list(),
            intervals=[Interval(**row) for row in shown.iter_rows(named=True)],
        )

    def why(self, question: Why) -> Answer:
        """Return the probability of a fact, and the stored facts that speak most for it if it is predicted."""
        given = {name: [getattr(question, name)] for name in SLOT_NAMES.values()}
        (answer,) = answers_of(self.memory.why(given, explain=question.explain))
        return answer

    def labels(self, question: Completion) -> Labels:
        """Return labels that begin with a text or contain it; times in their order."""
        if question.kind == "time":
            return self._times(question)
        of_entities = question.kind == "entity"
        view, graph = self.view, self.view.graph
        index, facts = (
            (view.entities, view.entity_facts) if of_entities else (view.predicates, view.predicate_facts)
        )
        labels = (graph.entities if of_entities else graph.predicates).labels
        found = index.find(question.text, question.top)
        return Labels(labels=[Label(label=labels[i], facts=int(facts[i])) for i in found])

    def entity(self, question: OneEntity) -> EntityFacts:
        """Return what holds of an entity, as subject and as object, as of a time."""
        view = self.view
        number = view.graph.entities.index(question.label)
        as_of = self._time_label(self._time(question.as_of))
        asked = {"as_of": question.as_of, "top": question.top, "include": question.include}
        return EntityFacts(
            label=question.label,
            facts=int(view.entity_facts[number]),
            as_of=as_of,
            as_subject=answers_of(self.memory.know(subject=question.label, **asked), time=as_of),
            as_object=answers_of(self.memory.know(object=question.label, **asked), time=as_of),
        )

    def graph(self, question: Picture) -> GraphPart:
        """Return the stored facts that hold as of a time, around an entity or in all, and some that held before."""
        view, time = self.view, self._time(question.as_of)
        entity = None if question.entity is None else view.graph.entities.index(question.entity)
        held = view.at(time, entity, question.depth, question.top)
        past = view.ended(time, entity, question.ended).runs if question.ended else held.runs[:0]
        runs = np.concatenate([held.runs, past])
        nodes = [] if entity is None else [entity]
        nodes += np.concatenate([view.s[runs], view.o[runs]]).tolist()
        return GraphPart(
            as_of=self._time_label(time),
            nodes=[
                Label(label=view.graph.entities.labels[i], facts=int(view.entity_facts[i]))
                for i in dict.fromkeys(nodes)
            ],
            edges=edges(view, held.runs, time) + edges(view, past, time),
            left_out=held.left_out,
        )

    def changes(self, question: Between) -> Changes:
        """Return what began and what ended between two times."""
        view = self.view
        entity = None if question.entity is None else view.graph.entities.index(question.entity)
        since, until = self._time(question.since), self._time(question.until)
        began, ended = (
            find(since, until, entity, question.top) for find in (view.began_between, view.ended_between)
        )
        return Changes(
            since=view.graph.times.label(since),
            until=view.graph.times.label(until),
            began=edges(view, began.runs, until),
            ended=edges(view, ended.runs, until),
            left_out=began.left_out + ended.left_out,
        )

    # -- times and examples -------------------------------------------------------------------------------------------

    def _time(self, as_of: str | None) -> int:
        """Return the index of a time, by default of the last that is stored; of a period, that of its last time."""
        memory, times = self.memory, self.memory.graph.times
        if as_of is None or not self.has_times:
            return len(times) - 1 if memory.forecaster is None else max(0, memory.forecaster.last)
        return parse_period(times, as_of).last if is_period(times, as_of) else time_index(memory.graph, as_of)

    def _time_label(self, time: int) -> str | None:
        return self.memory.graph.times.label(time) if self.has_times else self.memory.about.get("as_of")

    def _times(self, question: Completion) -> Labels:
        """Return times whose labels begin with a text, the first ones first."""
        times = self.memory.graph.times
        found: list[Label] = []
        for i in range(len(times) if self.has_times else 0):
            if times.label(i).startswith(question.text):
                found.append(Label(label=times.label(i), facts=0))
            if len(found) == question.top:
                break
        return Labels(labels=found)

    def _example(self) -> Fact | None:
        """Return one stored fact, from the middle of the store."""
        view = self.view
        if not len(view.s):
            return None
        middle = len(view.s) // 2
        (edge,) = edges(view, np.array([middle]), int(view.first[middle]))
        return Fact(subject=edge.subject, predicate=edge.predicate, object=edge.object, time=edge.start)


def answers_of(table: pl.DataFrame, time: str | None = None) -> list[Answer]:
    """Return the rows of a table of answers; `time` is that of rows without one."""
    answers = []
    for row in table.iter_rows(named=True):
        row.pop("query", None)
        why = row.pop("why", None)
        reasons = None if why is None else [Reason(**reason) for reason in why]
        answers.append(Answer(**{"time": time, **row}, why=reasons))
    return answers


def edges(view: StoreView, runs: Ints, time: int) -> list[Edge]:
    """Return stored runs by label, and whether each holds at a time."""
    graph, holds = view.graph, view.holds(runs, time).tolist()
    spans = zip(view.first[runs].tolist(), view.last[runs].tolist(), strict=True)
    labels = [(graph.times.label(first), graph.times.label(last)) for first, last in spans]
    return [
        Edge(
            subject=graph.entities.labels[s],
            predicate=graph.predicates.labels[p],
            object=graph.entities.labels[o],
            start=start if view.has_times else None,
            end=end if view.has_times else None,
            holds=is_held,
        )
        for s, p, o, (start, end), is_held in zip(
            view.s[runs].tolist(), view.p[runs].tolist(), view.o[runs].tolist(), labels, holds, strict=True
        )
    ]


def thinned(values: NDArray[np.float64], count: int) -> Ints:
    """Return the indices of the largest of every block of neighbouring values, of at most `count` blocks.

    >>> thinned(np.array([0.1, 0.3, 0.2, 0.2, 0.5]), 3).tolist()
    [1, 2, 4]
    """
    width = -(-len(values) // count)
    blocks = -(-len(values) // max(1, width))
    padded = np.full(blocks * width, -np.inf)
    padded[: len(values)] = values
    return padded.reshape(blocks, width).argmax(axis=1) + np.arange(blocks) * width
