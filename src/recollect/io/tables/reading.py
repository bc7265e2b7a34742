"""Read an episodic graph from a file, a folder, several files, a database, or a table in memory."""

from __future__ import annotations

import glob
import re
import warnings
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import polars as pl
import pyarrow as pa

from recollect.errors import DataWarning, UserError, check_process
from recollect.graph.facts import SPLITS, EpisodicGraph
from recollect.graph.times import GRAINS
from recollect.io.assembly import assemble
from recollect.io.atomic import read_folder
from recollect.io.exchange import GRAPH, is_export, read_graph
from recollect.io.id_folders import IdTables, has_id_files, read_id_tables
from recollect.io.table import Table, first_true, leave_out
from recollect.io.tables.columns import TRIPLE, Given, check_roles
from recollect.io.tables.files import SUFFIXES, is_address, read_file, table_files
from recollect.io.tables.rows import arrow_rows, first_line, select_roles
from recollect.io.times.axis import find_bins
from recollect.io.times.dates import check_dates

Source: TypeAlias = Any  # a path, a table (polars, pandas, Arrow, Ibis …), a list of those, or a dict of those by split

_SPLIT_NAMES = {"train": ("train",), "valid": ("valid", "validation", "val", "dev"), "test": ("test",)}


@dataclass(frozen=True)
class Reading:
    """How tables are read: the columns that the caller chose, whether without time, and what unpacked files need."""

    given: Given
    static: bool
    temporary: ExitStack


def read(
    source: Source,
    *,
    columns: Mapping[str, str | int] | None = None,
    grain: str | None = None,
    dates: str | None = None,
    static: bool = False,
    inclusive_end: bool = False,
    allow_empty: bool = False,
    name: str | None = None,
) -> EpisodicGraph:
    """Read an episodic graph from a file, a folder, a table, a list of those, or a dict of those by split.

    A file is CSV, TSV, Parquet, JSON, JSON Lines or Excel, plain or compressed, "-" for standard input, or a table of a
    database, `FILE::TABLE`. A folder has train/valid/test files, or files of the same columns; one that holds
    `graph.json` is an exported graph and takes no other options.

    Columns named subject, predicate, object and time (or start and end, or a usual synonym) are found by name.
    `columns={"subject": "who"}` gives one by name or position; `"=leads"` is a text for all rows, and `"party+office"`
    several columns of objects. Without a predicate, it is the name of the object's column.
    `grain` (year, quarter, month, week, day, hour, ordinal) defaults to the coarsest that loses nothing.
    `dates` says how dates are written where that is unclear: dmy, mdy, ymd, unix, unix-ms, excel or a strftime format.
    A fact with start and end holds in [start, end), or in [start, end] with `inclusive_end=True`. An unknown start or
    end is the first or last plausible time of the table. `static=True` reads triples without time.

    Rows with an empty subject, predicate or object are left out with a DataWarning. If half of the rows are so, that is
    an error, except for a column of objects that you gave. With `allow_empty=True` "" is a label. `graph.notes` tells
    what was chosen, `graph.dropped` counts such rows.

    Examples:
        >>> graph = read(pl.DataFrame({"head": ["a", "b"], "relation": "knows", "tail": "c", "year": [1999, 2001]}))
        >>> len(graph.facts), graph.times.labels
        (2, ['1999', '2000', '2001'])
    """
    check_process()
    if grain is not None and grain not in GRAINS:
        raise UserError(f"unknown grain {grain!r}; choose one of {', '.join(GRAINS)}")
    check_dates(dates)
    given = columns or {}
    check_roles(given)

    def read_source(source: Source) -> EpisodicGraph:
        with ExitStack() as temporary:
            return read_with(source, temporary)

    def read_with(source: Source, temporary: ExitStack) -> EpisodicGraph:
        if isinstance(source, Path) and source.is_dir() and is_export(source):
            if given or grain or dates or static or inclusive_end or allow_empty or name:
                raise UserError(f"{source}: {GRAPH} tells how to read this exported graph; leave out all other options")
            return read_graph(source)
        found = None if given else _read_id_folder(source, static)
        tables = _read_splits(source, Reading(given, static, temporary)) if found is None else found.tables
        return assemble(
            {split: _without_missing(table, allow_empty, given) for split, table in tables.items()},
            grain=grain,
            dates=dates,
            inclusive_end=inclusive_end,
            name=name or _default_name(source),
            labels={} if found is None else found.labels,
        )

    try:
        if isinstance(source, str | Path) and not is_address(source):
            return read_folder(Path(source), read_source)
        return read_source(source)
    except OSError as error:
        raise UserError(
            f"{error.filename or source}: cannot be read ({error.strerror or error}); let this user read it"
        ) from error


