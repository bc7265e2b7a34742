"""A memory that learns day by day: predict a day, learn most of it, ask for the rest and for old facts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from statistics import fmean
from typing import Any

from paper.leaderboard_entries import Entry
from paper.stream_models import CONT
from paper.stream_questions import (
    NewEntity,
    Ranks,
    by_group,
    calibration_errors,
    difference,
    mean_ranks,
    reciprocal_ranks,
    summary,
)
from paper.stream_systems import State, Systems
from paper.stream_world import Stream, read_stream
from paper.workspace import Workspace
from recollect import EpisodicGraph, Facts, dataset
from recollect.evaluation.ranking import Scorer
from recollect.graph.fact_index import FactIndex

DAILY = ("frozen", "ours")
RETRAINED = ("warm", "scratch")
SHARED = ("data", "days", "old", "seed")  # what all pieces of work depend on


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What is streamed: the last days of a dataset, old facts that are asked for, and how often is trained again."""

    data: str = "icews14-forecast"
    days: int = 61
    old: int = 2000
    every: int = 5  # days between trainings, after the first day
    seed: int = 0
    with_model: bool = True  # whether a model and history are streamed too

    @property
    def moments(self) -> list[int]:
        """The numbers of days after which memories are trained again and compared."""
        return list(range(1 + self.every, self.days + 1, self.every))


QUICK = Plan(data="world", days=5, old=40, every=2, with_model=True)


def run(workspace: Workspace) -> dict[str, Any]:
    """Stream the days through every system of both memories."""
    plan = QUICK if workspace.quick else Plan()
    if workspace.data:
        plan = replace(plan, data=workspace.data)
    entry = _small(CONT) if workspace.quick else CONT
    stream = read_stream(_graph(workspace, plan), days=plan.days, old=plan.old)
    entries = (None, entry) if plan.with_model else (None,)
    memories = [Streamed(workspace, plan, stream, each) for each in entries]
    workspace.expected = sum(each.pieces for each in memories)
    sizes = [stream.sizes(0), stream.sizes(plan.days)]
    return {
        "plan": asdict(plan),
        "moments": plan.moments,
        "model": entry.to_dict() if plan.with_model else None,
        "sizes": {"before": sizes[0], "after": sizes[1]},
        "facts": {
            "base": len(stream.base),
            "old": len(stream.old),
            "learned": sum(len(day.learned) for day in stream.days),
            "withheld": sum(len(day.withheld) for day in stream.days),
        },
        "memories": [each.run() for each in memories],
    }


def _graph(workspace: Workspace, plan: Plan) -> EpisodicGraph:
    if plan is QUICK:
        return dataset("world", countries=6, years=2)
    return workspace.graph(plan.data)


def _small(entry: Entry) -> Entry:
    """Return an entry that trains in seconds, to try the code."""
    config = replace(entry.config, dim=4, predicate_dim=None)
    return replace(entry, config=config, recipe=replace(entry.recipe, epochs=1))


