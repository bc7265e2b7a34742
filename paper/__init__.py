"""The paper's tables and figures, and a few of ours: each a function from a lab to figures, and one to a page."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from paper import as_of, benchmark, projecting, rare, sizes, tables
from paper.lab import Lab, Tell, commit, provenance
from recollect.errors import UserError
from recollect.io.atomic import write_text


@dataclass(frozen=True)
class Experiment:
    """What is done, how it is told, and about how long it takes on two cores."""

    title: str
    minutes: float
    run: Callable[[Lab], dict[str, Any]]
    page: Callable[[dict[str, Any], Path], str]  # the text; draws its figures into the folder
    work: str = ""  # the folder of its work, where another shares it


EXPERIMENTS: dict[str, Experiment] = {
    "parameters": Experiment("How many parameters models have", 0.1, sizes.run_parameters, sizes.page_parameters),
    "runtime": Experiment("One training epoch on GDELT's shape", 5, sizes.run_runtime, sizes.page_runtime),
    "table-icews": Experiment(
        "Missing entities and predicates, ICEWS", 40, partial(tables.run, "icews"), partial(tables.page, "icews")
    ),
    "table-gdelt": Experiment(
        "Missing entities and predicates, GDELT", 50, partial(tables.run, "gdelt"), partial(tables.page, "gdelt")
    ),
    "table-rare": Experiment("Recollection of rare facts", 12, rare.run_table, rare.page_table, "rare"),
    "figure-rare": Experiment("Recollection of rare facts against dim", 25, rare.run_figure, rare.page_figure, "rare"),
    "projection": Experiment("From episodic to semantic memory", 80, projecting.run, projecting.page),
    "as-of": Experiment("What held at every past time", 6, as_of.run, as_of.page),
    "benchmark-icews14": Experiment("ICEWS14, modern recipe", 80, partial(benchmark.run, "icews14"), benchmark.page),
    "ablation-icews14": Experiment(
        "What each ingredient of the modern recipe adds", 80, partial(benchmark.run, "ablation-icews14"), benchmark.page
    ),
    "recipes-icews": Experiment("Two recipes, ICEWS", 60, partial(benchmark.run, "icews-countries"), benchmark.page),
    "recipes-gdelt": Experiment(
        "Two recipes, GDELT", 60, partial(benchmark.run, "gdelt2012-countries"), benchmark.page
    ),
    "benchmark-icews05-15": Experiment(
        "ICEWS05-15, modern recipe", 180, partial(benchmark.run, "icews05-15"), benchmark.page
    ),
}


def chosen(names: list[str]) -> list[str]:
    """The experiments of these names; `all` is every one."""
    if unknown := [name for name in names if name not in EXPERIMENTS and name != "all"]:
        raise UserError(f"unknown experiment {unknown[0]!r}; choose some of {', '.join(EXPERIMENTS)}, or all")
    return list(EXPERIMENTS) if "all" in names else list(dict.fromkeys(names))


def reproduce(
    names: list[str],
    out: Path,
    *,
    quick: bool = False,
    data: str | None = None,
    dims: tuple[int, ...] | None = None,
    tell: Tell | None = None,
) -> Iterator[Path]:
    """Run experiments one after another and write NAME.json, NAME.md and figures to `out`; yields each page.

    What is done is kept in `out/.work`: the same call goes on where another was interrupted. `data` and `dims` take
    the place of an experiment's own.
    """
    if "runtime" in names and (data or dims):
        raise UserError("runtime measures the paper's sizes and dims; leave it, or --data and --dim, out")
    whole = sum(EXPERIMENTS[name].minutes for name in names)
    before = 0.0
    for name in names:
        experiment = EXPERIMENTS[name]

        def told(what: str, share: float, before: float = before, experiment: Experiment = experiment) -> None:
            if tell is not None:
                tell(what, (before + share * experiment.minutes) / whole)

        work = experiment.work or name
        lab = Lab(out / ".work" / (f"{work}-quick" if quick else work), quick=quick, data=data, dims=dims, tell=told)
        found = {"experiment": name, "quick": quick, "command": _command(lab, name), **provenance()}
        found |= experiment.run(lab)
        found["seconds"] = round(lab.seconds, 1)
        if made := lab.commits or {commit() or ""} - {""}:  # of those that did the work, now or earlier
            found["commit"] = ", ".join(sorted(made))
        write_text(out / f"{name}.json", json.dumps(found, indent=1, ensure_ascii=False) + "\n")
        yield write_page(found, out)
        before += experiment.minutes


def write_page(found: dict[str, Any], out: Path) -> Path:
    """The page of an experiment from its figures, and its plots beside it."""
    name = found["experiment"]
    command = found.get("command", f"recollect reproduce {name}")
    versions = ", ".join(f"{package} {number}" for package, number in found["versions"].items())
    made = f"`{command}` on {found['date']}, {found['machine']['cores']} cores, {_duration(found['seconds'])} of work; "
    made += f"commit `{found['commit']}`; {versions}." if "commit" in found else f"{versions}."
    small = "**A quick run on an invented world: it tries the experiment and shows nothing.**\n\n"
    experiment = EXPERIMENTS[name]
    text = f"# {experiment.title}\n\n{small if found['quick'] else ''}{experiment.page(found, out)}\n\n---\n\n{made}\n"
    write_text(out / f"{name}.md", text)
    return out / f"{name}.md"


def _command(lab: Lab, name: str) -> str:
    words = ["recollect", "reproduce", name, *(["--quick"] if lab.quick else [])]
    words += ["--data", lab.data] if lab.data else []
    words += [word for dim in lab.dims or () for word in ("--dim", str(dim))]
    return shlex.join(words)


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