def read_changes(
    source: Source,
    grain: str,
    *,
    columns: Mapping[str, str | int] | None = None,
    dates: str | None = None,
    static: bool = False,
    inclusive_end: bool = False,
    whole_periods: bool = False,
) -> tuple[Table, pl.DataFrame]:
    """Read facts for a graph that exists: the table of all rows, and their first and last bins at its grain.

    The source and the options are those of `read`; a bin is null where the interval is open. With `whole_periods`, a
    time coarser than the grain is all of its period.
    """
    check_process()
    check_dates(dates)
    given = columns or {}
    check_roles(given)

    def read_source(source: Source) -> tuple[Table, pl.DataFrame]:
        with ExitStack() as temporary:
            tables = list(_read_splits(source, Reading(given, static, temporary)).values())
            table = _without_missing(tables[0] if len(tables) == 1 else _concatenate(tables), False, given)
            return find_bins(table, grain, dates, inclusive_end, whole_periods=whole_periods)

    try:
        if isinstance(source, str | Path) and not is_address(source):
            return read_folder(Path(source), read_source)
        return read_source(source)
    except OSError as error:
        raise UserError(f"{error.filename or source}: cannot be read ({error.strerror or error})") from error


def _default_name(source: Source) -> str:
    """Return the name of a graph that the caller did not name."""
    if isinstance(source, str) and is_address(source):
        return "stdin" if source == "-" else source.rpartition("::")[2] or "table"
    if not isinstance(source, Path):
        return "table"
    return source.name if source.is_dir() else source.name.partition(".")[0] or source.stem


def _read_id_folder(source: Source, static: bool) -> IdTables | None:
    """Read a folder of numbered facts that names the ids; None if it is none."""
    if not isinstance(source, Path) or not source.is_dir():
        return None
    files = _split_files(source)
    if "train" not in files or not has_id_files(source, files["train"]):
        return None
    return read_id_tables(source, {split: files[split] for split in SPLITS if split in files}, static=static)


def _read_splits(source: Source, how: Reading) -> dict[str, Table]:
    """Read the table of every split, in the order of SPLITS. A single table is the train split."""
    if isinstance(source, Path) and source.is_dir():
        found = _split_files(source)
        source = found if "train" in found else table_files(source)
    sources = source if isinstance(source, Mapping) else {"train": source}
    unknown = [split for split in sources if split not in SPLITS]
    if unknown:
        raise UserError(f"unknown split {unknown[0]!r}; a graph has {', '.join(SPLITS)}")
    tables = {}
    for split in SPLITS:
        if split in sources:
            name = "the table" if len(sources) == 1 else f"the {split} table"
            tables[split] = _read_tables(sources[split], how, name)
    return tables


def _split_files(folder: Path) -> dict[str, Path]:
    """Return the train, valid and test files of a folder, by a word in their names."""
    found: dict[str, Path] = {}
    for path in sorted(folder.iterdir()):
        if not SUFFIXES & {suffix.lower() for suffix in path.suffixes[-2:]}:
            continue
        words = set(re.split("[-._]", path.name.lower()))
        for split, names in _SPLIT_NAMES.items():
            if words.isdisjoint(names):
                continue
            if split in found:
                raise UserError(f"{folder} has two {split} files, {found[split].name} and {path.name}; keep one")
            found[split] = path
    return found


def _read_tables(source: Source, how: Reading, name: str) -> Table:
    """Read one table, or several of the same columns as one."""
    if isinstance(source, str | Path) and not is_address(source) and not Path(source).exists():
        matches = sorted(glob.glob(str(source), recursive=True)) if glob.has_magic(str(source)) else []  # noqa: PTH207
        source = [Path(match) for match in matches if Path(match).is_file()] or source
    if not isinstance(source, Sequence) or isinstance(source, str):
        return _read_table(source, how, name)
    if not source:
        raise UserError("no tables to read; give at least one")
    tables = [_read_table(each, how, f"table {i}") for i, each in enumerate(source, 1)]
    return tables[0] if len(tables) == 1 else _concatenate(tables)


