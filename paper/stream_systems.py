"""The systems of the stream study: what each has learned after some days, and the CPU-seconds that this took."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import polars as pl

from paper.leaderboard_entries import Entry
from paper.stream_models import train_once
from paper.stream_world import Stream
from paper.workspace import Workspace
from recollect import RECIPES, EpisodicGraph, Facts, Memory
from recollect.io.atomic import write_text
from recollect.memory.journal.changes import ADDED, SCHEMA, Delta
from recollect.memory.learning.growth import grow
from recollect.memory.learning.learn import Learned, Learning, learn_history
from recollect.memory.learning.relearning import relearn


@dataclass(frozen=True, eq=False)
class State:
    """What a system has learned after `count` days, and the CPU-seconds of its last learning."""

    learned: Learned
    count: int
    cpu_seconds: float


def delta_of(stream: Stream, first: int, count: int, facts: Facts) -> Delta:
    """Return the change from the labels after `first` days to those after `count`, with some facts added."""
    graph, before, after = stream.graph, stream.sizes(first), stream.sizes(count)
    axis = graph.times
    bins = pl.Series((axis.first + facts.t * axis.step).tolist(), dtype=pl.Int64)
    table = graph.table(facts).with_columns(change=pl.lit(ADDED), first=bins, last=bins)
    last = axis.first + (after["time"] - 1) * axis.step
    return Delta(
        table.select(SCHEMA.names()),
        entities=graph.entities.labels[before["entity"] : after["entity"]],
        predicates=graph.predicates.labels[before["predicate"] : after["predicate"]],
        reach=(last, last),
        step=axis.step,
    )


class Systems:
    """The states of all systems of one memory: history alone, or a model and history."""

    def __init__(self, workspace: Workspace, stream: Stream, entry: Entry | None, *, seed: int = 0) -> None:
        self.workspace, self.stream, self.entry, self.seed = workspace, stream, entry, seed
        self.most_epochs = 1 if workspace.quick else RECIPES["modern"].epochs  # where validation chooses them
        self.seconds: dict[int, float] = {}  # CPU-seconds of learning each day, by its number
        self._latest: dict[str, State] = {}  # of systems that go on from their last state

    @property
    def name(self) -> str:
        """The name of the memory."""
        return "history" if self.entry is None else f"{self.entry.config.model}+history"

    @cached_property
    def base(self) -> State:
        """What is learned before the first day, as `Memory.learn` learns it."""
        return self._stored("whole", 0, self._learn_whole)

    def _stored(self, what: str, count: int, learn: Callable[[EpisodicGraph], Learned]) -> State:
        """Return what is learned after `count` days; it is stored with the CPU-seconds that it took."""
        folder = self.workspace.folder / f"{self.name}-{what}-{count}-{self._key}.memory"
        about = folder.with_suffix(".json")
        if not about.is_file():
            start = time.process_time()
            learned = learn(self.stream.graph_of(count))
            seconds = time.process_time() - start
            Memory.of(learned).save(folder, overwrite=True)
            write_text(about, json.dumps({"cpu_seconds": seconds}))
        memory = Memory.load(folder)
        learned = Learned(memory.scorer, memory.graph, memory.calibration, memory.about, memory.forecaster)
        return State(learned, count, json.loads(about.read_text(encoding="utf-8"))["cpu_seconds"])

    @cached_property
    def _key(self) -> str:
        """A hash of what is streamed and trained."""
        entry = None if self.entry is None else self.entry.to_dict()
        text = json.dumps([self.stream.graph_of(0).fingerprint, entry, self.seed])
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def frozen(self, count: int) -> State:
        """Return the base, which has learned nothing since; later labels and times exist, without facts."""
        return self.extended(self.base, count)

    def ours(self, count: int) -> State:
        """Return the base that has remembered the facts of each day, one day at a time."""
        state = self._go_on("ours", count)
        while state.count < count:
            day = self.stream.days[state.count]
            delta = delta_of(self.stream, state.count, state.count + 1, day.learned)
            start = time.process_time()
            learned = grow(state.learned, delta)
            assert len(learned.scorer.models) == len(state.learned.scorer.trained)  # their rows are solved when read
            self.seconds[state.count] = time.process_time() - start
            state = State(learned, state.count + 1, self.seconds[state.count])
        self._latest["ours"] = state
        return state

    def warm(self, count: int, every: int) -> State:
        """Return the base that is trained further every so many days, from its last tables on, on all facts.

        As from scratch, weights and calibration stay those of the base.
        """
        state = self._go_on("warm", count)
        while state.count < count:
            following = min(count, state.count + (every if state.count else 1 + every))
            fresh = Facts.concat([day.learned for day in self.stream.days[state.count : following]])
            delta = delta_of(self.stream, state.count, following, fresh)
            start = time.process_time()
            learned = relearn(grow(state.learned, delta), seed=self.seed)
            state = State(learned, following, time.process_time() - start)
        self._latest["warm"] = state
        return state

    def scratch(self, count: int) -> State:
        """Return what is learned from scratch after `count` days.

        A model is trained once, for the epochs that were chosen for the base, with the weights and the calibration of
        the base: the cheapest way to do it.
        """
        if self.entry is None:
            return self._stored("scratch", count, self._learn_whole)
        history = Systems(self.workspace, self.stream, None, seed=self.seed).scratch(count)
        graph, base = self.stream.graph_of(count), self.base.learned
        trained = train_once(
            self.workspace, f"{self.entry.config.model} scratch {count}", graph, self.entry, seed=self.seed
        )
        scorer = replace(history.learned.scorer, trained=(trained.model,), weights=base.scorer.weights)
        learned = replace(history.learned, scorer=scorer, calibration=base.calibration)
        return State(learned, count, history.cpu_seconds + trained.cpu_seconds)

    def extended(self, state: State, count: int) -> State:
        """Return a state with the labels and times after `count` days, without their facts."""
        if count <= state.count:
            return state
        delta = delta_of(self.stream, state.count, count, Facts.of([]))
        return State(grow(state.learned, delta), count, 0.0)

    def _go_on(self, system: str, count: int) -> State:
        """Return the last state of a system, or the base if that is later than asked for."""
        state = self._latest.get(system, self.base)
        return state if state.count <= count else self.base

    def _learn_whole(self, graph: EpisodicGraph) -> Learned:
        if self.entry is None:
            return learn_history(graph, seed=self.seed)
        config, recipe = self.entry.config, replace(self.entry.recipe, epochs=self.most_epochs)
        learning = Learning(
            graph, model=config.model, dim=config.dim, predicate_dim=config.predicate_dim, static=config.static,
            recipe=recipe, seed=self.seed,
        )  # fmt: skip
        for run in learning.runs():
            for _ in run:
                pass
        return learning.result()
