"""The figure of how cost grows with size."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from recollect.io.plots import COLOURS, MARKERS, figure_class


def cost_growth(points: Sequence[dict[str, Any]], path: Path) -> None:
    """Draw seconds against size on logarithmic scales, with the fitted power law of every model.

    A point has a `task` (rows of panels), an `axis` that grows (columns of panels), a `size`, a `model`, `seconds`, and
    the fitted `exponent` of its line.
    """
    tasks = list(dict.fromkeys(point["task"] for point in points))
    growing = list(dict.fromkeys(point["axis"] for point in points))
    models = list(dict.fromkeys(point["model"] for point in points))
    figure = figure_class()(figsize=(4.2 * len(growing), 3.6 * len(tasks)), dpi=150, layout="constrained")
    panels = figure.subplots(len(tasks), len(growing), squeeze=False)
    for i, task in enumerate(tasks):
        for j, axis in enumerate(growing):
            shown = [point for point in points if point["task"] == task and point["axis"] == axis]
            panels[i, j].set(xscale="log", yscale="log", xlabel=axis, ylabel=f"seconds, {task}")
            _draw_panel(panels[i, j], shown, models)
    figure.savefig(path)


def _draw_panel(axes: Any, points: Sequence[dict[str, Any]], models: Sequence[str]) -> None:
    """Draw one line per model."""
    for k, model in enumerate(models):
        line = [point for point in points if point["model"] == model]
        if line:
            _draw_line(axes, line, COLOURS[k % len(COLOURS)], MARKERS[k % len(MARKERS)])
    sizes = sorted({point["size"] for point in points})
    axes.set_xticks(sizes, [f"{size:,}" for size in sizes])
    axes.set_xticks([], minor=True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize="x-small", title="fitted power", title_fontsize="x-small")


def _draw_line(axes: Any, line: Sequence[dict[str, Any]], colour: str, marker: str) -> None:
    """Draw the measured points of a model and c · size^exponent, with c from the geometric mean of the points."""
    sizes, seconds = [point["size"] for point in line], [point["seconds"] for point in line]
    exponent = line[0]["exponent"]
    log_factors = [math.log(y) - exponent * math.log(x) for x, y in zip(sizes, seconds, strict=True)]
    factor = math.exp(statistics.fmean(log_factors))
    axes.plot(sizes, seconds, marker, color=colour, markersize=5, label=f"{line[0]['model']} {exponent:.2f}")
    axes.plot(sizes, [factor * x**exponent for x in sizes], color=colour, linewidth=1)
