"""The experiments by name: each is a function that computes figures and one that writes their page."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from paper import (
    as_of,
    continual,
    continual_page,
    costs,
    forecast,
    forgetting,
    history,
    intervals,
    leaderboards,
    projection,
    projection_page,
    rare,
    stream,
    stream_page,
    tables,
)
from paper.provenance import commit, provenance
from paper.workspace import Report, Workspace
from recollect import UserError
from recollect.io.atomic import write_text


@dataclass(frozen=True)
class Experiment:
    """A title, an estimate of the duration on two cores, and the functions that run the work and write the page."""

    title: str
    minutes: float
    run: Callable[[Workspace], dict[str, Any]]
    page: Callable[[dict[str, Any], Path], str]  # returns the text and draws its plots into the folder
    folder: str = ""  # of its stored work, for experiments that share it; "" = the experiment's name


def _leaderboard(title: str, minutes: float, name: str) -> Experiment:
    return Experiment(title, minutes, partial(leaderboards.run, name), leaderboards.page)


def _table(title: str, minutes: float, name: str) -> Experiment:
    return Experiment(title, minutes, partial(tables.run, name), partial(tables.page, name))


EXPERIMENTS: dict[str, Experiment] = {
    "parameters": Experiment("How many parameters models have", 0.1, costs.run_parameters, costs.page_parameters),
    "runtime": Experiment("One training epoch on GDELT's shape", 5, costs.run_runtime, costs.page_runtime),
    "table-icews": _table("Missing entities and predicates, ICEWS", 40, "icews"),
    "table-gdelt": _table("Missing entities and predicates, GDELT", 50, "gdelt"),
    "table-rare": Experiment("Recollection of rare facts", 12, rare.run_table, rare.page_table, "rare"),
    "figure-rare": Experiment("Recollection of rare facts against dim", 25, rare.run_figure, rare.page_figure, "rare"),
    "projection": Experiment("From episodic to semantic memory", 80, projection.run, projection_page.page),
    "as-of": Experiment("What held at every past time", 6, as_of.run, as_of.page),
    "benchmark-icews14": _leaderboard("ICEWS14, modern recipe", 80, "icews14"),
    "ablation-icews14": _leaderboard("What each ingredient of the modern recipe adds", 80, "ablation-icews14"),
    "recipes-icews": _leaderboard("Two recipes, ICEWS", 60, "icews-countries"),
    "recipes-gdelt": _leaderboard("Two recipes, GDELT", 60, "gdelt2012-countries"),
    "benchmark-icews05-15": _leaderboard("ICEWS05-15, modern recipe", 180, "icews05-15"),
    "history": Experiment("History alone and added to models", 60, history.run, history.page),
    "forecast": Experiment("Forecasts one step ahead", 15, forecast.run, forecast.page),
    "continual": Experiment("Snapshots of a growing graph", 40, continual.run, continual_page.page),
    "forgetting": Experiment("Forgotten facts", 6, forgetting.run, forgetting.page),
    "intervals": Experiment("When facts held, as intervals", 2, intervals.run, intervals.page),
    "stream": Experiment("Learning day by day", 30, stream.run, stream_page.page),
}


def parse_names(names: list[str]) -> list[str]:
    """Return the names of the experiments to run, each once; `all` is every experiment."""
    for name in names:
        if name not in EXPERIMENTS and name != "all":
            raise UserError(f"unknown experiment {name!r}; choose some of {', '.join(EXPERIMENTS)}, or all")
    return list(EXPERIMENTS) if "all" in names else list(dict.fromkeys(names))


def reproduce(
    names: list[str],
    out: Path,
    *,
    quick: bool = False,
    data: str | None = None,
    dims: tuple[int, ...] | None = None,
    report: Report | None = None,
) -> Iterator[Path]:
    """Run experiments one after another, write NAME.json, NAME.md and plots to `out`, and yield each page.

    Finished work is stored in `out/.work`: the same call continues after an interruption. `data` and `dims` replace an
    experiment's own.
    """
    if "runtime" in names and (data or dims):
        raise UserError("runtime measures the paper's sizes and dims; leave it, or --data and --dim, out")
    total = sum(EXPERIMENTS[name].minutes for name in names)
    minutes_before = 0.0
    for name in names:
        experiment = EXPERIMENTS[name]
        progress = _part_of(report, minutes_before / total, experiment.minutes / total)
        folder = out / ".work" / ((experiment.folder or name) + ("-quick" if quick else ""))
        workspace = Workspace(folder, quick=quick, data=data, dims=dims, report=progress)
        found = {"experiment": name, "quick": quick, "command": _command(workspace, name), **provenance()}
        found |= experiment.run(workspace)
        found["seconds"] = round(workspace.seconds, 1)
        commits = workspace.commits or {commit()} - {""}  # of the code that did the work, now or earlier
        if commits:
            found["commit"] = ", ".join(sorted(commits))
        write_text(out / f"{name}.json", json.dumps(found, indent=1, ensure_ascii=False) + "\n")
        yield write_page(found, out)
        minutes_before += experiment.minutes


def _part_of(report: Report | None, start: float, share: float) -> Report:
    """Return a report of one experiment's progress as a part, [start, start + share], of the whole."""

    def report_part(what: str, done: float) -> None:
        if report is not None:
            report(what, start + share * done)

    return report_part


def write_page(found: dict[str, Any], out: Path) -> Path:
    """Write the page of an experiment from its figures, with its plots in the same folder; return its path."""
    name = found["experiment"]
    command = found.get("command", f"python -m paper {name}")
    versions = ", ".join(f"{package} {number}" for package, number in found["versions"].items())
    origin = f"`{command}` on {found['date']}, {found['machine']['cores']} cores, "
    origin += f"{_duration(found['seconds'])} of work; "
    origin += f"commit `{found['commit']}`; {versions}." if "commit" in found else f"{versions}."
    experiment = EXPERIMENTS[name]
    parts = [f"# {experiment.title}"]
    if found["quick"]:
        parts.append("**A quick run on a synthetic world: it tries the code, and its figures mean nothing.**")
    parts += [experiment.page(found, out), "---", origin]
    write_text(out / f"{name}.md", "\n\n".join(parts) + "\n")
    return out / f"{name}.md"


def _command(workspace: Workspace, name: str) -> str:
    words = ["python", "-m", "paper", name]
    if workspace.quick:
        words.append("--quick")
    if workspace.data:
        words += ["--data", workspace.data]
    for dim in workspace.dims or ():
        words += ["--dim", str(dim)]
    return shlex.join(words)


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
