"""A synthetic dataset: a small world simulated month by month.

Offices change hands; alliances, treaties and wars start and end; visits follow alliances. All depend on hidden blocs
and their relations, so a model can infer held-out facts. Every fact has a known start and end.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import polars as pl
import torch

from recollect.errors import UserError
from recollect.graph.episodes import split_randomly
from recollect.graph.facts import EpisodicGraph
from recollect.graph.seeds import seeded
from recollect.io.assembly import assemble
from recollect.io.table import Table

FIRST_YEAR = 2000
_ONSETS = ("B", "D", "F", "G", "K", "L", "M", "N", "P", "R", "S", "T", "V", "Z", "Br", "Dr", "Kr", "St", "Tr", "Th")
_VOWELS = ("a", "e", "i", "o", "u", "ai", "ea", "io")
_CODAS = ("l", "n", "r", "s", "th", "v", "m", "")
_ENDINGS = {"country": ("ia", "land", "mark", "stan", "ora"), "person": ("son", "ez", "ova", "man", "ini", "ak")}
_OFFICES = ("President of", "Foreign minister of", "Ambassador of")
_TERM = {"President of": 48, "Foreign minister of": 30, "Ambassador of": 36}  # months, at most


class _State(NamedTuple):
    """A fact that holds in months [start, end), counted from the first month."""

    subject: str
    predicate: str
    object: str
    start: int
    end: int


def world(*, countries: int = 24, years: int = 10, seed: int = 0) -> EpisodicGraph:
    """Return a synthetic world of `countries` over `years`, by month, split at random.

    >>> graph = world(countries=6, years=2)
    >>> graph.times.labels[-1], "President of" in graph.predicates.labels
    ('2001-12', True)
    """
    if not 4 <= countries <= 2000 or not 1 <= years <= 500:
        raise UserError(f"no world of {countries} countries and {years} years; wanted 4 to 2,000 and 1 to 500")
    draw = _Random(seed)
    months = 12 * years
    lands = draw.names("country", countries)
    blocs = max(2, countries // 6)
    bloc = {land: i % blocs for i, land in enumerate(lands)}
    affinity = draw.affinity(blocs)
    offices = [state for land in lands for state in _terms(land, months, draw)]
    states = [*offices, *_relations(lands, bloc, affinity, months, draw)]
    presidents: dict[tuple[str, int], str] = {}  # (country, month) -> person
    for state in offices:
        if state.predicate == "President of":
            presidents |= {(state.object, month): state.subject for month in _span(state)}
    states += _visits(states, presidents, draw)
    frame = pl.DataFrame(states, schema=_State._fields, orient="row")
    labels = {i: _month(i) for i in range(months + 1)}
    frame = frame.with_columns(pl.col("start", "end").replace_strict(labels))
    table = Table(frame, lambda row: f"row {row} of the world", "world")
    return split_randomly(assemble({"train": table}, grain="month", expand=True, name="world"), seed=seed)


def _terms(land: str, months: int, draw: _Random) -> Iterator[_State]:
    """Yield the terms of every office of a country: one person after another, without a gap."""
    people = draw.names("person", 2 + months // 12)
    for office in _OFFICES:
        at, person = 0, draw.pick(people)
        while at < months:
            end = min(months, at + draw.between(_TERM[office] // 3, _TERM[office]))
            yield _State(person, office, land, at, end)
            at, person = end, draw.pick([p for p in people if p != person])


def _relations(
    lands: list[str], bloc: dict[str, int], affinity: list[list[float]], months: int, draw: _Random
) -> Iterator[_State]:
    """Yield alliances, trade and wars of every pair of countries, drawn with probabilities affinity[bloc][bloc]."""
    for i, a in enumerate(lands):
        for b in lands[i + 1 :]:
            friendly = affinity[bloc[a]][bloc[b]]
            for predicate, chance, length in (
                ("Allied with", max(0.0, friendly) ** 2, 60),
                ("Treaty with", max(0.0, friendly), 36),
                ("Trades with", 0.3 + 0.5 * friendly, 24),
                ("Sanctions", max(0.0, -friendly), 18),
                ("At war with", max(0.0, -friendly) ** 2, 12),
            ):
                for state in _periods(predicate, a, b, chance, length, months, draw):
                    yield state
                    if predicate != "Sanctions":  # the others are symmetric
                        yield _State(b, predicate, a, state.start, state.end)


def _periods(
    predicate: str, a: str, b: str, chance: float, length: int, months: int, draw: _Random
) -> Iterator[_State]:
    """Yield the periods of a relation; a pair has the relation at all with probability `chance`."""
    if not draw.chance(chance):
        return
    at = draw.between(0, months // 2)
    while at < months:
        end = min(months, at + draw.between(length // 3, length))
        yield _State(a, predicate, b, at, end)
        at = end + draw.between(length, 3 * length)


def _visits(states: list[_State], presidents: dict[tuple[str, int], str], draw: _Random) -> Iterator[_State]:
    """Yield visits of presidents to allies and treaty partners, and condemnations of sanctioned or enemy countries."""
    kinds = {"Allied with": "Visits", "Treaty with": "Visits", "Sanctions": "Condemns", "At war with": "Condemns"}
    for state in states:
        if state.predicate not in kinds:
            continue
        for month in _span(state):
            if draw.chance(0.12):
                yield _State(presidents[state.subject, month], kinds[state.predicate], state.object, month, month + 1)


def _span(state: _State) -> range:
    return range(state.start, state.end)


def _month(index: int) -> str:
    return f"{FIRST_YEAR + index // 12}-{index % 12 + 1:02d}"


class _Random:
    """Random draws from one seeded generator, buffered in blocks of 4,096."""

    def __init__(self, seed: int) -> None:
        self._generator = seeded(seed)
        self._block: list[float] = []
        self._used_names: set[str] = set()

    def uniform(self) -> float:
        """Return a number from [0, 1)."""
        if not self._block:
            self._block = torch.rand(4096, generator=self._generator, dtype=torch.float64).tolist()
        return self._block.pop()

    def chance(self, p: float) -> bool:
        """Return True with probability p."""
        return self.uniform() < p

    def between(self, low: int, high: int) -> int:
        """Return a whole number from `low` to `high`, both included."""
        return low + int(self.uniform() * (high - low + 1))

    def pick(self, items: list[str] | tuple[str, ...]) -> str:
        """Return one of the items."""
        return items[self.between(0, len(items) - 1)]

    def names(self, kind: str, count: int) -> list[str]:
        """Return `count` pronounceable names that were not returned before."""
        names: list[str] = []
        while len(names) < count:
            name = self._word()
            if kind == "person":
                name = f"{self._word()} {name}"
            name += self.pick(_ENDINGS[kind])
            if name not in self._used_names:
                self._used_names.add(name)
                names.append(name)
        return names

    def affinity(self, blocs: int) -> list[list[float]]:
        """Return a symmetric matrix in [−1, 1], (blocs, blocs): 0.9 on the diagonal, random elsewhere."""
        table = [[0.0] * blocs for _ in range(blocs)]
        for i in range(blocs):
            table[i][i] = 0.9
            for j in range(i):
                table[i][j] = table[j][i] = self.uniform() * 1.6 - 1.0
        return table

    def _word(self) -> str:
        return self.pick(_ONSETS) + self.pick(_VOWELS) + self.pick(_CODAS)
