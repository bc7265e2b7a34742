"""Find the columns of each role in a table: subject, predicate, object, time or start and end, value, weight.

A role has a column by a usual name or by the caller's choice: a name, a position, or "=text" for a text that all rows
have. Several columns are joined by "+": as objects they give one fact each, as a time they are year, month, day, hour.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from recollect.errors import UserError
from recollect.io.label_tables import EXTRAS
from recollect.io.table import TIME_ROLES
from recollect.io.times.dates import looks_dated

TRIPLE = ("subject", "predicate", "object")
EVENTS = ("event", "event_text", "action", "verb")
SYNONYMS: dict[str, tuple[str, ...]] = {
    "subject": ("subject", "s", "head", "h", "source", "source_name", "actor1", "from"),
    "predicate": ("predicate", "p", "relation", "rel", "r", *EVENTS),
    "object": ("object", "o", "tail", "target", "target_name", "actor2", "to"),
    "time": (
        *("time", "t", "timestamp", "date", "datetime", "event_date", "when"),
        *("hour", "day", "week", "month", "quarter", "year"),
    ),
    "start": (
        *("start", "begin", "since", "start_time", "start_date", "valid_from", "start_year", "startdate", "stdate"),
        *("date_from", "from_date", "begin_date", "begin_year", "year_start", "term_start", "date_start", "from"),
        *("enter", "entered", "entry_date", "started", "began", "start_at", "started_at", "started_service", "tstart"),
    ),
    "end": (
        *("end", "until", "stop", "end_time", "end_date", "valid_to", "end_year", "enddate", "date_to", "to_date"),
        *("finish", "year_end", "term_end", "date_end", "to", "exit", "exited", "exit_date", "ended", "end_at"),
        *("ended_at", "ended_service", "tstop", "finished"),
    ),
}
PARTS = ("year", "month", "day", "hour")  # columns that make one date together
WEIGHTS = ("weight", "count", "counts", "n", "confidence", "score", "value", "probability")
ROLES = ("subject", "predicate", "object", *TIME_ROLES, *EXTRAS)
WIDTHS = {3: "subject predicate object", 4: "subject predicate object time", 5: "subject predicate object start end"}
_ROW_NUMBERS = ("", "rownames", "row_names", "index", "unnamed_0", "row", "no", "nr")
_SHOWN = 6  # names in a sentence

Given = Mapping[str, str | int]  # columns that the caller chose: role -> name, position or "=text"
Cells = Sequence[str | None]


@dataclass(frozen=True)
class Roles:
    """The columns of every role by position, the texts of roles without a column, and sentences about the choice."""

    columns: dict[str, tuple[int, ...]]
    literals: dict[str, str] = field(default_factory=dict)
    named_by_object: bool = False  # the predicate is the name of the object's column
    notes: tuple[str, ...] = ()

    def texts(self, object_name: str) -> dict[str, str]:
        """Return the texts of roles without a column, for objects of a column of this name."""
        return self.literals | ({"predicate": object_name} if self.named_by_object else {})


def check_roles(given: Given) -> None:
    """Raise UserError for a role that does not exist."""
    for role in given:
        if role not in ROLES:
            raise UserError(f"unknown column role {role!r}; choose one of {', '.join(ROLES)}")


def find_columns(names: list[str], given: Given, static: bool, where: str, sample: Sequence[Cells] = ()) -> Roles:
    """Return the columns of every role, from the caller's choice or else by a synonym.

    `where` is the file and line of the header, for error messages; `sample` has some rows, which tell dates from other
    cells. With `static`, time columns are ignored. A table without a predicate is one of the names of its objects.
    """
    literals = {role: str(column)[1:] for role, column in given.items() if _is_literal(column, names)}
    found = {role: _given(names, role, column, where) for role, column in given.items() if role not in literals}
    table = _Names(names, sample, {position for each in found.values() for position in each})
    for role in TRIPLE:
        if role not in found and role not in literals and (position := table.by_synonym(role)) is not None:
            if role == "predicate" and "object" in given and table.is_flag(position):
                continue
            found[role] = (position,)
    if static and "object" not in found and "t" in table.folded:  # a header h, r, t
        found["object"] = (table.folded.index("t"),)
    if not static:
        found |= _time_columns(table, found, given, where)
    named_by_object = False
    if "predicate" not in (found | literals) and "object" in found:
        generic = all(table.folded_name(position) in SYNONYMS["object"] for position in found["object"])
        named_by_object = not generic
    missing = [
        role for role in TRIPLE if role not in (found | literals) and not (role == "predicate" and named_by_object)
    ]
    if not static and not {"time", "start", "end"} & found.keys():
        missing.append("time")
    if missing:
        if "object" in missing:
            missing = [role for role in missing if role != "predicate"]  # that may be the name of the object's column
        from recollect.io.tables.proposals import missing_columns

        raise missing_columns(names, sample, found, literals, missing, where)
    columns = {role: each for role, each in found.items() if not (static and role in TIME_ROLES)}
    _refuse_equal_names(names, columns, given, where)
    return Roles(columns, literals, named_by_object, tuple(_notes(names, columns, named_by_object, given)))


@dataclass(frozen=True)
class _Names:
    """The columns of a table that are not taken yet, by folded name."""

    names: list[str]
    sample: Sequence[Cells]
    taken: set[int]

    @property
    def folded(self) -> list[str]:
        """The folded names of all columns, "" for those that are taken and for letters of no header s p o or h r t."""
        names = [fold(name) for name in self.names]
        letters = {"s", "p", "o"} <= set(names) or {"h", "r"} <= set(names)
        return ["" if i in self.taken or (len(name) == 1 and not letters) else name for i, name in enumerate(names)]

    def folded_name(self, position: int) -> str:
        return fold(self.names[position])

    def dated(self, position: int) -> bool:
        """Return whether the first cells of a column are dates."""
        return looks_dated(column_of(self.sample, position))

    def by_synonym(self, role: str) -> int | None:
        """Return the column with the first usual name of a role; `from` and `to` are no labels if they are dates."""
        folded = self.folded
        for synonym in SYNONYMS[role]:
            for position, name in enumerate(folded):
                if name == synonym and not (name in ("from", "to") and self._is_interval(position, role)):
                    return position
        return None

    def is_flag(self, position: int) -> bool:
        """Return whether a column is called event or action and holds numbers, such as whether a patient died."""
        cells = [cell for cell in column_of(self.sample, position) if cell]
        return fold(self.names[position]) in EVENTS and bool(cells) and all(map(is_number, cells))

    def _is_interval(self, position: int, role: str) -> bool:
        """Return whether a column called from or to is a start or an end (role subject or object: rather than that)."""
        other_times = {name for each in ("time", "start", "end") for name in SYNONYMS[each]} - {"from", "to"}
        is_only_time = not any(name in other_times for name in self.folded)
        is_date = self.dated(position) and is_only_time
        return is_date if role in TRIPLE else not is_date


def _time_columns(
    table: _Names, found: Mapping[str, tuple[int, ...]], given: Given, where: str
) -> dict[str, tuple[int, ...]]:
    """Return the time columns that are not given: a time, or a start and an end."""
    if "time" in given:
        return {}
    taken = {position for each in found.values() for position in each}
    free = _Names(table.names, table.sample, taken)
    interval: dict[str, tuple[int, ...]] = {}
    for role in ("start", "end"):
        if role not in given and (position := free.by_synonym(role)) is not None:
            interval[role] = (position,)
    if "start" in given or "end" in given:
        return interval
    matches = [i for i, name in enumerate(free.folded) if name in SYNONYMS["time"]]
    parts = {free.folded[i]: i for i in matches if free.folded[i] in PARTS}
    whole = [i for i in matches if free.folded[i] not in (*PARTS, "week", "quarter")]
    if whole and len(matches) > len(whole):
        matches = whole  # a date and its year
    elif len(parts) == len(matches) > 1 and list(PARTS[: len(parts)]) == sorted(parts, key=PARTS.index):
        return interval or {"time": tuple(parts[part] for part in PARTS[: len(parts)])}
    if len(matches) > 1:
        have = " and ".join(repr(table.names[position]) for position in matches)
        raise UserError(f"{where}: columns {have} all look like the time; name one (--columns time=NAME)")
    if matches and interval:
        time, other = table.names[matches[0]], table.names[next(iter(interval.values()))[0]]
        if table.folded_name(matches[0]) in PARTS:
            return interval  # a year that a start and an end tell more exactly
        raise UserError(
            f"{where}: columns {time!r} and {other!r} both tell the time; "
            f"choose one with columns={{'time': {time!r}}} (--columns time=…)"
        )
    if matches or interval:
        return interval or {"time": (matches[0],)}
    dated = [i for i in range(len(table.names)) if i not in taken and free.dated(i)]
    return {"time": (dated[0],)} if len(dated) == 1 else {}


def _is_literal(column: str | int, names: list[str]) -> bool:
    return isinstance(column, str) and column.startswith("=") and column not in names


def _given(names: list[str], role: str, column: str | int, where: str) -> tuple[int, ...]:
    """Return the positions of the columns that the caller gave by name or position."""
    if isinstance(column, int):
        if not 0 <= column < len(names):
            raise UserError(
                f"{where}: there is no column {column} for the {role}; positions run from 0 to {len(names) - 1}"
            )
        return (column,)
    if column in names:
        return (names.index(column),)
    parts = column.split("+")
    if len(parts) > 1 and role in ("object", "time") and all(part in names for part in parts):
        return tuple(names.index(part) for part in parts)
    raise UserError(f"{where}: no column {column!r} for the {role}; there are {', '.join(map(repr, names))}")


def _refuse_equal_names(names: list[str], columns: Mapping[str, tuple[int, ...]], given: Given, where: str) -> None:
    """Raise UserError if a column was found by a name that another column has too."""
    for role, positions in columns.items():
        for position in positions:
            if names.count(names[position]) > 1 and not isinstance(given.get(role), int):
                raise UserError(
                    f"{where}: two columns called {names[position]!r}; rename one, or give the position of the {role}, "
                    f"counted from 0: columns={{{role!r}: {position}}} (--columns {role}={position})"
                )


def _notes(names: list[str], columns: Mapping[str, tuple[int, ...]], named_by_object: bool, given: Given) -> list[str]:
    """Return sentences about a predicate that was not given, and about columns that are not used."""
    notes = []
    if "object" in given and "predicate" in columns and "predicate" not in given:
        found = names[columns["predicate"][0]]
        notes.append(f"the predicate is the column {found!r}; predicate==TEXT in --columns gives all rows one text")
    if named_by_object:
        called = ", ".join(repr(names[position]) for position in columns["object"])
        notes.append(
            f"the predicate is the name of the object's column, {called}; predicate==TEXT in --columns gives another"
        )
    used = {position for each in columns.values() for position in each}
    unused = [name for i, name in enumerate(names) if i not in used and fold(name) not in _ROW_NUMBERS]
    if unused:
        more = f" and {len(unused) - _SHOWN:,} more" if len(unused) > _SHOWN else ""
        weight = next((name for name in unused if fold(name) in WEIGHTS), None)
        hint = ""
        if weight is not None and "weight" not in columns:
            hint = f"; --columns weight={weight} weights facts by it in training"
        notes.append(f"columns not used: {', '.join(map(repr, unused[:_SHOWN]))}{more}{hint}")
    return notes


def is_header(first: list[str], given: Given, static: bool, rows: Sequence[Cells] = ()) -> bool:
    """Return whether the first row of a text file names the columns rather than being a fact; `rows` come after it."""
    folded = [fold(cell) for cell in first]
    if all(set(folded) & set(SYNONYMS[role]) for role in TRIPLE) or (static and folded == ["h", "r", "t"]):
        return True
    columns = [column for column in given.values() if not _is_literal(column, first)]
    if any(isinstance(column, int) for column in columns):
        return _differs_in_kind(first, rows)
    if columns and all(
        part in first for column in columns for part in ([str(column)] if column in first else str(column).split("+"))
    ):
        return True
    time_cells = first[3:5] if len(first) in (4, 5) and not static else []
    if any(is_number(cell) or looks_dated([cell]) for cell in time_cells):
        return False
    words = {synonym for synonyms in SYNONYMS.values() for synonym in synonyms if len(synonym) > 1}
    return bool(words & set(folded)) or _differs_in_kind(first, rows)


def _differs_in_kind(first: Cells, rows: Sequence[Cells]) -> bool:
    """Return whether the first row has no date or number, and a column after it has nothing else."""
    if not rows or any(is_number(cell or "") or looks_dated([cell]) for cell in first):
        return False
    for position in range(len(first)):
        cells = [cell for cell in column_of(rows, position) if cell]
        if cells and (looks_dated(cells) or all(is_number(cell) for cell in cells)):
            return True
    return False


def is_number(cell: str) -> bool:
    """Return whether a cell is a plain number."""
    return re.fullmatch(r"\s*[+-]?[0-9]+(\.[0-9]+)?\s*", cell) is not None


def column_of(rows: Sequence[Cells], position: int) -> list[str | None]:
    """Return the cells of a column, without those of rows that are too short."""
    return [row[position] for row in rows if position < len(row)]


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


def is_row_number(name: str) -> bool:
    """Return whether a column is called like the numbers of rows."""
    return fold(name) in _ROW_NUMBERS


def fold(name: str) -> str:
    """Return a column name in the spelling of SYNONYMS.

    >>> fold(" Start-Date"), fold("startDate"), fold("entry.dt"), fold("yearID")
    ('start_date', 'start_date', 'entry_dt', 'year_id')
    """
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name.strip())
    return re.sub(r"[^\w]+|_+", "_", words).strip("_").casefold()
