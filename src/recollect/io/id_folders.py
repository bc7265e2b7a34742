"""Read a folder of numbered facts, as the scripts of temporal-graph papers write them.

`train.txt`, `valid.txt` and `test.txt` have the ids of subject, predicate, object and time, and may have more columns.
`entity2id.txt` and `relation2id.txt` name the ids, and `time2id.txt` may name those of times. `stat.txt` may say how
many entities and predicates there are, some of them without a fact or a name.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import polars as pl

from recollect.errors import UserError
from recollect.io.formats import ID_FILES, STAT
from recollect.io.table import Table, first_true

ROLES = {"subject": "entity", "predicate": "predicate", "object": "entity"}  # column -> kind of its ids
MAX_IDS = 100_000_000  # of a kind, in stat.txt
_ID = re.compile(r"[0-9]{1,18}")


@dataclass(frozen=True)
class IdTables:
    """The facts of every split by label, and the labels of all ids by kind, whether a fact has them or not."""

    tables: dict[str, Table]
    labels: dict[str, list[str]]


def has_id_files(folder: Path, train: Path) -> bool:
    """Return whether a folder names the ids of entities and predicates and its facts begin with three ids."""
    if train.suffix.lower() == ".parquet" or not all(
        (folder / ID_FILES[kind]).is_file() for kind in ("entity", "predicate")
    ):
        return False
    with train.open(encoding="utf-8", errors="replace") as file:
        cells = file.readline(10_000).split()
    return len(cells) >= 3 and all(_ID.fullmatch(cell) for cell in cells[:3])


def read_id_tables(folder: Path, files: Mapping[str, Path], *, static: bool) -> IdTables:
    """Return the facts of a folder of numbered facts, with the names of their ids."""
    counts = _counts(folder / STAT)
    names = {kind: _names(folder / file) for kind, file in ID_FILES.items() if (folder / file).is_file()}
    labels = {kind: _labels(names[kind], counts.get(kind, 0), folder / ID_FILES[kind]) for kind in set(ROLES.values())}
    tables = {}
    for split, path in files.items():
        frame = _fact_columns(path, static)
        where = partial(_where, path)
        for role, kind in ROLES.items():
            frame = frame.with_columns(_named(frame[role], labels[kind], where, f"{kind} of {ID_FILES[kind]}"))
        if "time" in frame and "time" in names:
            frame = frame.with_columns(pl.col("time").replace(names["time"]))
        tables[split] = Table(frame, where, str(path))
    return IdTables(tables, {kind: list(by_id.values()) for kind, by_id in labels.items()})


def _where(path: Path, row: int) -> str:
    return f"{path}, line {row}"


def _counts(file: Path) -> dict[str, int]:
    """Return the numbers of entities and predicates of stat.txt; none if there is no such file."""
    if not file.is_file():
        return {}
    cells = file.read_text(encoding="utf-8", errors="replace").split()[:2]
    if len(cells) < 2 or not all(_ID.fullmatch(cell) and int(cell) <= MAX_IDS for cell in cells):
        raise UserError(f"{file}: wanted the numbers of entities and predicates, like '7128 230'; correct or remove it")
    return {"entity": int(cells[0]), "predicate": int(cells[1])}


def _names(file: Path) -> dict[str, str]:
    """Return the name of each id in a file of names and ids; ids may come first, and so may a line with their number.

    Further columns are ignored.
    """
    try:
        lines = file.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise UserError(f"{file}: not UTF-8 text; save the file as UTF-8") from error
    rows = [(number, line.split("\t")) for number, line in enumerate(lines, start=1) if line.strip()]
    if rows and len(rows[0][1]) == 1 and rows[0][1][0].strip() == str(len(rows) - 1):
        rows = rows[1:]  # a count
    for number, cells in rows:
        if len(cells) < 2:
            raise UserError(f"{file}, line {number}: wanted a name and an id, separated by a tab; correct it")
    ids_are_second = all(_ID.fullmatch(cells[1].strip()) for _, cells in rows)
    names: dict[str, str] = {}
    for number, (first, second, *_) in rows:
        name, id_ = (first, second) if ids_are_second else (second, first)
        if not _ID.fullmatch(id_.strip()):
            raise UserError(f"{file}, line {number}: wanted a name and an id, separated by a tab; correct it")
        if str(int(id_)) in names:
            raise UserError(f"{file}, line {number}: the id {int(id_)} has a name already; correct it")
        names[str(int(id_))] = name
    return names


def _labels(names: Mapping[str, str], count: int, file: Path) -> dict[str, str]:
    """Return the label of each id: its name, the id itself if it has none, and both where several share a name."""
    ids = [*names, *(str(i) for i in range(count) if str(i) not in names)]
    if count and (beyond := next((i for i in names if int(i) >= count), None)) is not None:
        raise UserError(f"{file}: the id {beyond} is not below {count:,}, which {STAT} has; correct one of them")
    labels = {i: names.get(i, i) for i in ids}
    uses = Counter(labels.values())
    return {i: label if uses[label] == 1 else f"{label} ({i})" for i, label in labels.items()}


def _fact_columns(path: Path, static: bool) -> pl.DataFrame:
    """Return the columns subject, predicate, object and, unless `static`, time of a file of facts, as text."""
    with path.open(encoding="utf-8", errors="replace") as file:
        separator = "\t" if "\t" in file.readline() else " "
    try:
        frame = pl.read_csv(path, separator=separator, has_header=False, quote_char=None, infer_schema=False)
    except pl.exceptions.PolarsError as error:
        raise UserError(
            f"{path}: wanted ids of subject, predicate, object and time, separated by tabs; correct it"
        ) from error
    roles = [*ROLES] if static else [*ROLES, "time"]
    if frame.width < len(roles):
        raise UserError(f"{path}: {frame.width} columns of ids; without times, read it by static=True (--grain none)")
    return frame.select(pl.col(name).alias(role) for name, role in zip(frame.columns, roles, strict=False))


def _named(ids: pl.Series, labels: Mapping[str, str], where: partial[str], what: str) -> pl.Series:
    """Return the labels of a column of ids, or raise UserError for the first that has none."""
    named = ids.replace_strict(dict(labels), default=None, return_dtype=pl.String)
    if named.null_count():
        row = first_true(named.is_null())
        raise UserError(f"{where(row + 1)}: {ids[row]!r} is no {what} or {STAT}; correct it or add it there")
    return named.alias(ids.name)
