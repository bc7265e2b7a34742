"""A small invented world over some years, simulated month by month: the embedded dataset.

Offices change hands, alliances, treaties and wars start and end, visits follow friendship. All of it
hangs together through hidden blocs and rivalries, so that what is withheld can be inferred, and every
state has a known start and end.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import polars as pl
import torch

from recollect.errors import UserError
from recollect.graph.episodes import split_randomly
from recollect.graph.facts import EpisodicGraph
from recollect.graph.seeds import seeded
from recollect.io.assembly import Table, assemble

FIRST_YEAR = 2000
_ONSETS = ("B", "D", "F", "G", "K", "L", "M", "N", "P", "R", "S", "T", "V", "Z", "Br", "Dr", "Kr", "St", "Tr", "Th")
_VOWELS = ("a", "e", "i", "o", "u", "ai", "ea", "io")
_CODAS = ("l", "n", "r", "s", "th", "v", "m", "")
_ENDINGS = {"country": ("ia", "land", "mark", "stan", "ora"), "person": ("son", "ez", "ova", "man", "ini", "ak")}
_OFFICES = ("President of", "Foreign minister of", "Ambassador of")
_TERM = {"President of": 48, "Foreign minister of": 30, "Ambassador of": 36}  # months, at most


@dataclass(frozen=True)
class _State:
    """Something that holds in [start, end), months from the beginning."""

    subject: str
    predicate: str
    object: str
    start: int
    end: int


def world(*, countries: int = 24, years: int = 10, seed: int = 0) -> EpisodicGraph:
    """An invented world of `countries` over `years`, by month, split at random.

    >>> graph = world(countries=6, years=2)
    >>> graph.times.labels[-1], "President of" in graph.predicates.labels
    ('2001-12', True)
    """
    if not 4 <= countries <= 2000 or not 1 <= years <= 500:
        raise UserError(f"no world of {countries} countries and {years} years; wanted 4 to 2,000 and 1 to 500")
    dice = _Dice(seed)
    months = 12 * years
    lands = dice.names("country", countries)
    blocs = max(2, countries // 6)
    bloc = {land: i % blocs for i, land in enumerate(lands)}
    warmth = dice.warmth(blocs)
    offices = [state for land in lands for state in _terms(land, months, dice)]
    states = [*offices, *_relations(lands, bloc, warmth, months, dice)]
    holder = {(s.object, month): s.subject for s in offices if s.predicate == "President of" for month in _span(s)}
    states += _visits(states, holder, months, dice)
    frame = pl.DataFrame(
        {
            "subject": [s.subject for s in states],
            "predicate": [s.predicate for s in states],
            "object": [s.object for s in states],
            "start": [_month(s.start) for s in states],
            "end": [_month(s.end) for s in states],
        }
    )
    table = Table(frame, lambda row: f"row {row} of the world", "world")
    return split_randomly(assemble({"train": table}, grain="month", name="world"), seed=seed)


def _terms(land: str, months: int, dice: _Dice) -> Iterator[_State]:
    """Every office of a country, held by one person after another, without a gap."""
    people = dice.names("person", 2 + months // 12)
    for office in _OFFICES:
        at, person = 0, dice.pick(people)
        while at < months:
            end = min(months, at + dice.between(_TERM[office] // 3, _TERM[office]))
            yield _State(person, office, land, at, end)
            at, person = end, dice.pick([p for p in people if p != person])


def _relations(
    lands: list[str], bloc: dict[str, int], warmth: list[list[float]], months: int, dice: _Dice
) -> Iterator[_State]:
    """Alliances, treaties, trade and wars between countries, as warm as their blocs are to each other."""
    for i, a in enumerate(lands):
        for b in lands[i + 1 :]:
            warm = warmth[bloc[a]][bloc[b]]
            for predicate, chance, length in (
                ("Allied with", max(0.0, warm) ** 2, 60),
                ("Treaty with", max(0.0, warm), 36),
                ("Trades with", 0.3 + 0.5 * warm, 24),
                ("Sanctions", max(0.0, -warm), 18),
                ("At war with", max(0.0, -warm) ** 2, 12),
            ):
                for state in _spells(predicate, a, b, chance, length, months, dice):
                    yield state
                    if predicate != "Sanctions":  # the others hold both ways
                        yield _State(b, predicate, a, state.start, state.end)


def _spells(predicate: str, a: str, b: str, chance: float, length: int, months: int, dice: _Dice) -> Iterator[_State]:
    """Spells of a state: `chance` is the share of pairs that ever have it; between two lies a pause."""
    if not dice.chance(chance):
        return
    at = dice.between(0, months // 2)
    while at < months:
        end = min(months, at + dice.between(length // 3, length))
        yield _State(a, predicate, b, at, end)
        at = end + dice.between(length, 3 * length)


def _visits(states: list[_State], holder: dict[tuple[str, int], str], months: int, dice: _Dice) -> Iterator[_State]:
    """Presidents visit allies and treaty partners, and condemn those their country sanctions or fights."""
    kinds = {"Allied with": "Visits", "Treaty with": "Visits", "Sanctions": "Condemns", "At war with": "Condemns"}
    for state in states:
        if state.predicate not in kinds:
            continue
        for month in _span(state):
            if dice.chance(0.12):
                yield _State(holder[state.subject, month], kinds[state.predicate], state.object, month, month + 1)


def _span(state: _State) -> range:
    return range(state.start, state.end)


def _month(index: int) -> str:
    return f"{FIRST_YEAR + index // 12}-{index % 12 + 1:02d}"


class _Dice:
    """Draws from one seeded generator, a block at a time."""

    def __init__(self, seed: int) -> None:
        self._generator = seeded(seed)
        self._block: list[float] = []
        self._taken: set[str] = set()

    def roll(self) -> float:
        if not self._block:
            self._block = torch.rand(4096, generator=self._generator, dtype=torch.float64).tolist()
        return self._block.pop()

    def chance(self, p: float) -> bool:
        return self.roll() < p

    def between(self, low: int, high: int) -> int:
        """A whole number from `low` to `high`, both included."""
        return low + int(self.roll() * (high - low + 1))

    def pick(self, items: list[str] | tuple[str, ...]) -> str:
        return items[self.between(0, len(items) - 1)]

    def names(self, kind: str, count: int) -> list[str]:
        """Pronounceable names, none used before."""
        names: list[str] = []
        while len(names) < count:
            name = self._word()
            name = (
                f"{self._word()} {name}{self.pick(_ENDINGS[kind])}"
                if kind == "person"
                else name + self.pick(_ENDINGS[kind])
            )
            if name not in self._taken:
                self._taken.add(name)
                names.append(name)
        return names

    def warmth(self, blocs: int) -> list[list[float]]:
        """How blocs feel about each other, from −1 to 1: warm inside, anything outside."""
        table = [[0.0] * blocs for _ in range(blocs)]
        for i in range(blocs):
            table[i][i] = 0.9
            for j in range(i):
                table[i][j] = table[j][i] = self.roll() * 1.6 - 1.0
        return table

    def _word(self) -> str:
        return self.pick(_ONSETS) + self.pick(_VOWELS) + self.pick(_CODAS)
