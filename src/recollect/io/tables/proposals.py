"""Propose the columns of a table whose names do not tell their roles, as an option that can be copied."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from recollect.errors import UserError
from recollect.io.tables.columns import TRIPLE, Cells, column_of, fold, is_number, is_row_number
from recollect.io.times.dates import looks_dated

_LIKELY = {
    "subject": (
        *("who", "person", "name", "player", "manager", "leader", "ruler", "actor", "author", "employee", "patient"),
        *("state", "country", "nation", "ctry", "home", "winner", "company", "org", "codename", "symbol", "id", "code"),
    ),
    "object": (
        *("whom", "role", "position", "office", "title", "party", "team", "club", "away", "loser", "country", "state"),
        *("city", "region", "status", "outcome", "result", "type", "category", "version"),
    ),
}  # words of the names of columns, the likeliest first
_STARTS = ("start", "begin", "began", "from", "since", "enter", "entry", "entered", "first", "release", "created")
_ENDS = ("end", "stop", "to", "until", "exit", "left", "final", "last", "eol", "finish", "term")
_LONG = 60  # characters of a cell that is no label


def missing_columns(
    names: list[str],
    sample: Sequence[Cells],
    found: Mapping[str, tuple[int, ...]],
    literals: Mapping[str, str],
    missing: Sequence[str],
    where: str,
) -> UserError:
    """Return the error that some roles have no column, with an option that gives them, guessed from names and cells."""
    have = ", ".join(map(repr, names))
    words = propose(names, sample, found, literals, missing)
    static = "; a graph without time is read with static=True (--grain none)" if "time" in missing else ""
    advice = (
        f"say which, for example --columns {shlex.quote(','.join(words))}"
        if words
        else f"give it (--columns {missing[0]}=NAME)"
    )
    return UserError(
        f"{where}: no column for the {' and '.join(missing)} among {have}; {advice}; "
        f"predicate==TEXT gives all rows that text{static}"
    )


def propose(
    names: list[str],
    sample: Sequence[Cells],
    found: Mapping[str, tuple[int, ...]],
    literals: Mapping[str, str],
    missing: Sequence[str],
) -> list[str]:
    """Return role=column for the roles that can be guessed, and for those that are found already."""
    taken = {position for each in found.values() for position in each}
    free = [i for i in range(len(names)) if i not in taken and not is_row_number(names[i])]
    dated = [i for i in free if looks_dated(column_of(sample, i))]
    guessed: dict[str, str] = {}
    if "time" in missing:
        guessed |= {role: _word(names, i) for role, i in _guess_times(names, dated).items()}
    labels = [i for i in free if i not in dated and _is_label(column_of(sample, i))]
    for role in ("subject", "object"):
        if role in missing and labels:
            chosen = min(labels, key=lambda i: _distance(names[i], column_of(sample, i), _LIKELY[role]))
            labels.remove(chosen)
            guessed[role] = _word(names, chosen)
    if "object" in missing and "object" not in guessed:
        guessed |= {"predicate": "=is", "object": "=there"}
    elif "predicate" in missing and "object" not in missing:
        guessed["predicate"] = "=has"
    words = {role: "+".join(_word(names, i) for i in each) for role, each in found.items()}
    words |= {role: f"={text}" for role, text in literals.items()} | guessed
    return [f"{role}={words[role]}" for role in (*TRIPLE, "time", "start", "end") if role in words]


def _guess_times(names: list[str], dated: list[int]) -> dict[str, int]:
    """Return a start and an end among columns of dates, or else a time."""
    starts = [i for i in dated if set(fold(names[i]).split("_")) & set(_STARTS)]
    ends = [i for i in dated if set(fold(names[i]).split("_")) & set(_ENDS) and i not in starts[:1]]
    if starts and ends:
        return {"start": starts[0], "end": ends[0]}
    return {"time": dated[0]} if dated else {}


def _is_label(cells: Sequence[str | None]) -> bool:
    """Return whether cells may be labels: most are there, and they are short."""
    filled = [cell for cell in cells if cell]
    return 2 * len(filled) > len(cells) and sum(map(len, filled)) <= _LONG * len(filled)


def _distance(name: str, cells: Sequence[str | None], likely: Sequence[str]) -> tuple[bool, int]:
    """Return how unlikely a column is: whether it holds numbers, and the position of the likeliest word of its name."""
    words = fold(name).split("_")
    whole = [likely.index(word) for word in words if word in likely]
    parts = [n for n, word in enumerate(likely) if len(word) > 3 and word in fold(name)]
    return all(is_number(cell) for cell in cells if cell), min(whole or parts, default=len(likely))


def _word(names: list[str], position: int) -> str:
    """Return a column as --columns takes it."""
    name = names[position]
    plain = name and not name.isdecimal() and not set(name) & set(",=+") and names.count(name) == 1
    return name if plain else str(position)
