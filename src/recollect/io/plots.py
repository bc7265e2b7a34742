"""Draw figures with matplotlib: learning curves, one fact over time, an overview of a graph, a bar chart.

matplotlib is imported when a figure is drawn, never when this module is imported.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from recollect.errors import UserError

BLUE, ORANGE, GREY = "#0072B2", "#D55E00", "#999999"  # Okabe and Ito: safe for the colour-blind
COLOURS = (BLUE, ORANGE, "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = "os^Dv*X"
SUFFIXES = (".png", ".svg", ".pdf")
LONGEST_LABEL = 32  # characters


def learning_curves(history: Sequence[dict[str, Any]], path: Path) -> None:
    """Draw training loss (left axis) and validation MRR (right axis) against epochs."""
    figure, axes = _single_axes()
    axes.plot([record["epoch"] for record in history], [record["loss"] for record in history], color=BLUE)
    axes.set(title="Learning", xlabel="epoch", ylabel="training loss per fact")
    axes.yaxis.label.set_color(BLUE)
    axes.set_ylim(bottom=0)
    validated = [record for record in history if record["mrr"] is not None]
    if validated:
        _draw_validation(axes.twinx(), validated)
    figure.savefig(path)


def _draw_validation(axes: Any, validated: Sequence[dict[str, Any]]) -> None:
    """Plot validation MRR against epoch and annotate its maximum."""
    axes.plot([record["epoch"] for record in validated], [record["mrr"] for record in validated], "o-", color=ORANGE)
    axes.set(ylabel="filtered validation MRR", ylim=(0, 1))
    axes.yaxis.label.set_color(ORANGE)
    axes.spines["top"].set_visible(False)
    best = max(validated, key=lambda record: record["mrr"])
    position = (best["epoch"], best["mrr"])
    axes.annotate(f"{best['mrr']:.3f}", position, (0, 8), textcoords="offset points", ha="center")


def fact_over_time(table: pl.DataFrame, true_times: set[str], title: str, path: Path) -> None:
    """Draw the probability of one triple at every time, and shade the times at which it is true.

    `table` has the columns `time` and `probability`.
    """
    figure, axes = _single_axes()
    times = table["time"].to_list()
    positions = range(len(times))
    axes.plot(positions, table["probability"].to_list(), color=BLUE, label="recalled probability")
    holds = [float(time in true_times) for time in times]
    edges = [i - 0.5 for i in range(len(times) + 1)]
    axes.stairs(holds, edges, fill=True, color=ORANGE, alpha=0.25, label="really holds")
    ticks = positions[:: max(1, len(times) // 8)]
    axes.set_xticks(ticks, [times[i] for i in ticks], rotation=30, ha="right")
    axes.set(ylabel="probability", ylim=(0, 1.02), title=title)
    axes.legend(frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.22), ncols=2)
    figure.savefig(path)


def reliability_diagram(reports: Mapping[str, Mapping[str, Any]], path: Path) -> None:
    """Draw, for every slot, the share of answers that were true against the probability that was said."""
    figure, axes = _single_axes()
    axes.plot([0, 1], [0, 1], color=GREY, linewidth=1)
    for (slot, report), colour, marker in zip(reports.items(), COLOURS, MARKERS, strict=False):
        said, true = ([row[name] for row in report["bins"]] for name in ("predicted", "observed"))
        label = f"{slot} (error {report['likely_error']:.3f})"
        axes.plot(said, true, color=colour, marker=marker, label=label)
    axes.set(title="Reliability", xlabel="probability", ylabel="share that was true", xlim=(0, 1), ylim=(0, 1))
    axes.legend(frameon=False)
    figure.savefig(path)


def graph_overview(about: dict[str, Any], path: Path) -> None:
    """Draw what `describe` returns: facts over time, most frequent predicates and entities, lengths of runs."""
    figure = figure_class()(figsize=(10, 6.5), dpi=150, layout="constrained")
    over_time, predicates, entities, lengths = figure.subplots(2, 2).ravel()
    over_time.stairs(about["over_time"], fill=True, color=BLUE, alpha=0.6)
    over_time.set_xticks([0.5, about["times"] - 0.5], [about["from"], about["to"]])
    over_time.set(title="facts over time", ylim=(0, None))
    _draw_counts(predicates, about["busiest_predicates"], "busiest predicates")
    _draw_counts(entities, about["busiest_entities"], "busiest entities")
    _draw_run_lengths(lengths, about["run_lengths"], about["grain"])
    for axes in figure.axes:
        _hide_frame(axes)
    sizes = f"{about['entities']:,} entities × {about['predicates']:,} predicates × {about['times']:,} times"
    figure.suptitle(_plain(f"{about['name']}: {about['true']:,} facts, {sizes}"))
    figure.savefig(path)


def _draw_counts(axes: Any, counts: Mapping[str, int], title: str) -> None:
    """Draw a horizontal bar per label, in the given order from the top."""
    labels = [label if len(label) <= LONGEST_LABEL else label[: LONGEST_LABEL - 1] + "…" for label in counts]
    axes.barh(range(len(counts)), list(counts.values()), color=BLUE)
    axes.locator_params(axis="x", nbins=4)
    axes.set_yticks(range(len(counts)), [_plain(label) for label in labels])
    axes.invert_yaxis()
    axes.set_title(title)


def _draw_run_lengths(axes: Any, counts: Sequence[int], grain: str) -> None:
    """Draw how many runs have length 1, 2, …, on logarithmic scales."""
    unit = "step" if grain == "ordinal" else grain
    axes.set(xscale="log", yscale="log", title="runs", xlabel=f"length ({unit}s)", ylabel="how many")
    axes.plot(range(1, len(counts) + 1), counts, ".", color=ORANGE)


def bars(values: Mapping[str, float], title: str, label: str, path: Path) -> None:
    """Draw a horizontal bar per name, the longest on top."""
    figure, axes = _single_axes()
    names = sorted(values, key=values.__getitem__)
    axes.barh(range(len(names)), [values[name] for name in names], color=BLUE)
    axes.set_yticks(range(len(names)), [name.replace("_", " ") for name in names])
    axes.set(xlabel=label, title=title)
    figure.savefig(path)


def check_figure(path: Path) -> None:
    """Raise UserError if a figure could not be drawn to `path`, so that no work is lost at the end."""
    figure_class()
    if path.suffix not in SUFFIXES:
        raise UserError(f"{path}: cannot be drawn; give a name that ends in .png, .svg or .pdf")
    if not path.parent.is_dir():
        raise UserError(f"{path}: {path.parent} is no folder; make it, or choose another place")


def figure_class() -> Any:
    """Return matplotlib's Figure, which needs no display, or raise UserError if matplotlib is not installed."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UserError("figures need matplotlib; install it with: pip install 'recollect[plots]'") from error
    return Figure


def _single_axes() -> tuple[Any, Any]:
    """Return a new figure and its only axes."""
    figure = figure_class()(figsize=(7, 4), dpi=150, layout="constrained")
    axes = figure.add_subplot()
    _hide_frame(axes)
    axes.grid(axis="y", color=GREY, alpha=0.3)
    return figure, axes


def _hide_frame(axes: Any) -> None:
    """Draw only the left and lower border."""
    axes.spines[["top", "right"]].set_visible(False)


def _plain(text: str) -> str:
    """Escape $, which starts a formula in matplotlib."""
    return text.replace("$", r"\$")
