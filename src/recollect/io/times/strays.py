"""Times far from all others: warn of their rows, and keep them from stretching open intervals."""

from __future__ import annotations

import warnings
from collections.abc import Mapping

import numpy as np
import polars as pl

from recollect.errors import DataWarning, UserError
from recollect.graph.times import TimeAxis
from recollect.io.table import Table

STRETCH, MANY_TIMES, FEW = 100, 1000, 100  # a warning is due if at most 1 % and FEW rows do this to a long axis
FAR = 0.5  # open ends pass over a gap of more than this share of the span of all other times


def close_intervals(tables: Mapping[str, Table], bins: dict[str, pl.DataFrame], grain: str) -> dict[str, pl.DataFrame]:
    """Replace unknown starts and ends by the first and last plausible bin; later ends are open too, with a warning."""
    times = pl.concat([frame[column] for frame in bins.values() for column in ("first", "last")])
    if not times.null_count():
        return bins
    known = times.drop_nulls().sort().to_numpy()
    if not len(known):
        raise UserError(f"{next(iter(tables.values())).name}: no start or end is known; give the time of some rows")
    low, high = (int(known[0]), int(known[-1])) if grain == "ordinal" else _plausible(known)
    late = {split: (frame["first"] <= high) & (frame["last"] > high) for split, frame in bins.items()}
    late_rows = [(split, row) for split, mask in late.items() for row in mask.fill_null(False).arg_true().to_list()]
    if late_rows:
        named = [f"{tables[split].where(row + 1)} ({tables[split].frame['end'][row]})" for split, row in late_rows[:3]]
        others = f", and {len(late_rows) - 3:,} more rows" if len(late_rows) > 3 else ""
        warnings.warn(
            f"{'; '.join(named)}{others}: the end is far after all other times, so it is read as open; open ends last "
            f"to {TimeAxis(grain, high, 1).label(0)}; correct it if it is wrong",
            DataWarning,
            stacklevel=2,
        )
    is_late = (pl.col("first") <= high) & (pl.col("last") > high)
    last = pl.when(is_late).then(high).otherwise(pl.col("last").fill_null(pl.max_horizontal("first", high)))
    first = pl.col("first").fill_null(pl.min_horizontal("last", low))
    ongoing = pl.col("ongoing") | is_late.fill_null(False)
    return {
        split: frame.with_columns(last=last, ongoing=ongoing).with_columns(first=first) for split, frame in bins.items()
    }


def _plausible(known: np.ndarray) -> tuple[int, int]:
    """Return the first and last of sorted bins without the few that a wide gap separates from all others: (n,)."""
    few = min(FEW, max(1, len(known) // 100))
    if len(known) <= 10 * few:
        return int(known[0]), int(known[-1])
    inner = known[few : len(known) - few]
    span = max(1, int(inner[-1] - inner[0]))
    low, high = int(inner[0]), int(inner[-1])
    for value in known[len(known) - few :].tolist():
        if value - high > FAR * span:
            break
        high = value
    for value in known[:few][::-1].tolist():
        if low - value > FAR * span:
            break
        low = value
    return low, high


def warn_of_stray_times(tables: Mapping[str, Table], bins: Mapping[str, pl.DataFrame], grain: str) -> None:
    """Warn of the few rows whose times make the axis STRETCH times as long, and say where they are."""
    is_point = any("time" in table.frame.columns for table in tables.values())
    columns = ["first"] if is_point else ["first", "last"]
    times = pl.concat([frame[column] for frame in bins.values() for column in columns]).drop_nulls()
    few = min(FEW, max(2, len(times) // 100))
    if len(times) <= 10 * few:
        return
    lows, highs = (ends.sort().to_numpy() for ends in (times.bottom_k(few + 1), times.top_k(few + 1)))
    whole = int(highs[-1] - lows[0]) + 1
    densest = int((highs - lows).argmin())  # without so many of the lowest times and few − densest of the highest
    low, high = int(lows[densest]), int(highs[densest])
    width = high - low + 1
    if whole < MANY_TIMES or whole < STRETCH * width:
        return
    is_near = pl.all_horizontal(pl.col(columns).is_between(low - width, high + width).fill_null(True))
    strays: list[tuple[str, int, int]] = []  # split, row, bin
    for split, frame in bins.items():
        far = frame.with_row_index("row", offset=1).filter(~is_near)
        for row, *ends in far.select("row", *columns).iter_rows():
            farthest = max((end for end in ends if end is not None), key=lambda end: abs(end - low))
            strays.append((split, row, farthest))
    named = [f"{tables[split].where(row)} ({TimeAxis(grain, far, 1).label(0)})" for split, row, far in strays[:3]]
    others = f", and {len(strays) - 3:,} more rows" if len(strays) > 3 else ""
    near = times.filter(times.is_between(low - width, high + width)).to_numpy()
    warnings.warn(
        f"{'; '.join(named)}{others}: far from all other times, so that the time axis has {whole:,} steps of one "
        f"{grain}, where the others span {int(near.max() - near.min()) + 1:,}; correct them if they are wrong",
        DataWarning,
        stacklevel=2,
    )
