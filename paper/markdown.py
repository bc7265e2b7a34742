"""Format results: tables in Markdown, numbers with as many digits as they deserve."""

from __future__ import annotations

import re
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from recollect.io.datasets import DATASETS


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Return a table whose first column is text and whose other columns are numbers."""
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def by_model(rows: Sequence[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Group rows by their model, in the order of first occurrence."""
    return group(rows, "model")


def group(rows: Sequence[dict[str, Any]], key: str) -> dict[Any, list[dict[str, Any]]]:
    """Group rows by the value of a key, in the order of first occurrence.

    >>> group([{"dim": 5, "x": 1}, {"dim": 10, "x": 2}, {"dim": 5, "x": 3}], "dim")[5]
    [{'dim': 5, 'x': 1}, {'dim': 5, 'x': 3}]
    """
    groups: dict[Any, list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault(row[key], []).append(row)
    return groups


def file_name(data: str) -> str:
    """Return the name of a dataset, or the last part of a path, with characters that a link may contain."""
    name = data if data.partition("/")[0] in DATASETS else Path(data).stem
    return re.sub(r"[^\w.-]", "-", name)


def board_heading(board: dict[str, Any]) -> str:
    """Return the heading of a dataset's table, and its sizes."""
    sizes, splits = board["sizes"], board["splits"]
    return (
        f"## {board['data']}\n\n{sizes['entity']:,} entities × {sizes['predicate']} predicates × "
        f"{sizes['time']:,} times; {splits['train']:,} / {splits['valid']:,} / {splits['test']:,} facts."
    )


def number(value: float | None, digits: int = 3) -> str:
    """Return a number with that many digits after the point; a dash for None."""
    return "–" if value is None else f"{value:.{digits}f}"


def percent(value: float, digits: int = 1) -> str:
    """Return a share in percent, without the sign.

    >>> percent(0.1234)
    '12.3'
    """
    return number(100 * value, digits)


def mean_and_spread(values: Sequence[float], digits: int = 3) -> str:
    """Return the mean and, if there is more than one value, the standard deviation.

    >>> mean_and_spread([0.5, 0.7]), mean_and_spread([0.5])
    ('0.600 ± 0.141', '0.500')
    """
    mean = f"{statistics.fmean(values):.{digits}f}"
    return mean if len(values) < 2 else f"{mean} ± {statistics.stdev(values):.{digits}f}"
