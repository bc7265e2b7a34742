"""Labelled rows become an episodic graph: labels and times numbered, intervals spread out, equal facts merged."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import polars as pl
import psutil
import torch
from torch import Tensor

from recollect.errors import UserError
from recollect.graph.facts import EpisodicGraph, Facts, Vocabulary, number
from recollect.graph.times import TimeAxis, natural_grain, time_bin, time_key

TIME_ROLES = ("time", "start", "end")
FACT_BYTES = 150  # that a fact takes while it is numbered and merged
_EXAMPLES = {"year": "2014", "month": "2014-03", "week": "2014-W10", "day": "2014-03-05", "hour": "2014-03-05T13"}
_TRUTHS = {"true": 1, "True": 1, "TRUE": 1, "1": 1, "false": 0, "False": 0, "FALSE": 0, "0": 0}


@dataclass(frozen=True)
class Table:
    """Labelled rows, one string column a role, and how to say where a row came from."""

    frame: pl.DataFrame
    where: Callable[[int], str]
    name: str


def assemble(
    tables: Mapping[str, Table],
    *,
    grain: str | None = None,
    inclusive_end: bool = False,
    open_start: str = "edge",
    overlap: str = "refuse",
    name: str,
) -> EpisodicGraph:
    """Number the labels and times of all splits together, and merge equal facts.

    An unknown start reaches to the `edge` of the record, or leaves only the `end` known. A fact in two splits is
    refused, or with overlap="later" stays in the later one, where it is judged.
    """
    if not tables:
        raise UserError("no tables to read; give at least a train split")
    frames = [table.frame for table in tables.values()]
    entities = Vocabulary.of("entity", _distinct(frames, "subject", "object"))
    predicates = Vocabulary.of("predicate", _distinct(frames, "predicate"))
    bins, axis = _times(tables, grain, inclusive_end)
    sizes = {"entity": len(entities), "predicate": len(predicates), "time": len(axis)}
    splits: dict[str, Facts] = {}
    taken: dict[str, Tensor] = {}
    duplicates = moved = 0
    for split in list(tables) if overlap == "refuse" else list(tables)[::-1]:
        table = tables[split]
        facts, rows = _encode(table, bins[split], entities, predicates, axis, open_start)
        codes = number(facts, sizes)
        if overlap == "refuse":
            _refuse_overlap(codes, rows, table, taken, tables)
        splits[split], merged = _merge(facts, codes, rows, table)
        duplicates += merged
        found = number(splits[split], sizes)
        if overlap == "later" and taken:
            free = ~torch.isin(found, torch.cat(list(taken.values())))
            splits[split] = splits[split][free]
            moved += int((~free).sum())
        taken[split] = found
    return EpisodicGraph(
        entities,
        predicates,
        axis,
        {split: splits[split] for split in tables},
        name,
        duplicates,
        rows={split: table.frame.height for split, table in tables.items()},
        dropped={"fact is in a later split too": moved} if moved else {},
    )


def first_true(mask: pl.Series) -> int:
    """The first row of a mask that holds somewhere."""
    return int(mask.arg_max() or 0)


def _distinct(frames: list[pl.DataFrame], *roles: str) -> list[str]:
    return pl.concat([frame[role] for frame in frames for role in roles]).unique().to_list()


def _times(
    tables: Mapping[str, Table], grain: str | None, inclusive_end: bool
) -> tuple[dict[str, pl.DataFrame], TimeAxis]:
    """First and last bin of every row (null where unknown), and the axis that spans them all."""
    roles = [role for role in TIME_ROLES if any(role in table.frame.columns for table in tables.values())]
    for table in tables.values():
        if missing := [role for role in roles if role not in table.frame.columns]:
            raise UserError(
                f"{table.name}: no column for the {missing[0]}, which another split has; use the same columns"
            )
    if not roles:
        one = {split: pl.DataFrame({"first": [0] * table.frame.height, "last": 0}) for split, table in tables.items()}
        return one, TimeAxis("ordinal", 0, 1)
    frames = [table.frame for table in tables.values()]
    labels = [label for label in _distinct(frames, *roles) if label]  # None or "": unknown
    grain = grain or natural_grain(labels)
    read = pl.DataFrame(
        {
            "label": labels,
            "bin": [time_bin(label, grain) for label in labels],
            "before": [time_bin(label, grain, before=not inclusive_end) for label in labels],
            "key": [time_key(label, grain) for label in labels],
        },
        schema={"label": pl.String, "bin": pl.Int64, "before": pl.Int64, "key": pl.Int64},
    )
    bins = {split: _row_bins(table, read, grain) for split, table in tables.items()}
    known = pl.concat([frame[column] for frame in bins.values() for column in ("first", "last")]).drop_nulls()
    return bins, TimeAxis.spanning(grain, known.unique().to_list(), steps=read["bin"].drop_nulls().to_list())


def _row_bins(table: Table, read: pl.DataFrame, grain: str) -> pl.DataFrame:
    """First and last bin of each row, after every label of the table has proved readable and in order."""
    frame = table.frame
    point = "time" in frame.columns

    def look_up(role: str, column: str) -> pl.Series:
        if role not in frame.columns:
            return pl.Series([None] * frame.height, dtype=pl.Int64)
        return frame.select(label=role).join(read, on="label", how="left", maintain_order="left")[column]

    for role in (role for role in TIME_ROLES if role in frame.columns):
        unread = look_up(role, "before" if role == "end" else "bin").is_null() & (
            point | (frame[role].is_not_null() & (frame[role] != ""))
        )
        if unread.any():
            row = first_true(unread)
            wanted = "a whole number" if grain == "ordinal" else f"a {grain} or finer, like {_EXAMPLES[grain]}"
            given = "nothing" if not frame[role][row] else repr(frame[role][row])
            raise UserError(
                f"{table.where(row + 1)}: cannot read {given} as the {role}; wanted {wanted}, or another grain"
            )
    if point:
        return pl.DataFrame({"first": look_up("time", "bin"), "last": look_up("time", "bin")})
    start, end = look_up("start", "key"), look_up("end", "key")
    if (start.is_null() & end.is_null()).any():
        row = first_true(start.is_null() & end.is_null())
        raise UserError(f"{table.where(row + 1)}: neither start nor end is known; give one or drop the row")
    if (end < start).any():
        row = first_true((end < start).fill_null(False))
        raise UserError(
            f"{table.where(row + 1)}: the end {frame['end'][row]} is before the start {frame['start'][row]}; "
            "correct it, or tell the columns if these are not start and end"
        )
    first, before = look_up("start", "bin"), look_up("end", "before")
    # an interval that ends where it starts is a point
    last = pl.select(pl.when(before.is_not_null()).then(pl.max_horizontal(first, before))).to_series()
    return pl.DataFrame({"first": first, "last": last})


def _encode(
    table: Table, bins: pl.DataFrame, entities: Vocabulary, predicates: Vocabulary, axis: TimeAxis, open_start: str
) -> tuple[Facts, Tensor]:
    """Every (s, p, o, t) that the rows stand for, and the row, from 1, that each comes from."""
    start = pl.col("first") if open_start == "edge" else pl.coalesce("first", "last")
    index = bins.with_columns(
        first=((start - axis.first) // axis.step).fill_null(0),
        last=((pl.col("last") - axis.first) // axis.step).fill_null(len(axis) - 1),
    )
    lengths = (index["last"] - index["first"] + 1).clip(lower_bound=1)
    total = int(lengths.sum())
    if (needed := total * FACT_BYTES) > (free := psutil.virtual_memory().available):
        raise UserError(
            f"{table.name}: the rows stand for {total:,} facts, which need {needed:,} bytes, and {free:,} are free; "
            "use a coarser grain"
        )
    row = torch.repeat_interleave(torch.arange(table.frame.height), _tensor(lengths))
    offset = torch.arange(total) - (_tensor(lengths).cumsum(0) - _tensor(lengths))[row]
    facts = Facts.from_columns(
        entities.ids(table.frame["subject"])[row],
        predicates.ids(table.frame["predicate"])[row],
        entities.ids(table.frame["object"])[row],
        _tensor(index["first"])[row] + offset,
    )
    value = _extra(table, "value", _TRUTHS, "true or false")
    weight = _extra(table, "weight", None, "a number from 0")
    return Facts(
        facts.ids,
        None if value is None else _tensor(value).bool()[row],
        None if weight is None else torch.tensor(weight.to_list())[row],
    ), row + 1


def _extra(table: Table, role: str, words: Mapping[str, int] | None, wanted: str) -> pl.Series | None:
    """The told value or weight of each row."""
    if role not in table.frame.columns:
        return None
    text = table.frame[role]
    if words is not None:
        read = text.replace_strict(words, default=None, return_dtype=pl.Int64)
    else:
        number = text.cast(pl.Float64, strict=False)
        read = pl.select(pl.when(number.is_finite() & (number >= 0)).then(number)).to_series()
    if read.null_count():
        row = first_true(read.is_null())
        raise UserError(f"{table.where(row + 1)}: cannot read {text[row]!r} as a {role}; wanted {wanted}")
    return read


def _merge(facts: Facts, codes: Tensor, rows: Tensor, table: Table) -> tuple[Facts, int]:
    """Each fact once, in the order of its number, weights added; how many rows were merged away."""
    distinct, inverse = codes.unique(return_inverse=True)
    first = torch.full_like(distinct, len(codes)).scatter_reduce_(0, inverse, torch.arange(len(codes)), "amin")
    merged = facts[first]
    if facts.value is not None and bool((clash := facts.value != facts.value[first][inverse]).any()):
        row = int(rows[clash.nonzero()[0, 0]])
        raise UserError(f"{table.where(row)}: this fact is True in one row and False in another; keep one of them")
    weight = None
    if facts.weight is not None:
        weight = torch.zeros(len(distinct)).index_add_(0, inverse, facts.weight)
    return Facts(merged.ids, merged.value, weight), len(codes) - len(distinct)


def _refuse_overlap(
    codes: Tensor, rows: Tensor, table: Table, taken: Mapping[str, Tensor], tables: Mapping[str, Table]
) -> None:
    for other, known in taken.items():
        both = torch.isin(codes, known)
        if both.any():
            row = int(rows[both.nonzero()[0, 0]])
            raise UserError(
                f"{table.where(row)}: this fact is also in {tables[other].name}, and so are "
                f"{int(both.sum()) - 1:,} more; no fact may be in two splits: remove it from one"
            )


def _tensor(series: pl.Series) -> Tensor:
    return torch.from_numpy(series.cast(pl.Int64).to_numpy(writable=True))
