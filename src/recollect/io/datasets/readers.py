"""Read the files of published datasets: one function for each file format."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import polars as pl
import torch

from recollect.errors import UserError
from recollect.graph.facts import SPLITS, EpisodicGraph, Facts, encode, sort_facts
from recollect.graph.times import TimeAxis, time_bin
from recollect.graph.vocabulary import Vocabulary
from recollect.io.assembly import assemble
from recollect.io.table import Table
from recollect.io.tables import read

Paths: TypeAlias = Mapping[str, Path]  # role (train, valid, test, …) -> path of the file

AGAIN = "give the file as it was published"
_ROLES = {"subject": "entity", "predicate": "predicate", "object": "entity"}  # column -> kind of its ids


def read_facts(paths: Paths) -> EpisodicGraph:
    """Read facts with labels and dates, one file per split."""
    return read(dict(paths))


def read_static(paths: Paths) -> EpisodicGraph:
    """Read triples without time, one file per split."""
    return read(dict(paths), static=True)


def read_ids_and_hours(paths: Paths) -> EpisodicGraph:
    """Read facts with ids and hours, one file per split; further columns are ignored."""
    return read(dict(paths), columns={"subject": 0, "predicate": 1, "object": 2, "time": 3}, grain="ordinal")


def read_named_ids(paths: Paths) -> EpisodicGraph:
    """Read facts with ids, ordinal times and a fifth column to ignore; files `entity` and `predicate` name the ids."""
    tables = {}
    for split in SPLITS:
        frame = _text_columns(paths[split], [*_ROLES, "time", "unused"]).drop("unused")
        tables[split] = Table(_named(frame, paths), partial(_where, paths[split]), str(paths[split]))
    return assemble(tables, grain="ordinal", name="ids")


def read_counted(paths: Paths, counts: bool = False) -> EpisodicGraph:
    """Read facts by month with a count in the fifth column, which becomes the weight if `counts`."""
    columns = {"subject": 0, "predicate": 1, "object": 2, "time": 3}
    if counts:
        columns["weight"] = 4
    return read(paths["train"], columns=columns, grain="month")


def read_intervals(paths: Paths) -> EpisodicGraph:
    """Read facts by id with start and end, by year; `#` is an unknown digit.

    The optional files `entity` and `predicate` give the names of ids. An interval includes its end year. Without an
    end it holds to the last time; without a start it holds only at its end. Intervals that end before they start are
    dropped and counted.
    """
    tables, rows, dropped = {}, {}, Counter[str]()
    for split in SPLITS:
        frame = interval_rows(paths, split)
        rows[split] = frame.height
        reasons = {
            "unreadable year": pl.any_horizontal(pl.col("start", "end") == ""),
            "neither start nor end known": pl.all_horizontal(pl.col("start", "end").is_null()),
            "start after end": pl.col("start") > pl.col("end"),
        }
        for reason, applies in reasons.items():
            kept = frame.filter(~applies.fill_null(False))
            dropped[reason] += frame.height - kept.height
            frame = kept
        frame = frame.with_columns(start=pl.coalesce("start", "end"))
        tables[split] = Table(frame, partial(_where, paths[split]), str(paths[split]))
    graph = assemble(tables, grain="year", inclusive_end=True, disjoint=False, expand=True, name="intervals")
    splits = _without_later_facts(graph)
    dropped["fact is in a later split too"] = len(graph.facts) - sum(map(len, splits.values()))
    return replace(graph, splits=splits, rows=rows, dropped={reason: n for reason, n in dropped.items() if n})


def _where(path: Path, row: int) -> str:
    return f"{path}, row {row} of those kept"


def interval_rows(paths: Paths, split: str) -> pl.DataFrame:
    """Return the rows of a split: subject, predicate, object, start and end year; null is unknown, "" unreadable."""
    frame = _named(_text_columns(paths[split], [*_ROLES, "start", "end"]), paths)
    return frame.with_columns(_year("start"), _year("end"))


def _without_later_facts(graph: EpisodicGraph) -> dict[str, Facts]:
    """Return the splits without the facts that are also in a later split."""
    splits = {}
    later = torch.empty(0, dtype=torch.int64)
    for split in reversed(SPLITS):
        facts = graph.splits[split]
        codes = encode(facts, graph.sizes)
        splits[split] = facts[~torch.isin(codes, later)]
        later = torch.cat([later, codes])
    return {split: splits[split] for split in SPLITS}


def _text_columns(path: Path, names: list[str]) -> pl.DataFrame:
    """Read tab-separated text without header or quotes, all columns as text."""
    try:
        return pl.read_csv(
            path, separator="\t", has_header=False, quote_char=None, schema=dict.fromkeys(names, pl.String)
        )
    except pl.exceptions.PolarsError as error:
        raise UserError(f"{path}: wanted {len(names)} tab-separated columns ({', '.join(names)}); {AGAIN}") from error


def _named(frame: pl.DataFrame, paths: Paths) -> pl.DataFrame:
    """Replace the ids of a table by their names where the files `entity` and `predicate` are given."""
    for role, kind in _ROLES.items():
        if kind in paths:
            frame = frame.with_columns(pl.col(role).replace_strict(_id_names(paths[kind])))
    return frame


def _id_names(path: Path) -> dict[str, str]:
    """Return the name of every id in a file of names, ids and perhaps further columns."""
    rows = [line.split("\t") for line in path.read_text(encoding="utf-8").removesuffix("\n").split("\n")]
    if any(len(row) < 2 for row in rows):
        raise UserError(f"{path}: wanted at least 2 tab-separated columns (name, id); {AGAIN}")
    return {row[1]: row[0] for row in rows}


def _year(role: str) -> pl.Expr:
    """Return the year of column `role` (YYYY-MM-DD) as an expression; null if unknown (####), "" if malformed."""
    year = pl.col(role).str.extract("^([0-9]{1,4})-").str.zfill(4).fill_null("")
    return pl.when(~pl.col(role).str.starts_with("####-")).then(year).alias(role)


def read_matlab(paths: Paths) -> EpisodicGraph:
    """Read a MATLAB file: `id` has 1-based subjects, objects, CAMEO roots and weeks; `actors` and `dates` name them."""
    try:
        from scipy.io import loadmat
        from scipy.io.matlab import MatReadError
    except ImportError as error:
        raise UserError("MATLAB files need scipy; install it with: pip install 'recollect[matlab]'") from error
    path = paths["train"]
    try:
        content = loadmat(path)
        subject, object_, root, week = (column.ravel().astype(np.int64) - 1 for column in content["id"].ravel())
        labels = {
            "entity": [str(x).strip() for x in content["actors"].ravel()],
            "predicate": [f"{i + 1:02d}" for i in range(int(root.max()) + 1)],
        }
        weeks = [str(x) for x in content["dates"].ravel()[: int(week.max()) + 1]]
    except (KeyError, ValueError, TypeError, MatReadError, OSError) as error:
        raise UserError(f"{path}: not the MATLAB file of cells that was wanted ({error}); {AGAIN}") from error
    ids = torch.from_numpy(np.stack([subject, root, object_, week], axis=1))
    return _graph_of_ids(labels, _sunday_weeks(weeks), ids)


def _sunday_weeks(starts: list[str]) -> TimeAxis:
    """Return the axis of weeks that start on a Sunday, each named by the ISO week of the following Monday."""
    mondays = [str(np.datetime64(start, "D") + np.timedelta64(1, "D")) for start in starts]
    return TimeAxis.spanning("week", [b for day in mondays if (b := time_bin(day, "week")) is not None])


def read_numpy_archive(paths: Paths, counts: bool = False) -> EpisodicGraph:
    """Read counts Y[subject, object, action, month] of a numpy archive; the first month is January 1995."""
    path = paths["train"]
    try:
        with np.load(path) as archive:  # without pickle: archives that need it are refused
            events = archive["Y"]
            actors = _texts(archive["actors"])
            actions = _action_labels(archive, events.shape[2])
    except (KeyError, ValueError, OSError, IndexError, AttributeError, TypeError) as error:
        raise UserError(
            f"{path}: not a numpy archive of Y and actors that can be read safely ({error}); {AGAIN}"
        ) from error
    if events.ndim != 4 or events.shape[:2] != (len(set(actors)), len(actors)):
        raise UserError(
            f"{path}: Y has shape {events.shape}; "
            f"wanted actors × actors × actions × months for {len(set(actors))} actors: {AGAIN}"
        )
    subject, object_, action, month = events.nonzero()
    first = time_bin("1995-01", "month") or 0
    return _graph_of_ids(
        {"entity": actors, "predicate": actions},
        TimeAxis("month", first, events.shape[3]),
        torch.from_numpy(np.stack([subject, action, object_, month], axis=1)),
        torch.from_numpy(events[subject, object_, action, month].astype(np.float32)) if counts else None,
    )


def _action_labels(archive: Any, count: int) -> list[str]:
    """Return the action names of the archive if it has them as text, else the CAMEO roots 01, 02, …."""
    try:
        names = _texts(archive["actions"])
    except (KeyError, ValueError):
        names = []
    return names if len(set(names)) == count else [f"{i + 1:02d}" for i in range(count)]


def _texts(names: Any) -> list[str]:
    """Return the texts of an array of text or, as in older archives, of bytes."""
    return [name.decode("utf-8", "replace") if isinstance(name, bytes) else str(name) for name in names.tolist()]


def _graph_of_ids(
    labels: Mapping[str, list[str]], times: TimeAxis, ids: torch.Tensor, weight: torch.Tensor | None = None
) -> EpisodicGraph:
    """Return a graph with one train split of facts whose ids index `labels`; ids are remapped to vocabularies."""
    vocabularies = {kind: Vocabulary.of(kind, names) for kind, names in labels.items()}
    entity = vocabularies["entity"].ids(pl.Series(labels["entity"]))
    predicate = vocabularies["predicate"].ids(pl.Series(labels["predicate"]))
    s, p, o, t = ids.unbind(1)
    facts = Facts(Facts.from_columns(entity[s], predicate[p], entity[o], t).ids, None, weight)
    graph = EpisodicGraph(vocabularies["entity"], vocabularies["predicate"], times, {}, rows={"train": len(facts)})
    return replace(graph, splits={"train": sort_facts(facts, graph.sizes)})
