"""An application with a memory inside: who serviced which machine, when, and who is likely to come next."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import polars as pl

import recollect

SERVICES = "services"  # the only predicate


class Answer(NamedTuple):
    """A technician, and whether a visit is on record or only likely."""

    technician: str
    probability: float
    is_on_record: bool


class ServiceLog:
    """The visits of technicians to machines, by day. All threads of a process may use one log."""

    def __init__(self, folder: Path) -> None:
        self._memory = recollect.load(folder)

    @classmethod
    def create(cls, folder: Path, visits: pl.DataFrame) -> ServiceLog:
        """Learn the visits so far, columns technician, machine and day, into a new folder."""
        columns = {"subject": "technician", "predicate": f"={SERVICES}", "object": "machine", "time": "day"}
        graph = recollect.read(visits, columns=columns, grain="day")
        recollect.Memory.learn(graph, model="history").save(folder)
        return cls(folder)

    def who(self, machine: str, day: str) -> list[Answer]:
        """Return who serviced a machine on a day, or would most likely do so."""
        found = self._memory.recall(predicate=SERVICES, object=machine, time=day, top=3)
        rows = found.select("subject", "probability", "status").rows()
        return [Answer(technician, probability, status == "stored") for technician, probability, status in rows]

    def machines_of(self, technician: str, day: str) -> list[str]:
        """Return the machines that a technician serviced on a day."""
        found = self._memory.know(subject=technician, predicate=SERVICES, as_of=day, include="stored", top=100)
        return sorted(found["object"])

    def record(self, technician: str, machine: str, day: str, *, request: str) -> bool:
        """Store a visit, durably; return whether it was new. The same request twice is done once."""
        added = self._memory.remember(subject=technician, predicate=SERVICES, object=machine, time=day, key=request)
        return added.height > 0

    def strike(self, technician: str, machine: str, day: str) -> bool:
        """Remove a visit that was recorded by mistake; return whether there was one."""
        return self._memory.forget(subject=technician, predicate=SERVICES, object=machine, time=day).height > 0
