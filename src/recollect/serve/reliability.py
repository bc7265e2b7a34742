"""Measure how far the probabilities of a memory can be relied on, in the background: it takes seconds."""

from __future__ import annotations

from concurrent.futures import Future
from threading import Lock, Thread

from recollect.evaluation.calibration import Calibration
from recollect.memory.evaluating import is_forecast
from recollect.memory.snapshot import Snapshot
from recollect.serve.messages import Reliability, ReliabilityBin, SlotReliability

SPLIT = "test"  # the facts that were withheld


class ReliabilityMeter:
    """Measures what was learned once, when it is first asked for. What is remembered later changes it little."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._of: Calibration | None = None  # which is fitted anew whenever a memory learns
        self._found: Future[Reliability] = Future()

    def of(self, memory: Snapshot) -> Reliability:
        """Return what was measured, or that it is being measured."""
        facts = memory.graph.counts.get(SPLIT, 0)
        if not facts:
            return Reliability(status="none", facts=0, ahead=False, slots=[])
        ahead = is_forecast(memory.forecaster, memory.graph, SPLIT)
        with self._lock:
            if self._of is not memory.calibration:
                self._of, self._found = memory.calibration, Future()
                Thread(target=_measure, args=(memory, ahead, self._found), daemon=True).start()
            found = self._found
        return found.result() if found.done() else Reliability(status="measuring", facts=facts, ahead=ahead, slots=[])


def _measure(memory: Snapshot, ahead: bool, found: Future[Reliability]) -> None:
    try:
        found.set_result(reliability_of(memory, ahead=ahead))
    except BaseException as error:
        found.set_exception(error)


def reliability_of(memory: Snapshot, *, ahead: bool) -> Reliability:
    """Return how reliable the probabilities of a memory are on the facts that were withheld."""
    names = ReliabilityBin.__struct_fields__
    slots = []
    for slot, measured in memory.reliability(SPLIT).items():
        bins = [ReliabilityBin(**{name: row[name] for name in names}) for row in measured["after"]["bins"]]
        slots.append(SlotReliability(slot=slot, bins=bins))
    return Reliability(status="measured", facts=memory.graph.counts[SPLIT], ahead=ahead, slots=slots)
