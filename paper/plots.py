"""Panels of curves for the figures of the reproduction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recollect.io.plots import COLOURS, GREY, MARKERS, figure_class

STYLES = ("-", "--", "-.", ":")  # of curves with too many points for markers
MOST_MARKERS = 20  # points of a curve that are drawn with markers


@dataclass(frozen=True)
class Line:
    """A named curve of n points (x, y), optionally with a band y ± spread."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    spread: Sequence[float] | None = None
    dashed: bool = False
    colour: int | None = None  # index into COLOURS; None: the position of the curve in its panel


def lines(
    panels: Mapping[str, Sequence[Line]],
    path: Path,
    *,
    xlabel: str,
    ylabel: str,
    log_x: bool = False,
    columns: int = 2,
    ticks: Mapping[float, str] | None = None,
    xlim: tuple[float, float] | None = None,
    ylim: tuple[float, float] = (0, 1.02),
) -> None:
    """Draw panels of curves in a grid, by title, with one legend for all, and save the figure to `path`."""
    columns = min(columns, len(panels))
    rows = -(-len(panels) // columns)
    width = max(7.0, 4.8 * columns)  # inches
    figure = figure_class()(figsize=(width, 3.4 * rows + 0.6), dpi=150, layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False, sharey=True).ravel()
    handles: dict[str, Any] = {}
    for axes, (title, curves) in zip(grid, panels.items(), strict=False):
        axes.set(title=title, xlabel=xlabel, ylim=ylim)
        _set_x_axis(axes, curves, log_x, ticks)
        for position, line in enumerate(curves):
            handles.setdefault(line.name, _draw(axes, line, position if line.colour is None else line.colour))
        if xlim is not None:
            axes.set_xlim(xlim)
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", color=GREY, alpha=0.3)
    for axes in grid[len(panels) :]:
        axes.set_visible(False)
    for axes in grid[::columns]:
        axes.set_ylabel(ylabel)
    names_per_row = max(1, int(width / (0.7 + 0.09 * max(map(len, handles)))))  # 0.09 inches per character
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=names_per_row, frameon=False)
    figure.savefig(path)


def _set_x_axis(axes: Any, curves: Sequence[Line], log_x: bool, ticks: Mapping[float, str] | None) -> None:
    """Set the scale and the ticks. This comes before any limit: matplotlib keeps the limits of a linear scale."""
    if log_x:
        axes.set_xscale("log")
        values = sorted({x for line in curves for x in line.x})
        axes.set_xticks(values, [f"{x:g}" for x in values])
        axes.set_xticks([], minor=True)
    if ticks is not None:
        axes.set_xticks(list(ticks), list(ticks.values()))


def _draw(axes: Any, line: Line, colour: int) -> Any:
    """Draw one curve and its band; return its handle for the legend."""
    shade, marker = COLOURS[colour % len(COLOURS)], MARKERS[colour % len(MARKERS)]
    style = "-"
    if len(line.x) > MOST_MARKERS:
        marker, style = "", STYLES[colour % len(STYLES)]
    if line.dashed:
        style = "--"
    (handle,) = axes.plot(line.x, line.y, style, marker=marker, color=shade, markersize=5, label=line.name)
    if line.spread is not None:
        low = [y - spread for y, spread in zip(line.y, line.spread, strict=True)]
        high = [y + spread for y, spread in zip(line.y, line.spread, strict=True)]
        axes.fill_between(line.x, low, high, color=shade, alpha=0.15, linewidth=0)
    return handle
