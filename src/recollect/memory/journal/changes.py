"""Changes of a memory: what was really added to its store and removed from it, by label and absolute time.

A `Delta` has no ids, so it does not depend on the order of labels nor on how far the time axis reaches. `net` is the
effect of several, one after another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from recollect.graph.times import TimeAxis

ADDED, REMOVED = "added", "removed"
TRIPLE = ("subject", "predicate", "object")
SCHEMA = pl.Schema({"change": pl.String, **dict.fromkeys(TRIPLE, pl.String), "first": pl.Int64, "last": pl.Int64})
FOREVER = 1 << 62  # stands for the last bin of an interval without an end


@dataclass(frozen=True, eq=False, repr=False)
class Delta:
    """The runs that a change added to a store and removed from it.

    A row is the run of a triple from bin `first` to bin `last`, both included; `last` is null if it has no end. Bins
    are absolute: that of time id k is `axis.first + k * axis.step`. Rows are disjoint. To apply a delta, remove the
    erased labels with all their facts, append the new labels, extend the axis to `reach`, then remove and add the rows.

    >>> delta = Delta.of(added=[("Ann", "leads", "Acme", 2014, None)])
    >>> delta, delta.inverse()
    (Delta(1 added, 0 removed), Delta(0 added, 1 removed))
    """

    frame: pl.DataFrame  # columns of SCHEMA
    erased: tuple[str, ...] = ()  # entities that are removed altogether, before any row is added
    entities: tuple[str, ...] = ()  # labels that are new, in the order in which they came
    predicates: tuple[str, ...] = ()
    reach: tuple[int, int] | None = None  # first and last bin that the axis must have, whatever is removed
    step: int = 1  # of the axis

    @classmethod
    def of(
        cls,
        added: Sequence[tuple[str, str, str, int, int | None]] = (),
        removed: Sequence[tuple[str, str, str, int, int | None]] = (),
        **fields: Any,
    ) -> Delta:
        """Return the delta of runs (subject, predicate, object, first, last)."""
        rows = [(ADDED, *row) for row in added] + [(REMOVED, *row) for row in removed]
        return cls(pl.DataFrame(rows, schema=SCHEMA, orient="row"), **fields)

    @classmethod
    def from_rows(cls, change: str, rows: pl.DataFrame, **fields: Any) -> Delta:
        """Return the delta that makes one change of rows of subject, predicate, object, first and last."""
        return cls(rows.with_columns(change=pl.lit(change)).select(SCHEMA.names()), **fields)

    def __len__(self) -> int:
        return self.frame.height

    def __repr__(self) -> str:
        erased = f", {len(self.erased):,} erased" if self.erased else ""
        return f"Delta({self.added.height:,} added, {self.removed.height:,} removed{erased})"

    @property
    def is_empty(self) -> bool:
        """Whether it changes neither facts nor labels."""
        return not (self.frame.height or self.erased or self.entities or self.predicates)

    def leaves(self, axis: TimeAxis) -> bool:
        """Return whether it changes nothing of a graph with this time axis."""
        if not self.is_empty or self.reach is None:
            return self.is_empty
        first, last = self.reach
        return axis.first <= first and last <= axis.first + (len(axis) - 1) * axis.step

    @property
    def added(self) -> pl.DataFrame:
        """The runs that were added: subject, predicate, object, first, last."""
        return self.frame.filter(change=ADDED).drop("change")

    @property
    def removed(self) -> pl.DataFrame:
        """The runs that were removed: subject, predicate, object, first, last."""
        return self.frame.filter(change=REMOVED).drop("change")

    def inverse(self) -> Delta:
        """Return the delta that undoes this one, but for what it cannot say: that predicates and times are unknown.

        The entities that were new are erased; what was erased stays so.
        """
        other = pl.col("change").replace_strict({ADDED: REMOVED, REMOVED: ADDED}, return_dtype=pl.String)
        return Delta(self.frame.with_columns(change=other), step=self.step).without(self.entities)

    def without(self, entities: Sequence[str]) -> Delta:
        """Return the delta that also erases entities, of which it then adds and removes nothing."""
        if not entities:
            return self
        gone = dict.fromkeys(entities)
        column = pl.Series(list(gone), dtype=pl.String).implode()
        frame = self.frame.filter(~pl.col("subject").is_in(column), ~pl.col("object").is_in(column))
        labels = tuple(label for label in self.entities if label not in gone)
        return replace(self, frame=frame, erased=tuple(dict.fromkeys(self.erased) | gone), entities=labels)


def net(frame: pl.DataFrame, step: int = 1) -> pl.DataFrame:
    """Return the net effect of rows of changes, of which each bin of a triple was added and removed in turn."""
    if frame.height < 2:
        return frame
    triple = frame.select(*TRIPLE, row=pl.int_range(pl.len())).with_columns(group=pl.col("row").first().over(TRIPLE))
    group = triple["group"].to_numpy()
    sign = np.where(frame["change"].to_numpy() == ADDED, 1, -1)
    pieces = sweep(group, frame["first"].to_numpy(), last_bins(frame), sign[:, None], step)
    total = pieces.counts[:, 0]
    changed = total != 0
    rows = pl.DataFrame({"change": pl.Series(np.where(total > 0, ADDED, REMOVED), dtype=pl.String)})
    labels = frame.select(TRIPLE)[pieces.group]
    bins = bins_frame(pieces.first, pieces.last)
    return pl.concat([rows, labels, bins], how="horizontal").filter(pl.Series(changed)).select(SCHEMA.names())


@dataclass(frozen=True, eq=False)
class Pieces:
    """m disjoint pieces of time of groups, sorted by group and time, each covered by the same intervals throughout."""

    group: NDArray[np.int64]  # (m,)
    first: NDArray[np.int64]  # (m,)
    last: NDArray[np.int64]  # (m,)
    counts: NDArray[np.int64]  # (m, k): the sum of the weights of the intervals that cover the piece


def sweep(
    group: NDArray[np.int64],
    first: NDArray[np.int64],
    last: NDArray[np.int64],
    weights: NDArray[np.int64],
    step: int = 1,
) -> Pieces:
    """Cut intervals (n,) at each other's ends and add up the weights (n, k) of those that cover each piece.

    Neighbouring pieces of equal sums are one. Pieces that no interval covers have the sums 0, and some of these are
    returned too.
    """
    position = np.concatenate([first, np.where(last >= FOREVER, FOREVER, last + step)])
    groups = np.concatenate([group, group])
    change = np.concatenate([weights, -weights])
    order = np.lexsort((position, groups))
    position, groups = position[order], groups[order]
    counts = change[order].cumsum(axis=0)  # 0 after the last end of a group, so groups need no reset
    is_last = np.ones(len(order), dtype=bool)  # of equal (group, position): sums count after all of them
    is_last[:-1] = (groups[1:] != groups[:-1]) | (position[1:] != position[:-1])
    position, groups, counts = position[is_last], groups[is_last], counts[is_last]
    starts_new = np.ones(len(groups), dtype=bool)
    starts_new[1:] = (groups[1:] != groups[:-1]) | (counts[1:] != counts[:-1]).any(axis=1)
    position, groups, counts = position[starts_new], groups[starts_new], counts[starts_new]
    following = np.append(position[1:], 0)
    inside = np.zeros(len(groups), dtype=bool)  # the last position of a group ends its last piece
    inside[:-1] = groups[1:] == groups[:-1]
    end = np.where(following >= FOREVER, FOREVER, following - step)
    return Pieces(groups[inside], position[inside], end[inside], counts[inside])


def last_bins(frame: pl.DataFrame) -> NDArray[np.int64]:
    """Return the column `last` with FOREVER for null: (n,)."""
    return frame["last"].fill_null(FOREVER).to_numpy()


def bins_frame(first: NDArray[np.int64], last: NDArray[np.int64]) -> pl.DataFrame:
    """Return the columns `first` and `last` of intervals, null for FOREVER."""
    frame = pl.DataFrame({"first": first, "last": last}, schema={"first": pl.Int64, "last": pl.Int64})
    return frame.with_columns(last=pl.when(pl.col("last") < FOREVER).then("last"))
