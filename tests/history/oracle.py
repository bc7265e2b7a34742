"""λ and the sums of a fitting pass in loops over plain facts, written from the definitions and not from the code.

A store is a set of (s, p, o, t). Everything about a fact is computed in the store without that fact; with `past`, in
the store before its time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from recollect import Facts
from recollect.history.bins import NEAR, OLDER, RUNS, SIDE, layout
from recollect.history.edges import predicate_classes
from recollect.history.history import History

Fact = tuple[int, int, int, int]
COLUMNS = {"o": 2, "p": 4, "t": 7}


class Evidence(NamedTuple):
    """A stored fact that speaks for another: its number in the first axes of a kernel, and its bin."""

    fact: Fact
    entry: tuple[int, int, int]


def number(bounds: tuple[int, ...], value: int) -> int:
    """The position of the last bound that is not above a value."""
    return max(i for i, bound in enumerate(bounds) if bound <= value)


def bin_of(times: set[int], at: int, t: int) -> int:
    """The bin, as seen from t, of the fact at time `at` of a triple that has facts at `times`."""
    if at == t:
        return 0
    lag, backwards = abs(t - at), -1 if at < t else 1
    side = 0 if at < t else SIDE
    if any(min(at, t) < other < max(at, t) for other in times):
        return 1 + side + len(RUNS) + len(NEAR) + number(OLDER, lag)
    if lag > 1:
        return 1 + side + len(RUNS) + number(NEAR, lag)
    run = 1
    while at + backwards * run in times:
        run += 1
    return 1 + side + number(RUNS, run)


def others(fact: Fact, slot: str, sizes: dict[str, int]) -> Iterator[Fact]:
    """The facts with any id in a slot."""
    position = "spot".index(slot)
    for candidate in range(sizes[{"s": "entity", "p": "predicate", "o": "entity", "t": "time"}[slot]]):
        yield (*fact[:position], candidate, *fact[position + 1 :])


def evidence(store: set[Fact], history: History, fact: Fact, slot: str) -> list[Evidence]:
    """What the stored facts between the same two entities say for a fact. A subject is the target of an inverse."""
    s, p, o, t = fact
    predicates, classes = history.sizes["predicate"], history.classes
    source, target, asked = (o, s, classes[p + predicates]) if slot == "s" else (s, o, classes[p])
    found = []
    for other in store - {fact}:
        directions = [(other[0], other[2], other[1]), (other[2], other[0], other[1] + predicates)]
        for u, v, r in directions:
            if (u, v) == (source, target):
                times = {x[3] for x in store - {fact} if x[:3] == other[:3]}
                found.append(Evidence(other, (int(asked), int(classes[r]), bin_of(times, other[3], t))))
    return found


def shares(store: set[Fact], history: History, fact: Fact, slot: str) -> list[float]:
    """The popularity of a fact's id of a slot, column by column."""
    s, p, o, t = fact
    rest, sizes = store - {fact}, history.sizes
    if slot != "t" and history.past["o" if slot == "s" else slot]:
        rest = {x for x in rest if x[3] < t}

    def share(given: list[Fact], position: int) -> float:
        return sum(x[position] == fact[position] for x in given) / max(1, len(given))

    of_predicate = [x for x in rest if x[1] == p]
    if slot in "so":
        return [1 / sizes["entity"], share(of_predicate, "spot".index(slot))]
    if slot == "p":
        given = [list(rest), [x for x in rest if x[0] == s], [x for x in rest if x[2] == o]]
        return [1 / sizes["predicate"], *(share(each, 1) for each in given)]
    given = [list(rest), of_predicate, *([x for x in rest if entity in (x[0], x[2])] for entity in (s, o))]
    given += [[x for x in of_predicate if x[0] == s], [x for x in of_predicate if x[2] == o]]
    return [1 / sizes["time"], *(share(each, 3) for each in given)]


def weights_row(history: History, fact: Fact, slot: str) -> int:
    """The row of the weights of popularity of a query: by class of the asked predicate, one for all in slot p."""
    return 0 if slot == "p" else int(history.classes[fact[1] + (history.sizes["predicate"] if slot == "s" else 0)])


def rate(store: set[Fact], history: History, fact: Fact, slot: str) -> float:
    """λ of a fact as the answer of a slot."""
    name = "o" if slot == "s" else slot
    kernel, weights = history.kernels[name], history.weights[name][weights_row(history, fact, slot)]
    spoken = sum(float(kernel[said.entry]) for said in evidence(store, history, fact, slot))
    parts = zip(weights, shares(store, history, fact, slot), strict=True)
    return spoken + sum(float(weight) * share for weight, share in parts)


def add_query(store: set[Fact], history: History, fact: Fact, slot: str, sums: list[np.ndarray]) -> float:
    """Add hits, exposure, weight hits and weight exposure of one query, its fact left out; return log λ/Z."""
    hits, exposure, weight_hits, weight_exposure = sums
    name, row, rest = "o" if slot == "s" else slot, weights_row(history, fact, slot), store - {fact}
    kernel, weights = history.kernels[name], history.weights[name][row].astype(float)
    own = rate(rest, history, fact, slot)
    said = [each for other in others(fact, slot, history.sizes) for each in evidence(rest, history, other, slot)]
    total = weights.sum() + sum(float(kernel[each.entry]) for each in said)
    for each in said:
        exposure[each.entry] += 1 / total
    for each in evidence(rest, history, fact, slot):
        hits[each.entry] += kernel[each.entry] / own
    weight_hits[row] += weights * shares(rest, history, fact, slot) / own
    weight_exposure[row] += 1 / total
    return float(np.log(own / total))


def random_history(store: set[Fact], sizes: dict[str, int], *, past: bool = False, levels: int = 0) -> History:
    """A history with random kernels and weights, so that a wrong class, bin or column shows."""
    bins = layout(levels)
    rng = np.random.default_rng(0)
    facts = Facts.of(sorted(store))
    classes = predicate_classes(facts, sizes["predicate"])
    count = int(classes.max()) + 1
    asked = {"o": count, "p": count // 2, "t": count // 2}
    kernels = {slot: rng.uniform(0.1, 2, (n, count, bins.count)).astype(np.float32) for slot, n in asked.items()}
    weights = {
        slot: rng.uniform(0.1, 2, (1 if slot == "p" else n, COLUMNS[slot])).astype(np.float32)
        for slot, n in asked.items()
    }
    if past:
        for kernel in kernels.values():
            kernel[:, :, [0, *range(1 + bins.side, bins.count)]] = 0
    return History(facts, sizes, classes, kernels, weights)
