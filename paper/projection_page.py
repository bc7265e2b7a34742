"""The page of the projection: curves against dim, reconstruction against projection, and the Hits@10 table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from paper.markdown import by_model, file_name, group, markdown_table, mean_and_spread, number, percent
from paper.plots import Line, lines
from paper.printed import PROJECTION, SHOWN

METHODS = {"paper": "ranking loss", "closed": "closed form"}
PROJECTIONS = {"start": "Start", "start-end": "Start-End"}
HITS = {
    "start": "Start",
    "start-end": "Start-End",
    "start false": "Start (false)",
    "start-end false": "Start-End (false)",
    "semantic": "Semantic",
}
SEMANTIC_COLOUR = 6  # index of black among the plot colours

Point = dict[str, Any]


def page(found: dict[str, Any], folder: Path) -> str:
    """Return the page, one section per dataset, and draw its figures."""
    intro = (
        "A model learns the starts of all runs by the paper's ranking loss without sigmoid; then a time table of the "
        "ends is learned with everything else fixed. **Start** sums the time rows of all starts, **Start-End** "
        "subtracts those of all ends, and the state at the last time should follow: which triples still hold (true) "
        "and which have ended (false). *Ranking loss* takes the time rows as that loss leaves them; *closed form* "
        "keeps the entities and predicates and solves for the rows of both tables, so that θ is 1 where something "
        "starts or ends and 0 elsewhere. *Semantic* is the counterpart trained on the state itself (RESCAL for ConT)."
    )
    return "\n\n".join([intro, *(_section(series, folder) for series in found["series"])])


def _section(series: dict[str, Any], folder: Path) -> str:
    """Return the section of one dataset and draw its figures."""
    settings, sizes, exact, points = series["settings"], series["sizes"], series["exact"], series["points"]
    data = settings["data"]
    files = {name: f"projection-{name}-{file_name(data)}.png" for name in ("auprc", "recall", "why")}
    for metric, label in (("auprc", "AUPRC"), ("recall", "recall")):
        panels = {SHOWN[model]: _curves(rows, metric) for model, rows in by_model(points).items()}
        lines(panels, folder / files[metric], xlabel="dim", ylabel=label, columns=3)
    xlabel = "MRR of recollected start and end times"
    lines(_reconstruction_curves(points), folder / files["why"], xlabel=xlabel, ylabel="AUPRC", xlim=(0, 1.02))
    return "\n\n".join(
        [
            f"## {data}",
            f"{series['triples']:,} triples of {sizes['entity']:,} entities × {sizes['predicate']} predicates × "
            f"{sizes['time']:,} times, {series['current']:,} of which hold at the last; "
            f"{settings['repetitions']} × a sample of {settings['sample']:.0%} of them (mean ± deviation). "
            f"{settings['episodic']['epochs']} epochs of the ranking loss. The tensors themselves, reconstructed "
            f"without error, have AUPRC {number(exact['start'])} by Start and {number(exact['start-end'])} by "
            "Start-End.",
            f"![AUPRC against dim]({files['auprc']})",
            f"![recall against dim]({files['recall']})",
            "### Why: a sum needs θ itself, not its order",
            f"![AUPRC of Start-End against reconstruction]({files['why']})",
            "A curve is a model at growing dim. The ranking loss learns the order of θ: a model may recollect every "
            "start and end, and the sum over times still says nothing. Where θ is tied to 0 and 1, what holds follows "
            "as well as the times are reconstructed.",
            _auprc_table(points),
            "The first two columns are the filtered MRR of the times of starts and ends, averaged; the others AUPRC.",
            f"### Hits@10 at dim {settings['dims'][-1]}, filtered / raw, in percent",
            markdown_table(["", *HITS.values()], _hits_rows(points, settings["dims"][-1])),
            "For each model a row of the paper's table, then ours by the ranking loss and in closed form. Subjects and "
            "objects together; the filter leaves out the other triples of the same kind, genuine or false.",
        ]
    )


def _curves(points: Sequence[Point], metric: str) -> list[Line]:
    """Return five curves against dim: the semantic model, and both projections by both methods."""
    curves = [_curve("Semantic", points, lambda point: point["semantic"][metric], SEMANTIC_COLOUR, dashed=False)]
    for colour, (projection, title) in enumerate(PROJECTIONS.items()):
        for method, method_title in METHODS.items():
            value = _metric_of(method, projection, metric)
            curves.append(_curve(f"{title}, {method_title}", points, value, colour, dashed=method == "paper"))
    return curves


def _curve(name: str, points: Sequence[Point], value: Callable[[Point], float], colour: int, *, dashed: bool) -> Line:
    """Return the mean of a value against dim, with its standard deviation if there are several repetitions."""
    values = {dim: [value(point) for point in same] for dim, same in group(points, "dim").items()}
    repeated = all(len(same) > 1 for same in values.values())
    spread = [stdev(same) for same in values.values()] if repeated else None
    return Line(name, list(values), [fmean(same) for same in values.values()], spread, dashed, colour)


def _metric_of(method: str, projection: str, metric: str) -> Callable[[Point], float]:
    def value(point: Point) -> float:
        return float(point[method][projection][metric])

    return value


def _reconstruction(point: Point, method: str) -> float:
    """Return the mean of the time MRR of starts and of ends."""
    return fmean([point[method]["starts time mrr"], point[method]["ends time mrr"]])


def _reconstruction_curves(points: Sequence[Point]) -> dict[str, list[Line]]:
    """Return, for each method, the AUPRC of Start-End against reconstruction: one curve per model through its dims."""
    panels: dict[str, list[Line]] = {}
    for method, title in METHODS.items():
        curves = []
        for colour, (model, rows) in enumerate(by_model(points).items()):
            by_dim = group(rows, "dim").values()
            x = [fmean(_reconstruction(point, method) for point in same) for same in by_dim]
            y = [fmean(point[method]["start-end"]["auprc"] for point in same) for same in by_dim]
            curves.append(Line(SHOWN[model], x, y, colour=colour))
        panels[title] = curves
    return panels


def _auprc_table(points: Sequence[Point]) -> str:
    """Return the table of reconstruction and AUPRC, one row per model and dim."""
    rows = []
    for model, of_model in by_model(points).items():
        for dim, same in group(of_model, "dim").items():
            cells = [mean_and_spread([_reconstruction(point, method) for point in same]) for method in METHODS]
            for projection in PROJECTIONS:
                for method in METHODS:
                    cells.append(mean_and_spread([point[method][projection]["auprc"] for point in same]))
            cells.append(mean_and_spread([point["semantic"]["auprc"] for point in same]))
            rows.append([SHOWN[model], dim, *cells])
    head = ["", "dim", "times: loss", "solved", "Start: loss", "solved", "Start-End: loss", "solved", "semantic"]
    return markdown_table(head, rows)


def _hits_rows(points: Sequence[Point], dim: int) -> list[list[str]]:
    """Return three rows per model: the paper's Hits@10, ours by the ranking loss, ours in closed form."""
    rows = []
    for model, of_model in by_model(points).items():
        same = group(of_model, "dim")[dim]
        paper = [PROJECTION[model][name] for name in HITS]
        rows.append([f"{SHOWN[model]}, paper", *(f"{filtered:.1f} / {raw:.1f}" for filtered, raw in paper)])
        for method, title in METHODS.items():
            rows.append([f"**{SHOWN[model]}, {title}**", *(_hits(same, method, name) for name in HITS)])
    return rows


def _hits(points: Sequence[Point], method: str, name: str) -> str:
    """Return mean Hits@10, filtered / raw, of a projection (`start`, `start false`, …) or of the semantic model."""
    projection, _, false = name.partition(" ")
    results = [point["semantic"] if projection == "semantic" else point[method][projection] for point in points]
    suffix = f" {false}" if false else ""
    means = [fmean(result[setting + suffix] for result in results) for setting in ("filtered", "raw")]
    return " / ".join(percent(mean) for mean in means)