class Streamed:
    """The figures of one memory: each day for systems that learn daily, each moment for all."""

    def __init__(self, workspace: Workspace, plan: Plan, stream: Stream, entry: Entry | None) -> None:
        self.workspace, self.plan, self.stream = workspace, plan, stream
        self.systems = Systems(workspace, stream, entry, seed=plan.seed)
        self.retrained = RETRAINED if entry is not None else ("scratch",)
        self.daily = DAILY if entry is None else ()  # forecasts are those of history, with and without a model

    @property
    def pieces(self) -> int:
        """The number of pieces of work."""
        return len(self.daily) * self.plan.days + (2 + len(self.retrained)) * len(self.plan.moments) + 1

    def run(self) -> dict[str, Any]:
        """Return all figures of the memory."""
        days = {system: [self._day(system, count) for count in range(self.plan.days)] for system in self.daily}
        moments = {
            system: [self._moment(system, count) for count in self.plan.moments] for system in (*DAILY, *self.retrained)
        }
        return {
            "name": self.systems.name,
            "base_cpu_seconds": self.systems.base.cpu_seconds,
            "days": {system: summary(pieces, ("predicted", "withheld")) for system, pieces in days.items()},
            "moments": {
                system: summary(pieces, ("predicted", "withheld", "old")) for system, pieces in moments.items()
            },
            "base_old": mean_ranks([self._cached("base", 0, self._base)["old"]]),
            "gain": {system: difference(moments["ours"], moments[system]) for system in moments},
            "new_predicted": by_group(days, "new_predicted") if days else {},
            "new_withheld": by_group(moments, "new_withheld"),
            "last": {
                system: {"who": mean_ranks([piece["all_withheld"]])["who"], **_kept(piece)}
                for system, piece in ((name, pieces[-1]) for name, pieces in moments.items())
            },
        }

    def _base(self) -> dict[str, Any]:
        """Ask for old facts before the first day."""
        return {"old": reciprocal_ranks(self.systems.base.learned.scorer, self.stream.old, "so", self.known(0))}

    def _cached(self, what: str, count: int, compute: Callable[[], dict[str, Any]], **settings: int) -> dict[str, Any]:
        """Return a piece of work; what it depends on besides are `settings`."""
        plan = {name: value for name, value in asdict(self.plan).items() if name in SHARED}
        key = {**plan, "memory": self.systems.name, "what": what, "count": count, **settings}
        return self.workspace.cached(f"{self.systems.name} {what} {count}", key, compute)

    def _day(self, system: str, count: int) -> dict[str, Any]:
        return self._cached(f"{system} day", count, partial(self._ask_day, system, count))

    def _moment(self, system: str, count: int) -> dict[str, Any]:
        return self._cached(system, count, partial(self._ask_moment, system, count), every=self.plan.every)

    def _ask_day(self, system: str, count: int) -> dict[str, Any]:
        """Predict day `count`, learn it, and ask for what was withheld."""
        day = self.stream.days[count]
        predicted = self._predict(self._state(system, count), count)
        after = self._state(system, count + 1)
        known = self.known(count + 1)
        return {
            "predicted": predicted,
            "new_predicted": NewEntity.of(self.stream, day.facts, count).group(predicted),
            "withheld": reciprocal_ranks(after.learned.scorer, day.withheld, "spot", known),
            "cpu_seconds": after.cpu_seconds,
        }

    def _ask_moment(self, system: str, count: int) -> dict[str, Any]:
        """Ask for what was withheld in the days since the last moment, for old facts, and for the next day."""
        state, known = self._state(system, count), self.known(count)
        scorer = state.learned.scorer
        days = self.stream.days[max(0, count - self.plan.every) : count]
        withheld = Facts.concat([day.withheld for day in days])
        ranks = reciprocal_ranks(scorer, withheld, "spot", known)
        found = {
            "withheld": ranks,
            "new_withheld": NewEntity.of(self.stream, withheld, count).group(ranks),
            "old": reciprocal_ranks(scorer, self.stream.old, "so", known),
            "cpu_seconds": fmean(self.systems.seconds.values()) if system == "ours" else state.cpu_seconds,
        }
        if count < self.plan.days:
            found["predicted"] = self._predict(state, count)
        else:
            found["all_withheld"], found["calibration"] = self._ask_last(state)
        return found

    def _predict(self, state: State, count: int) -> Ranks:
        """Return the ranks of the facts of day `count`, forecast from those before."""
        forecaster = self.systems.extended(state, count + 1).learned.forecaster
        assert forecaster is not None
        return reciprocal_ranks(forecaster, self.stream.days[count].facts, "spo", self.known(count + 1))

    def _ask_last(self, state: State) -> tuple[Ranks, dict[str, Any]]:
        """Ask for all withheld facts after the last day; return their ranks and the errors of the calibration."""
        known = self.known(self.plan.days)
        withheld = Facts.concat([day.withheld for day in self.stream.days])
        scorer: Scorer = state.learned.scorer
        stored = FactIndex(state.learned.graph.split("train"), known.sizes)
        errors = calibration_errors(scorer, state.learned.calibration, withheld, known=known, stored=stored)
        return reciprocal_ranks(scorer, withheld, "so", known), errors

    def _state(self, system: str, count: int) -> State:
        if system == "warm":
            return self.systems.warm(count, self.plan.every)
        state: State = getattr(self.systems, system)(count)
        return state

    def known(self, count: int) -> FactIndex:
        """Return all facts of the times so far, of which other answers are left out."""
        facts = Facts.concat([self.stream.base, self.stream.old, *(day.facts for day in self.stream.days[:count])])
        return FactIndex(facts, self.stream.sizes(count))


def _kept(piece: dict[str, Any]) -> dict[str, Any]:
    return {name: piece[name] for name in ("calibration", "cpu_seconds")}
