"""Graphs of odd labels, and what it means that two graphs are the same: for the tests of exports."""

from __future__ import annotations

from dataclasses import replace

import torch
from hypothesis import strategies as st

from recollect import EpisodicGraph, Facts, TimeAxis, Vocabulary
from recollect.graph.runs import Runs, RunSplits, merge_runs
from recollect.io.exchange import FORMATS

ODD = [
    *("", " ", "a", "a b", "0", "-1", "1e5", "2014-12-25", "NaN", "null", "true", "#", "# a", "<", ">", "<a> <b> ."),
    *("%", "%41", "A", "'", '"', '""', '"a"^^<b>', "{subject}", "{}", "urn:recollect:at", "+", "~", "a/b"),
    *("\t", "\n", "\r", "\r\n", "a\tb\nc\rd", "\\", "\\t", "\\\t", "\\\\n", "\\q", "subject\tpredicate"),
    *("\0", "\0\1", "\x01", "\x0b", "\x0c", "\x1c", "\x7f", "\x85", "\u2028", "\u2029", "\ufeff", "\ufeffa"),
    *("é", "e\u0301", "🦜", "\U0010ffff", "\ue000", "Ελλάδα"),
]
AXES = {
    "year": TimeAxis("year", 998, 4),
    "quarter": TimeAxis("quarter", 2014 * 4 + 2, 4),
    "month": TimeAxis("month", 2014 * 12 + 10, 4),
    "week": TimeAxis("week", 2348, 4),
    "day": TimeAxis("day", 16430, 4),
    "hour": TimeAxis("hour", 400_000, 30),
    "ordinal": TimeAxis("ordinal", -48, 4, 24),
}
LABELS = st.one_of(st.sampled_from(ODD), st.text(max_size=5))
AT = st.builds(
    TimeAxis, st.just("ordinal"), st.integers(-(10**16), 10**16), st.integers(1, 9), st.integers(1, 10**6)
) | st.sampled_from(list(AXES.values()))
WITH_EXTRAS = [name for name in FORMATS if FORMATS[name].extras]  # formats that can express values and weights


@st.composite
def graphs(draw, extras: bool) -> EpisodicGraph:
    """Generate graphs of any labels, some of them without facts, with any splits in any order."""
    entities = Vocabulary.of("entity", draw(st.lists(LABELS, min_size=1, max_size=6)))
    predicates = Vocabulary.of("predicate", draw(st.lists(LABELS, min_size=1, max_size=3)))
    times = draw(AT)
    sizes = (len(entities), len(predicates), len(entities), len(times))
    row = st.tuples(*(st.integers(0, size - 1) for size in sizes))
    splits = {}
    for name in draw(st.permutations(["train", "valid", "test", "held-out_2"]))[: draw(st.integers(0, 4))]:
        facts = Facts.of(draw(st.lists(row, max_size=5)))
        n = len(facts)
        if extras and draw(st.booleans()):
            value = draw(st.lists(st.booleans(), min_size=n, max_size=n))
            facts = replace(facts, value=torch.tensor(value, dtype=torch.bool))
        if extras and draw(st.booleans()):
            weight = draw(st.lists(st.floats(width=32, allow_nan=False), min_size=n, max_size=n))
            facts = replace(facts, weight=torch.tensor(weight, dtype=torch.float32))
        splits[name] = facts
    return EpisodicGraph(entities, predicates, times, splits, draw(LABELS), draw(st.integers(0, 9)))


@st.composite
def interval_graphs(draw, extras: bool) -> EpisodicGraph:
    """Generate graphs of intervals, with the labels and the splits of any graph."""
    graph = draw(graphs(extras=False))
    runs = {}
    for name, facts in graph.splits.items():
        lengths = draw(st.lists(st.integers(0, 8), min_size=len(facts), max_size=len(facts)))
        if extras and draw(st.booleans()):
            facts = replace(facts, weight=torch.tensor(lengths, dtype=torch.float32))
        last = (facts.t + torch.tensor(lengths, dtype=torch.int64)).clamp(max=len(graph.times) - 1)
        ongoing = (last == len(graph.times) - 1) if draw(st.booleans()) else None
        runs[name] = merge_runs(Runs(facts, last, ongoing), graph.sizes)
    return graph.with_splits(RunSplits(runs, graph.times.grain))


def example(grain: str = "day", extras: bool = False) -> EpisodicGraph:
    """Return a graph of all odd labels and two labels without facts."""
    entities, predicates = Vocabulary.of("entity", [*ODD, "idle"]), Vocabulary.of("predicate", [*ODD, "idle"])
    used = [i for i, label in enumerate(entities.labels) if label != "idle"]
    rows = [(i, used[-1 - n], used[n // 2], n % 4) for n, i in enumerate(used)]
    splits = {"valid": Facts.of(rows[:1]), "test": Facts.of([]), "train": Facts.of(rows[1:][::-1])}
    if extras:
        weight = torch.rand(len(rows) - 1, generator=torch.Generator().manual_seed(0))
        splits["train"] = replace(splits["train"], weight=weight, value=weight > 0.5)
    return EpisodicGraph(entities, predicates, AXES[grain], splits, "odd\n🦜", 7)


def plain() -> EpisodicGraph:
    """Return a graph that any tool can read."""
    entities = Vocabulary.of("entity", ["Iran", "Syria", "Turkey"])
    predicates = Vocabulary.of("predicate", ["Consult", "Fight with"])
    splits = {"train": Facts.of([(0, 0, 1, 0), (1, 1, 2, 3)]), "test": Facts.of([(2, 1, 1, 1)])}
    return EpisodicGraph(entities, predicates, AXES["day"], splits, "plain")


def weighted(weights: list[float]) -> EpisodicGraph:
    """Return a graph of one triple with these weights at consecutive times."""
    facts = Facts.of([(0, 0, 1, i) for i in range(len(weights))])
    return replace(
        plain(),
        times=TimeAxis("ordinal", 0, len(weights)),
        splits={"train": replace(facts, weight=torch.tensor(weights))},
    )


def assert_same(one: EpisodicGraph, other: EpisodicGraph) -> None:
    """Assert that two graphs are equal in all labels, facts, values and bits of weights."""
    assert one.fingerprint == other.fingerprint
    assert (one.name, one.duplicates, one.times) == (other.name, other.duplicates, other.times)
    assert one.entities.labels == other.entities.labels
    assert one.predicates.labels == other.predicates.labels
    assert list(one.splits) == list(other.splits)
    for a, b in zip(one.splits.values(), other.splits.values(), strict=True):
        assert torch.equal(a.ids, b.ids)
        assert (a.value is None, a.weight is None) == (b.value is None, b.weight is None)
        if a.value is not None:
            assert b.value.dtype == torch.bool
            assert torch.equal(a.value, b.value)
        if a.weight is not None:
            assert torch.equal(a.weight.view(torch.int32), b.weight.view(torch.int32))
