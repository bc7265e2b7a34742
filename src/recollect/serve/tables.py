"""Tables and runs of a memory as messages."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from recollect.memory.snapshot import Snapshot
from recollect.serve.browse import NEVER, Ints, StoreView
from recollect.serve.messages import Answer, Completion, Edge, Fact, Label, Labels, Reason

SCANNED_TIMES = 100_000  # ordinals whose digits are compared, some 0.1 s


def has_times(memory: Snapshot) -> bool:
    """Return whether a memory is episodic."""
    return "t" in memory.scorer.slots


def time_label(memory: Snapshot, time: int) -> str | None:
    """Return the label of a time; of a semantic memory, the time that it was projected to, if it was."""
    return memory.graph.times.label(time) if has_times(memory) else memory.about.get("projection", {}).get("as_of")


def complete_time(memory: Snapshot, question: Completion) -> Labels:
    """Return times whose labels begin with a text, in their order; the number of facts is left at 0."""
    times = memory.graph.times
    first, count = 0, len(times) if has_times(memory) else 0
    if times.grain != "ordinal":  # the order of other labels is that of their times
        first = bisect_left(range(count), question.text, key=times.label)
        count = min(count, first + question.top)
    labels = (times.label(i) for i in range(first, min(count, first + SCANNED_TIMES)))
    found = islice((label for label in labels if label.startswith(question.text)), question.top)
    return Labels(labels=[Label(label=label, facts=0) for label in found])


def example_fact(view: StoreView) -> Fact | None:
    """Return a fact from the middle of the store; None if it is empty."""
    if not len(view.s):
        return None
    (edge,) = edges(view, np.array([len(view.s) // 2]), 0)
    return Fact(subject=edge.subject, predicate=edge.predicate, object=edge.object, time=edge.start)


def answers_of(table: pl.DataFrame, time: str | None = None) -> list[Answer]:
    """Return the rows of a table of answers; `time` is that of rows without one."""
    answers = []
    for fields in answer_fields(table):
        fields.pop("query", None)
        answers.append(Answer(**{**fields, "time": fields["time"] or time}))
    return answers


def answer_fields(table: pl.DataFrame) -> Iterator[dict[str, Any]]:
    """Yield the fields of each row of a table of answers."""
    for row in table.iter_rows(named=True):
        why = row.pop("why", None)
        yield {"time": None, **row, "why": None if why is None else [Reason(**reason) for reason in why]}


def edges(view: StoreView, runs: Ints, time: int) -> list[Edge]:
    """Return stored runs by label, and whether each holds at a time."""
    graph, times = view.graph, view.graph.times
    columns = (view.s, view.p, view.o, view.first, view.last)
    numbers = zip(*(column[runs].tolist() for column in columns), view.holds(runs, time).tolist(), strict=True)
    return [
        Edge(
            subject=graph.entities.labels[s],
            predicate=graph.predicates.labels[p],
            object=graph.entities.labels[o],
            start=times.label(first) if view.has_times else None,
            end=times.label(last) if view.has_times and last < NEVER else None,
            holds=is_held,
        )
        for s, p, o, first, last, is_held in numbers
    ]


def thinned(values: NDArray[np.float64], count: int) -> Ints:
    """Return the indices of the largest of every block of neighbouring values, of at most `count` blocks.

    >>> thinned(np.array([0.1, 0.3, 0.2, 0.2, 0.5]), 3).tolist()
    [1, 2, 4]
    """
    width = max(1, -(-len(values) // count))
    blocks = -(-len(values) // width)
    padded = np.full(blocks * width, -np.inf)
    padded[: len(values)] = values
    return padded.reshape(blocks, width).argmax(axis=1) + np.arange(blocks) * width