def _concatenate(tables: Sequence[Table]) -> Table:
    """Return tables of the same roles as one."""
    first = tables[0]
    for table in tables[1:]:
        if set(table.frame.columns) != set(first.frame.columns):
            raise UserError(
                f"{table.name} has {', '.join(table.frame.columns)}, and {first.name} has "
                f"{', '.join(first.frame.columns)}; give tables of the same columns, or read each by itself"
            )
    ends: list[int] = []
    for table in tables:
        ends.append(table.frame.height + (ends[-1] if ends else 0))

    def where(row: int) -> str:
        i = next(i for i, end in enumerate(ends) if row <= end)
        return tables[i].where(row - ends[i] + tables[i].frame.height)

    frame = pl.concat([table.frame.select(first.frame.columns) for table in tables])
    notes = tuple(dict.fromkeys(note for table in tables for note in table.notes))
    reasons = {reason for table in tables for reason in table.dropped}
    dropped = {reason: sum(table.dropped.get(reason, 0) for table in tables) for reason in sorted(reasons)}
    return replace(first, frame=frame, where=where, notes=notes, dropped=dropped, name=f"{first.name} and others")


def _read_table(source: Source, how: Reading, name: str) -> Table:
    """Read one file or in-memory table; `name` is for error messages about the latter."""
    if isinstance(source, str | Path):
        return read_file(source, how.given, how.static, how.temporary)
    if isinstance(source, pl.LazyFrame):
        try:
            source = source.collect()
        except (pl.exceptions.PolarsError, OSError) as error:
            raise UserError(
                f"{name} cannot be read ({first_line(error)}); collect it yourself, and give the frame"
            ) from error
    if hasattr(source, "to_pyarrow") and hasattr(source, "schema"):  # an Ibis table
        from recollect.io.tables.databases import ibis_rows

        return select_roles(ibis_rows(source, name), how.given, how.static)
    if not hasattr(source, "__arrow_c_stream__"):
        kind = type(source).__name__
        raise UserError(f"cannot read a {kind}; give a path, or a polars, pandas, Arrow or Ibis table")
    try:
        table = pa.table(source)
    except (pa.ArrowException, ValueError, TypeError) as error:
        raise UserError(
            f"{name} cannot be read ({first_line(error)}); give one type a column and distinct names"
        ) from error
    return select_roles(arrow_rows(table, name, lambda row: f"row {row} of {name}"), how.given, how.static)


def _without_missing(table: Table, allow_empty: bool, given: Given) -> Table:
    """Leave out rows without subject, predicate or object, with a warning; raise UserError if half of the rows are so.

    A column of objects that was given may have many empty cells: not everything has a nickname. With `allow_empty`, ""
    is a label; a null is none. Warn of labels that differ in surrounding blanks only.
    """
    _warn_of_blanks(table)
    for role in TRIPLE:
        labels = table.frame[role]
        missing = labels.is_null() if allow_empty else labels.fill_null("") == ""
        is_null = labels[first_true(missing)] is None
        table = leave_out(
            table,
            missing,
            f"no {role}",
            most=1 if role == "object" and role in given else 0.5,
            what=f"no {role}" if is_null else f"the {role} is empty",
            advice="fill it in or drop the row, or keep empty cells as labels with allow_empty=True (--allow-empty)",
        )
    return table


def _warn_of_blanks(table: Table) -> None:
    """Warn of labels that differ from others in surrounding blanks only, and of numbers that were floats."""
    for roles in (("subject", "object"), ("predicate",)):
        labels = pl.concat([table.frame[role] for role in roles]).drop_nulls().unique()
        padded = labels.filter((labels != labels.str.strip_chars()) & (labels.str.strip_chars() != ""))
        twins = padded.filter(padded.str.strip_chars().is_in(labels.implode()))
        if len(twins):
            label = twins.sort()[0]
            role = next(role for role in roles if (table.frame[role] == label).any())
            row = first_true((table.frame[role] == label).fill_null(False)) + 1
            warnings.warn(
                f"{table.where(row)}: {label!r} is another label than {label.strip()!r}, and so are {len(twins) - 1:,} "
                "more that differ in blanks only; remove the blanks if they are the same",
                DataWarning,
                stacklevel=2,
            )
    for role in ("subject", "object"):
        labels = table.frame[role].drop_nulls()
        if len(labels) and labels.str.contains(r"^-?[0-9]+\.0$").all():
            warnings.warn(
                f"{table.where(1)}: every {role} is a number with .0, like {labels[0]!r}, as tables with gaps are "
                f"saved; {labels[0][:-2]!r} is another label: remove the .0 if they are the same",
                DataWarning,
                stacklevel=2,
            )
