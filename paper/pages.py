"""How results are told: tables in Markdown, and numbers with as many digits as they deserve."""

from __future__ import annotations

import re
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from recollect.io.datasets import DATASETS


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """A table whose first column is text and the others numbers."""
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def by_model(rows: Sequence[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Rows under their models, in the order in which these come."""
    return {model: [row for row in rows if row["model"] == model] for model in dict.fromkeys(r["model"] for r in rows)}


def file_name(data: str) -> str:
    """The name of a dataset, or the last part of a path, as part of a file's name that a link may hold."""
    name = data if data.partition("/")[0] in DATASETS else Path(data).stem
    return re.sub(r"[^\w.-]", "-", name)


def number(value: float | None, digits: int = 3) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


def mean_and_spread(values: Sequence[float], digits: int = 3) -> str:
    """The mean, and the standard deviation where there is more than one.

    >>> mean_and_spread([0.5, 0.7]), mean_and_spread([0.5])
    ('0.600 ± 0.141', '0.500')
    """
    mean = f"{statistics.fmean(values):.{digits}f}"
    return mean if len(values) < 2 else f"{mean} ± {statistics.stdev(values):.{digits}f}"
