"""Find the column of each role in a table: subject, predicate, object, time or start and end, value, weight."""

from __future__ import annotations

from collections.abc import Mapping

from recollect.errors import UserError
from recollect.io.formats import EXTRAS
from recollect.io.table import TIME_ROLES
from recollect.io.times.dates import looks_dated

TRIPLE = ("subject", "predicate", "object")
SYNONYMS: dict[str, tuple[str, ...]] = {
    "subject": ("subject", "s", "head", "h", "source", "source_name", "actor1", "from"),
    "predicate": ("predicate", "p", "relation", "rel", "r", "event", "event_text", "action"),
    "object": ("object", "o", "tail", "target", "target_name", "actor2", "to"),
    "time": (
        *("time", "t", "timestamp", "date", "datetime", "event_date", "when"),
        *("hour", "day", "week", "month", "year"),
    ),
    "start": ("start", "begin", "since", "start_time", "start_date", "valid_from"),
    "end": ("end", "until", "stop", "end_time", "end_date", "valid_to"),
}
ROLES = (*SYNONYMS, *EXTRAS)
WIDTHS = {3: "subject predicate object", 4: "subject predicate object time", 5: "subject predicate object start end"}

Given = Mapping[str, str | int]  # columns that the caller named: role -> name or position


def check_roles(given: Given) -> None:
    """Raise UserError for a role that does not exist."""
    for role in given:
        if role not in ROLES:
            raise UserError(f"unknown column role {role!r}; choose one of {', '.join(ROLES)}")


def find_columns(names: list[str], given: Given, static: bool, where: str) -> dict[str, int]:
    """Return the position of the column of every role, from the caller's choice or else by a synonym.

    `where` is the file and line of the header, for error messages. With `static`, time columns are ignored.
    """
    found = {role: _given_position(names, role, column, where) for role, column in given.items()}
    taken = set(found.values())
    folded = ["" if position in taken else _fold(name) for position, name in enumerate(names)]
    for role, synonyms in SYNONYMS.items():
        matches = [position for position, name in enumerate(folded) if name in synonyms]
        if role == "time" and len(matches) > 1 and not static and not {"time", "start"} & given.keys():
            have = " and ".join(repr(names[position]) for position in matches)
            raise UserError(f"{where}: columns {have} all look like the time; name one (--columns time=NAME)")
        if matches:
            found.setdefault(role, min(matches, key=lambda position: synonyms.index(folded[position])))
    if static and "object" not in found and "t" in folded:  # a header h, r, t
        found["object"] = folded.index("t")
    time_roles = () if static else _time_roles(names, found, given, where)
    for role in (*TRIPLE, *time_roles[:1]):
        if role not in found:
            raise _missing(names, role, where)
    return {role: position for role, position in found.items() if role not in TIME_ROLES or role in time_roles}


def _given_position(names: list[str], role: str, column: str | int, where: str) -> int:
    """Return the position of a column that the caller gave by name or position."""
    if isinstance(column, int):
        if not 0 <= column < len(names):
            raise UserError(
                f"{where}: there is no column {column} for the {role}; positions run from 0 to {len(names) - 1}"
            )
        return column
    if column not in names:
        raise UserError(f"{where}: no column {column!r} for the {role}; there are {', '.join(map(repr, names))}")
    return names.index(column)


def _time_roles(names: list[str], found: Mapping[str, int], given: Given, where: str) -> tuple[str, ...]:
    """Return ("time",) for facts at points in time, ("start", "end") for intervals; the first one is required."""
    interval = [role for role in ("start", "end") if role in found]
    if "time" not in found:
        return ("start", "end") if interval else ("time",)
    if not interval or "time" in given:
        return ("time",)
    if any(role in given for role in interval):
        return ("start", "end")
    time, other = names[found["time"]], names[found[interval[0]]]
    raise UserError(
        f"{where}: columns {time!r} and {other!r} both tell the time; "
        f"choose one with columns={{'time': {time!r}}} (--columns time=…)"
    )


def _missing(names: list[str], role: str, where: str) -> UserError:
    """Return the error that a required role has no column."""
    have = ", ".join(map(repr, names))
    hint = "; a graph without time is read with static=True (--grain none)" if role == "time" else ""
    return UserError(
        f"{where}: no column for the {role} among {have}; rename one or give it with "
        f"columns={{{role!r}: …}} (--columns {role}=NAME){hint}"
    )


def is_header(first: list[str], given: Given, static: bool) -> bool:
    """Return whether the first row of a text file names the columns rather than being a fact."""
    folded = {_fold(cell) for cell in first}
    if all(folded & set(SYNONYMS[role]) for role in TRIPLE):
        return True
    if static and [_fold(cell) for cell in first] == ["h", "r", "t"]:
        return True
    if any(isinstance(column, int) for column in given.values()):
        return False
    if given and all(column in first for column in given.values()):
        return True
    time_cells = first[3:5] if len(first) in (4, 5) and not static else []
    if any(cell.strip().lstrip("-").isdecimal() or looks_dated([cell]) for cell in time_cells):
        return False
    words = {synonym for synonyms in SYNONYMS.values() for synonym in synonyms if len(synonym) > 1}
    return bool(folded & words)


def headerless_names(width: int, given: Given, static: bool, where: str) -> list[str]:
    """Return column names for a text file of `width` columns without a header."""
    if any(isinstance(column, int) for column in given.values()):
        return [f"column {i}" for i in range(width)]
    if width not in WIDTHS or (width == 3 and not static):
        raise UserError(
            f"{where}: {width} columns without a header; wanted {WIDTHS[4]}, or give their positions with "
            "columns={'subject': 0, …} (--columns subject=0,…); triples without time need static=True (--grain none)"
        )
    return WIDTHS[width].split()


def _fold(name: str) -> str:
    """Return a column name in the spelling of SYNONYMS."""
    return name.strip().casefold().replace(" ", "_").replace("-", "_")
