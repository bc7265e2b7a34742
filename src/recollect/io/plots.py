"""Figures: learning curves, one fact over time, a graph at a glance, growth of cost.

They need matplotlib (`recollect[plots]`).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from recollect.errors import UserError

BLUE, ORANGE, GREY = "#0072B2", "#D55E00", "#999999"  # Okabe and Ito: safe for the colour-blind
COLOURS = (BLUE, ORANGE, "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = "os^Dv*X"
STYLES = ("-", "--", "-.", ":")  # of curves with too many points for markers


def learning_curves(history: Sequence[dict[str, Any]], path: Path) -> None:
    """Training loss and validation MRR against epochs."""
    figure, axes = _figure()
    axes.plot([h["epoch"] for h in history], [h["loss"] for h in history], color=BLUE)
    axes.set(xlabel="epoch", ylabel="training loss per fact")
    axes.yaxis.label.set_color(BLUE)
    axes.set_ylim(bottom=0)
    measured = [h for h in history if h["mrr"] is not None]
    if measured:
        right = axes.twinx()
        right.plot([h["epoch"] for h in measured], [h["mrr"] for h in measured], color=ORANGE, marker="o")
        right.set_ylabel("filtered validation MRR")
        right.set_ylim(0, 1)
        right.yaxis.label.set_color(ORANGE)
        right.spines["top"].set_visible(False)
        best = max(measured, key=lambda h: h["mrr"])
        right.annotate(
            f"{best['mrr']:.3f}", (best["epoch"], best["mrr"]), (0, 8), textcoords="offset points", ha="center"
        )
    axes.set_title("Learning")
    figure.savefig(path)


def fact_over_time(table: pl.DataFrame, true_times: set[str], title: str, path: Path) -> None:
    """The probability of one triple at every time, above the times at which it really holds."""
    figure, axes = _figure()
    times, probabilities = table["time"].to_list(), table["probability"].to_list()
    axes.plot(range(len(times)), probabilities, color=BLUE, label="recalled probability")
    holds = [time in true_times for time in times]
    axes.fill_between(
        range(len(times)), 0, 1, where=holds, step="mid", color=ORANGE, alpha=0.25, linewidth=0, label="really holds"
    )
    ticks = range(0, len(times), max(1, len(times) // 8))
    axes.set_xticks(list(ticks), [times[i] for i in ticks], rotation=30, ha="right")
    axes.set(ylabel="probability", ylim=(0, 1.02), title=title)
    axes.legend(frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.22), ncols=2)
    figure.savefig(path)


def graph_overview(about: dict[str, Any], path: Path) -> None:
    """What `describe` tells of a graph: facts over time, busiest predicates and entities, lengths of runs."""
    figure = figure_class()(figsize=(10, 6.5), dpi=150, layout="constrained")
    over_time, busy_predicates, busy_entities, lengths = figure.subplots(2, 2).ravel()
    over_time.stairs(about["over_time"], fill=True, color=BLUE, alpha=0.6)
    ends = {0.5: about["from"], about["times"] - 0.5: about["to"]}
    over_time.set_xticks(list(ends), list(ends.values()))
    over_time.set(title="facts over time", ylim=(0, None))
    for axes, title in ((busy_predicates, "busiest predicates"), (busy_entities, "busiest entities")):
        counts = about[title.replace(" ", "_")]
        labels = [label if len(label) <= 32 else label[:31] + "…" for label in counts]
        axes.barh(range(len(counts)), counts.values(), color=BLUE)
        axes.locator_params(axis="x", nbins=4)
        axes.set_yticks(range(len(counts)), [label.replace("$", r"\$") for label in labels])
        axes.invert_yaxis()
        axes.set_title(title)
    lengths.plot(range(1, len(about["run_lengths"]) + 1), about["run_lengths"], ".", color=ORANGE)
    lengths.set(
        xscale="log",
        yscale="log",
        title="runs",
        xlabel=f"length ({'step' if about['grain'] == 'ordinal' else about['grain']}s)",
        ylabel="how many",
    )
    for axes in figure.axes:
        axes.spines[["top", "right"]].set_visible(False)
    sizes = f"{about['entities']:,} entities × {about['predicates']:,} predicates × {about['times']:,} times"
    figure.suptitle(f"{about['name']}: {about['true']:,} facts, {sizes}".replace("$", r"\$"))
    figure.savefig(path)


def bars(values: Mapping[str, float], title: str, label: str, path: Path) -> None:
    """One bar for each name, the longest on top."""
    figure, axes = _figure()
    names = sorted(values, key=values.__getitem__)
    axes.barh(range(len(names)), [values[name] for name in names], color=BLUE)
    axes.set_yticks(range(len(names)), [name.replace("_", " ") for name in names])
    axes.set(xlabel=label, title=title)
    figure.savefig(path)


def cost_growth(points: Sequence[dict[str, Any]], path: Path) -> None:
    """Seconds against size on log-log scales, with the fitted power of every model.

    A point tells what is done (`task`), what grows (`axis`), to what `size`, the `model`, its `seconds` and, the same
    for all points of its line, the fitted `exponent`.
    """
    tasks, axes = (list(dict.fromkeys(point[key] for point in points)) for key in ("task", "axis"))
    models = list(dict.fromkeys(point["model"] for point in points))
    figure = figure_class()(figsize=(4.2 * len(axes), 3.6 * len(tasks)), dpi=150, layout="constrained")
    panels = figure.subplots(len(tasks), len(axes), squeeze=False)
    for i, task in enumerate(tasks):
        for j, axis in enumerate(axes):
            shown = [point for point in points if (point["task"], point["axis"]) == (task, axis)]
            for k, model in enumerate(models):
                line = [point for point in shown if point["model"] == model]
                if line:
                    _growth_line(panels[i, j], line, COLOURS[k % len(COLOURS)], MARKERS[k % len(MARKERS)])
            panels[i, j].set(xscale="log", yscale="log", xlabel=axis, ylabel=f"seconds, {task}")
            sizes = sorted({point["size"] for point in shown})
            panels[i, j].set_xticks(sizes, [f"{size:,}" for size in sizes])
            panels[i, j].set_xticks([], minor=True)
            panels[i, j].spines[["top", "right"]].set_visible(False)
            panels[i, j].legend(frameon=False, fontsize="x-small", title="fitted power", title_fontsize="x-small")
    figure.savefig(path)


def _growth_line(axes: Any, line: Sequence[dict[str, Any]], colour: str, marker: str) -> None:
    """The measured points of a model, and the straight line of its power through their middle."""
    sizes, seconds = ([point[key] for point in line] for key in ("size", "seconds"))
    power = line[0]["exponent"]
    middle = math.exp(statistics.fmean(math.log(s) - power * math.log(x) for x, s in zip(sizes, seconds, strict=True)))
    axes.plot(sizes, seconds, marker, color=colour, markersize=5, label=f"{line[0]['model']} {power:.2f}")
    axes.plot(sizes, [middle * x**power for x in sizes], color=colour, linewidth=1)


@dataclass(frozen=True)
class Line:
    """A named curve; `spread` is drawn as a band around it, `dashed` tells it from a solid one of the same colour."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    spread: Sequence[float] | None = None
    dashed: bool = False
    colour: int | None = None  # the place among the colours, where curves belong together


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
    """Panels of curves side by side, with one legend for all."""
    columns = min(columns, len(panels))
    rows = -(-len(panels) // columns)
    width = max(7.0, 4.8 * columns)
    figure = figure_class()(figsize=(width, 3.4 * rows + 0.6), dpi=150, layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False, sharey=True).ravel()
    named: dict[str, Any] = {}
    for panel, (title, curves) in zip(axes, panels.items(), strict=False):
        for i, line in enumerate(curves):
            place = i if line.colour is None else line.colour
            colour, marker = COLOURS[place % len(COLOURS)], MARKERS[place % len(MARKERS)]
            few = marker if len(line.x) <= 20 else ""
            style = "--" if line.dashed else "-" if few else STYLES[place % len(STYLES)]
            (drawn,) = panel.plot(line.x, line.y, style, marker=few, color=colour, markersize=5, label=line.name)
            named.setdefault(line.name, drawn)
            if line.spread is not None:
                low, high = ([y + k * d for y, d in zip(line.y, line.spread, strict=True)] for k in (-1, 1))
                panel.fill_between(line.x, low, high, color=colour, alpha=0.15, linewidth=0)
        panel.set(title=title, xlabel=xlabel, xlim=xlim, ylim=ylim)
        if log_x:
            panel.set_xscale("log")
            shown = sorted({x for line in curves for x in line.x})
            panel.set_xticks(shown, [f"{x:g}" for x in shown])
            panel.set_xticks([], minor=True)
        if ticks is not None:
            panel.set_xticks(list(ticks), list(ticks.values()))
        panel.spines[["top", "right"]].set_visible(False)
        panel.grid(axis="y", color=GREY, alpha=0.3)
    for panel in axes[len(panels) :]:
        panel.set_visible(False)
    for panel in axes[::columns]:
        panel.set_ylabel(ylabel)
    fitting = max(1, int(width / (0.7 + 0.09 * max(map(len, named)))))  # names in a row
    figure.legend(named.values(), named.keys(), loc="outside lower center", ncols=fitting, frameon=False)
    figure.savefig(path)


def check_figure(path: Path) -> None:
    """Refuse, before any work, a figure that could not be drawn in the end."""
    figure_class()
    if path.suffix not in (".png", ".svg", ".pdf"):
        raise UserError(f"{path}: cannot be drawn; give a name that ends in .png, .svg or .pdf")
    if not path.parent.is_dir():
        raise UserError(f"{path}: {path.parent} is no folder; make it, or choose another place")


def figure_class() -> Any:
    """matplotlib's figure, or how to get it."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UserError("figures need matplotlib; install it with: pip install 'recollect[plots]'") from error
    return Figure


def _figure() -> tuple[Any, Any]:
    figure = figure_class()(figsize=(7, 4), dpi=150, layout="constrained")
    axes = figure.add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color=GREY, alpha=0.3)
    return figure, axes
