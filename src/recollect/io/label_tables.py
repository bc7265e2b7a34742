"""Graphs as tables of labels: what the file formats share, and Parquet files of such tables."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import polars as pl
import torch
from torch import Tensor

from recollect.errors import UserError
from recollect.graph.facts import KINDS, SLOT_NAMES, EpisodicGraph, Facts
from recollect.graph.runs import Runs, RunSplits, has_runs, split_runs
from recollect.graph.times import TimeAxis
from recollect.graph.vocabulary import Vocabulary
from recollect.io.table import Table, first_true

GRAPH, FACTS = "graph.json", "facts.parquet"
EXTRAS = ("value", "weight")  # optional columns of facts
START, END = "start", "end"  # columns of a graph of intervals, instead of the time
RUNS = "intervals"  # entry of graph.json that says that the graph has them
RESTORE = "restore it or export the graph again"

Metadata: TypeAlias = Mapping[str, Any]  # the content of graph.json


def extras_of(facts: Facts) -> list[str]:
    """Return the names of the optional columns that facts have."""
    return [extra for extra in EXTRAS if getattr(facts, extra) is not None]


def digest_of_file(file: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal."""
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def written_labels(graph: EpisodicGraph, escape: Callable[[str], str]) -> dict[str, pl.Series]:
    """Return the escaped labels of each kind, in the order of their ids; those of `end` are of the time after."""
    labels = {KINDS[slot]: list(graph.axis(slot).labels) for slot in "spt"}
    labels[END] = _ends(graph.times) if has_runs(graph) else []
    return {kind: pl.Series(map(escape, column), dtype=pl.String) for kind, column in labels.items()}


def _ends(times: TimeAxis) -> list[str]:
    """Return the label of the time after each time."""
    try:
        return replace(times, first=times.first + times.step).labels
    except (OverflowError, ValueError) as error:
        raise UserError(f"no time is after {times.label(len(times) - 1)}; let intervals end before it") from error


def run_table(runs: Runs, written: Mapping[str, pl.Series], is_runs: bool) -> pl.DataFrame:
    """Return runs as a table: escaped labels of each slot, or start and end, then value and weight if there are any."""
    facts = runs.first
    columns = {name: written[KINDS[slot]].gather(facts.column(slot).numpy()) for slot, name in SLOT_NAMES.items()}
    if is_runs:
        last = pl.Series(runs.last.numpy()).set(pl.Series(runs.goes_on.numpy()), None)
        columns |= {START: columns.pop("time"), END: written[END].gather(last)}
    extras = {extra: pl.Series(getattr(facts, extra).numpy()) for extra in extras_of(facts)}
    return pl.DataFrame(columns | extras)


def graph_from_labels(tables: Mapping[str, Table], metadata: Metadata, unescape: Callable[[str], str]) -> EpisodicGraph:
    """Return the graph of tables whose cells are escaped labels."""
    labels: dict[str, dict[str, str]] = {kind: {} for kind in KINDS.values()}  # cell -> label
    labels[END] = {}
    is_runs = metadata.get(RUNS, False)
    columns = {name: KINDS[slot] for slot, name in SLOT_NAMES.items()}
    if is_runs:
        columns |= {START: columns.pop("time"), END: END}
    for name, kind in columns.items():
        for table in tables.values():
            cells = table.frame[name].unique().drop_nulls()
            labels[kind] |= {cell: unescape(cell) for cell in cells}
    vocabularies = {}
    axis = TimeAxis(**metadata["times"])
    ids = {}
    for kind, names in {"time": axis.labels, END: _ends(axis) if is_runs else []}.items():
        times = {label: i for i, label in enumerate(names)}
        ids[kind] = {cell: times[label] for cell, label in labels[kind].items() if label in times}
    for kind in ("entity", "predicate"):
        vocabulary = Vocabulary.of(kind, [*labels[kind].values(), *metadata["unused"][kind]])
        vocabularies[kind] = vocabulary
        ids[kind] = {cell: vocabulary.index(label) for cell, label in labels[kind].items()}
    return graph_from_cells(tables, metadata, vocabularies, ids)


def graph_from_cells(
    tables: Mapping[str, Table],
    metadata: Metadata,
    vocabularies: Mapping[str, Vocabulary],
    ids: Mapping[str, Mapping[str, int]],
) -> EpisodicGraph:
    """Return the graph of one table per split, in which the text of each cell is mapped to ids[kind][text]."""
    splits: dict[str, Runs] = {}
    is_runs = metadata.get(RUNS, False)
    axis = TimeAxis(**metadata["times"])
    for split, expected in metadata["splits"].items():
        table, height = tables[split], tables[split].frame.height
        if height != expected["facts"]:
            raise UserError(
                f"{table.name}: {height:,} facts of {split}, where {GRAPH} tells {expected['facts']:,}; {RESTORE}"
            )
        names = SLOT_NAMES | ({"t": START} if is_runs else {})
        slots = [_look_up(table, name, ids[KINDS[slot]]) for slot, name in names.items()]
        end = _look_up(table, END, {**ids[END], "": len(axis)}) if is_runs else slots[3]
        last, ongoing = end.clamp(max=len(axis) - 1), end == len(axis)
        value = _look_up(table, "value", {"true": 1, "false": 0}).bool() if expected["value"] else None
        weight = _tensor(table, table.frame["weight"].cast(pl.Float32, strict=False)) if expected["weight"] else None
        facts = Facts(Facts.from_columns(*slots).ids, value, weight)
        splits[split] = Runs(facts, last, ongoing if ongoing.any() else None)
        backwards = last < slots[3]
        if backwards.any():
            row = int(backwards.nonzero()[0, 0])
            raise UserError(f"{table.where(row + 1)}: the end is not after the start; {RESTORE}")
    return EpisodicGraph(
        vocabularies["entity"],
        vocabularies["predicate"],
        axis,
        RunSplits(splits, axis.grain) if is_runs else {split: part.first for split, part in splits.items()},
        str(metadata["name"]),
        int(metadata["duplicates"]),
        dict(metadata["rows"]),
        dict(metadata["dropped"]),
    )


