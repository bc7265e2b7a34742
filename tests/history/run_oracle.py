"""λ and the sums of a fitting pass over stored runs in loops, written from the definitions and not from the code.

A store is a set of (s, p, o, first, last). Everything about a fact is computed in the store without its run; with
`past`, in the store before its time, in which runs that have begun end at the time before.
"""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import strategies as st

from recollect import Facts
from recollect.graph.runs import Runs
from recollect.history.history import History
from tests.history.oracle import COLUMNS, Evidence, Fact, number, random_history, weights_row
from tests.history.oracle import others as candidates

Run = tuple[int, int, int, int, int]
GAPS = st.lists(
    st.tuples(st.integers(1, 3), st.integers(0, 4)), max_size=4
)  # times before a run, times after its first


def stores(entities: int = 3, predicates: int = 2, times: int = 16) -> st.SearchStrategy[set[Run]]:
    """Sets of runs of which those of one triple neither overlap nor follow each other."""
    ids = st.tuples(st.integers(0, entities - 1), st.integers(0, predicates - 1), st.integers(0, entities - 1))

    def place(gaps: dict[tuple[int, int, int], list[tuple[int, int]]]) -> set[Run]:
        found = set()
        for triple, lengths in gaps.items():
            at = -2
            for gap, more in lengths:
                first = at + 1 + gap
                at = first + more
                if at < times:
                    found.add((*triple, first, at))
        return found

    return st.dictionaries(ids, GAPS, min_size=1, max_size=8).map(place).filter(bool)


def as_runs(store: set[Run]) -> Runs:
    rows = sorted(store)
    return Runs(Facts.of([row[:4] for row in rows]), torch.tensor([row[4] for row in rows], dtype=torch.int64))


def covers(run: Run, t: int) -> bool:
    return run[3] <= t <= run[4]


def without(store: set[Run], fact: Fact) -> set[Run]:
    """The store without the run of a fact."""
    return {run for run in store if run[:3] != fact[:3] or not covers(run, fact[3])}


def before(store: set[Run], t: int) -> set[Run]:
    """The store as it was before a time."""
    return {(*run[:4], min(run[4], t - 1)) for run in store if run[3] < t}


def bin_of(history: History, same_triple: list[Run], run: Run, t: int) -> int:
    """The bin of a run as seen from t."""
    bins = history.bins.layout
    first, last = run[3:]
    if first <= t <= last:
        return 0
    side, lag = (0, t - last) if last < t else (bins.side, first - t)
    between = [x for x in same_triple if (last < x[3] and x[4] < t) or (t < x[3] and x[4] < first)]
    if between:
        return 1 + side + len(bins.runs) + len(bins.near) + number(bins.older, lag)
    if lag == 1:
        return 1 + side + number(bins.runs, last - first + 1)
    return 1 + side + len(bins.runs) + number(bins.near, lag)


def evidence(store: set[Run], history: History, fact: Fact, slot: str) -> list[Evidence]:
    """What stored runs between the same two entities say for a fact; `fact` of each is the run's."""
    s, p, o, t = fact
    predicates, classes = history.sizes["predicate"], history.classes
    source, target, asked = (o, s, classes[p + predicates]) if slot == "s" else (s, o, classes[p])
    rest, found = without(store, fact), []
    for run in rest:
        for u, v, r in ((run[0], run[2], run[1]), (run[2], run[0], run[1] + predicates)):
            if (u, v) == (source, target):
                same = [x for x in rest if x[:3] == run[:3]]
                closest = (*run[:3], min(max(t, run[3]), run[4]))
                found.append(Evidence(closest, (int(asked), int(classes[r]), bin_of(history, same, run, t))))
    return found


def shares(store: set[Run], history: History, fact: Fact, slot: str) -> list[float]:
    """The popularity of a fact's id of a slot: by runs, or where a time is asked for, by facts."""
    s, p, o, t = fact
    rest, sizes = without(store, fact), history.sizes
    of_predicate = [x for x in rest if x[1] == p]

    def share(given: list[Run], position: int) -> float:
        return sum(x[position] == fact[position] for x in given) / max(1, len(given))

    def share_of_time(given: list[Run]) -> float:
        return sum(covers(x, t) for x in given) / max(1, sum(x[4] - x[3] + 1 for x in given))

    if slot in "so":
        return [1 / sizes["entity"], share(of_predicate, "spo".index(slot))]
    if slot == "p":
        given = [list(rest), [x for x in rest if x[0] == s], [x for x in rest if x[2] == o]]
        return [1 / sizes["predicate"], *(share(each, 1) for each in given)]
    given = [list(rest), of_predicate, *([x for x in rest if entity in (x[0], x[2])] for entity in (s, o))]
    given += [[x for x in of_predicate if x[0] == s], [x for x in of_predicate if x[2] == o]]
    return [1 / sizes["time"], *map(share_of_time, given)]


def rate(store: set[Run], history: History, fact: Fact, slot: str) -> float:
    """λ of a fact as the answer of a slot."""
    name = "o" if slot == "s" else slot
    kernel, weights = history.kernels[name], history.weights[name][weights_row(history, fact, slot)]
    spoken = sum(float(kernel[said.entry]) for said in evidence(store, history, fact, slot))
    parts = zip(weights, shares(store, history, fact, slot), strict=True)
    return spoken + sum(float(weight) * share for weight, share in parts)


def add_query(store: set[Run], history: History, fact: Fact, slot: str, sums: list[np.ndarray]) -> float:
    """Add hits, exposure, weight hits and weight exposure of one query, its run left out; return log λ/Z."""
    hits, exposure, weight_hits, weight_exposure = sums
    name, row, rest = "o" if slot == "s" else slot, weights_row(history, fact, slot), without(store, fact)
    kernel, weights = history.kernels[name], history.weights[name][row].astype(float)
    own = rate(rest, history, fact, slot)
    said = [each for other in candidates(fact, slot, history.sizes) for each in evidence(rest, history, other, slot)]
    total = weights.sum() + sum(float(kernel[each.entry]) for each in said)
    for each in said:
        exposure[each.entry] += 1 / total
    for each in evidence(rest, history, fact, slot):
        hits[each.entry] += kernel[each.entry] / own
    weight_hits[row] += weights * shares(rest, history, fact, slot) / own
    weight_exposure[row] += 1 / total
    return float(np.log(own / total))


def random_run_history(store: set[Run], sizes: dict[str, int], *, past: bool = False, levels: int = 0) -> History:
    """A history of runs with random kernels and weights."""
    assert set(COLUMNS) == set("opt")
    facts = {run[:4] for run in store}
    return random_history(facts, sizes, past=past, levels=levels).with_facts(as_runs(store))