def _look_up(table: Table, column: str, ids: Mapping[str, int]) -> Tensor:
    """Return the id of every cell of a column: (n,) int64."""
    cells = table.frame[column].cast(pl.String).fill_null("")
    return _tensor(table, cells.replace_strict(ids, default=None, return_dtype=pl.Int64))


def _tensor(table: Table, parsed: pl.Series) -> Tensor:
    """Return a parsed column as a tensor (n,), or raise UserError for the first cell that could not be parsed."""
    if parsed.null_count():
        row = first_true(parsed.is_null())
        given = table.frame[parsed.name][row]
        raise UserError(f"{table.where(row + 1)}: cannot read {given!r} as the {parsed.name}; {RESTORE}")
    return torch.from_numpy(parsed.to_numpy(writable=True))


def _whole_table(graph: EpisodicGraph) -> pl.DataFrame:
    """Return the facts of all splits, with a column `split`."""
    written = written_labels(graph, str)
    is_runs = has_runs(graph)
    names = [*SLOT_NAMES.values()][:3] + ([START, END] if is_runs else ["time"])
    empty = pl.DataFrame(schema=dict.fromkeys((*names, "split"), pl.String))
    tables = [
        run_table(runs, written, is_runs).with_columns(split=pl.lit(split)) for split, runs in split_runs(graph).items()
    ]
    whole = pl.concat([empty, *tables], how="diagonal", rechunk=True)
    extras = [extra for extra in EXTRAS if extra in whole.columns]
    return whole.select(*empty.columns, *extras)


def write_parquet(graph: EpisodicGraph, folder: Path) -> None:
    """Write all splits as one table with a column `split`."""
    _whole_table(graph).write_parquet(folder / FACTS, compression="zstd")


def read_parquet(folder: Path, metadata: Metadata) -> EpisodicGraph:
    """Read what `write_parquet` wrote."""
    whole = _checked_parquet(folder, FACTS, metadata)
    whole = whole.with_row_index("row", offset=1)
    tables = {split: _located(whole.filter(pl.col("split") == split), folder) for split in metadata["splits"]}
    return graph_from_labels(tables, metadata, str)


def write_partitioned(graph: EpisodicGraph, folder: Path) -> None:
    """Write a file per split and year, in folders that are named as Hive and Spark name partitions.

    The column `row` has the order of the facts. Times without years and empty splits have no folder of a year.
    """
    whole = _whole_table(graph).with_row_index("row", offset=1)
    time = START if has_runs(graph) else "time"
    for split in graph.splits:
        place, part = folder / f"split={split}", whole.filter(pl.col("split") == split).drop("split")
        by_year: dict[tuple[Any, ...], pl.DataFrame] = {(None,): part}
        if graph.times.grain != "ordinal" and part.height:
            years = part[time].str.extract(r"^(-?[0-9]+)")
            by_year = part.with_columns(year=years).partition_by("year", as_dict=True, include_key=False)
        for (year,), facts in by_year.items():
            inner = place if year is None else place / f"year={year}"
            inner.mkdir(parents=True, exist_ok=True)
            facts.write_parquet(inner / FACTS, compression="zstd")


def read_partitioned(folder: Path, metadata: Metadata) -> EpisodicGraph:
    """Read what `write_partitioned` wrote."""
    parts: dict[str, list[pl.DataFrame]] = {split: [] for split in metadata["splits"]}
    for name in metadata["files"]:
        parts[name.partition("/")[0].removeprefix("split=")].append(_checked_parquet(folder, name, metadata))
    tables = {split: _located(pl.concat(each, how="diagonal").sort("row"), folder) for split, each in parts.items()}
    return graph_from_labels(tables, metadata, str)


def _checked_parquet(folder: Path, name: str, metadata: Metadata) -> pl.DataFrame:
    """Return the table of a file with its name as a column, after its digest is checked."""
    file = folder / name
    if digest_of_file(file) != metadata["files"][name]:  # checked first: a damaged file can crash the Parquet reader
        raise UserError(f"{file}: the content is not what was exported (its digest differs); {RESTORE}")
    return pl.read_parquet(file).with_columns(file=pl.lit(str(file)))


def _located(facts: pl.DataFrame, folder: Path) -> Table:
    """Return facts as a table whose rows know their file and number."""
    name = facts["file"][0] if facts.height else str(folder)
    return Table(facts, lambda row: f"{facts['file'][row - 1]}, row {facts['row'][row - 1]}", name)
