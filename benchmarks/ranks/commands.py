"""The commands of `python -m benchmarks ranks`."""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.options import Json, Quick
from benchmarks.ranks.launch import launch
from recollect import UserError
from recollect.cli.rendering import format_value, print_rows

app = typer.Typer(help="Measure training by several processes.", no_args_is_help=True)

MODELS = {"complex": {"model": "complex", "dim": 32}, "cont": {"model": "cont", "dim": 16}}
Model = Annotated[list[str] | None, typer.Option(help=f"Some of {', '.join(MODELS)}, each with a static part.")]
LIMIT_MIB = 512  # memory limit of a process


def task_of(model: str, *, quick: bool, dtype: str = "float64", **changes: Any) -> dict[str, Any]:
    """Return the training of a model with a static part on ICEWS14."""
    if model not in MODELS:
        raise UserError(f"unknown model {model!r}; choose some of {', '.join(MODELS)}")
    data = "world" if quick else "icews14"
    options = {**MODELS[model], "static": True, "dtype": dtype} | ({"dim": 4} if quick else {})
    return {"data": data, "recipe": "modern", "model": options, **changes}


def show(rows: list[dict[str, Any]], as_json: bool) -> None:
    """Print records as a table or as JSON."""
    if not as_json:
        rows = [{name: format_value(value) for name, value in row.items()} for row in rows]
    print_rows(rows, as_json)


@app.command()
def equality(
    steps: Annotated[int, typer.Option(min=1, help="Steps whose losses are compared.")] = 200,
    epochs: Annotated[int, typer.Option(min=1, help="Epochs after which validation MRR is compared.")] = 4,
    dtype: Annotated[str, typer.Option(help="Number type of the weights: float32, float64.")] = "float64",
    isolated: Annotated[bool, typer.Option("--namespaces", help="Also with every process in a namespace.")] = False,
    model: Model = None,
    quick: Quick = False,
    as_json: Json = False,
) -> None:
    """Compare losses and MRR of 1, 2 and 4 processes with the same seed.

    Example: `python -m benchmarks ranks equality --steps 50 --epochs 1`
    """
    settings = {"epochs": 1 if quick else epochs, "validate_every": 1}
    rows = []
    for name in model or MODELS:
        task = task_of(name, quick=quick, dtype=dtype, settings=settings)
        alone = launch(1, task)[0]
        for count, inside in [(2, False), (4, False), *([(2, True), (4, True)] if isolated else [])]:
            together = launch(count, task, isolated=inside)
            first = together[0]
            assert all(each["losses"] == first["losses"] for each in together)
            pairs = list(zip(alone["losses"][:steps], first["losses"][:steps], strict=True))
            rows.append(
                {
                    "model": f"{name} + static, {dtype}",
                    "processes": count,
                    "namespaces": inside,
                    "steps": len(pairs),
                    "largest difference of a loss": max(abs(a - b) / a for a, b in pairs),
                    "validation MRR alone": alone["mrr"],
                    "validation MRR": first["mrr"],
                    "difference of MRR": abs(first["mrr"] - alone["mrr"]),
                }
            )
    show(rows, as_json)


@app.command()
def wire(
    limit: Annotated[int, typer.Option(min=64, help="Memory limit of a process in MiB.")] = LIMIT_MIB,
    steps: Annotated[int, typer.Option(min=2)] = 60,
    quick: Quick = False,
    as_json: Json = False,
) -> None:
    """Train an entity table four times as large as the memory limit of each of four processes; count bytes.

    Shards are in memory-mapped files. Every process is in a network namespace and a memory group of its own, and the
    kernel counts what it sends. Needs root, iproute2 and cgroup v1.

    Example: `python -m benchmarks ranks wire --limit 512`
    """
    dim = 64
    entities = 4000 if quick else 4 * limit * 2**20 // (4 * dim)
    settings = {"optimizer": "adagrad", "l2": 0.0, "epochs": 1, "negatives": {"s": 4, "o": 4}, "batch_size": 4096}
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        task = {
            "sizes": {"entity": entities, "predicate": 50, "time": 100},
            "facts": 300_000,
            "recipe": "paper",
            "settings": settings | ({"batch_size": 64} if quick else {}),
            "model": {"model": "distmult", "dim": dim},
            "shard": True,
            "steps": min(steps, 5 if quick else steps),
            "tables": folder,
        }
        options: dict[str, Any] = {} if quick else {"isolated": True, "limit": limit * 2**20}
        reports = launch(4, task, **options)
    payload = sum(sum(report["sent"].values()) for report in reports)
    entity = sum(report["sent"]["entity rows"] + report["sent"]["entity gradients"] for report in reports)
    bound = sum(report["bound"] for report in reports)
    network = sum(report["network_bytes"] for report in reports)
    row = {
        "table bytes": reports[0]["whole_bytes"],
        "memory limit": None if quick else limit * 2**20,
        "peak resident bytes": max(report["peak_bytes"] for report in reports),
        "bound of entity bytes": bound,
        "sent entity bytes": entity,
        "sent bytes": payload,
        "bytes by the kernel": network,
        "kernel / bound": network / bound,
        "seconds a step": statistics.mean(report["seconds"] for report in reports) / (len(reports[0]["losses"]) - 1),
    }
    show([row], as_json)


@app.command()
def cores(
    steps: Annotated[int, typer.Option(min=2)] = 100,
    quick: Quick = False,
    as_json: Json = False,
) -> None:
    """Count the bytes of ConT's cores that 2 and 4 processes send, by time levels and smoothness.

    Example: `python -m benchmarks ranks cores --steps 20`
    """
    rows = []
    for levels, smoothness in (([1], 0.0), ([1], 3.0), ([1, 5, 25], 0.0), ([1, 5, 25], 3.0)):
        for count in (2, 4):
            settings = {"smoothness": smoothness, "epochs": 1}
            task = task_of("cont", quick=quick, dtype="float32", settings=settings, steps=5 if quick else steps)
            task["model"]["time_levels"] = levels
            report = launch(count, task)[0]
            taken = len(report["losses"]) - 1
            core = report["sent"]["time gradients"] + report["sent"].get("time rows of gaps", 0)
            rows.append(
                {
                    "time levels": ",".join(map(str, levels)),
                    "smoothness": smoothness,
                    "processes": count,
                    "core bytes a step": core // taken,
                    "all bytes a step": sum(report["sent"].values()) // taken,
                }
            )
    show(rows, as_json)


@app.command()
def speed(
    rounds: Annotated[int, typer.Option(min=1, help="Rounds; one and two processes take turns.")] = 5,
    steps: Annotated[int, typer.Option(min=2)] = 60,
    batch_size: Annotated[int, typer.Option(min=1, help="Facts per step.")] = 2048,
    dim: Annotated[int, typer.Option(min=1, help="Embedding size of ComplEx.")] = 128,
    quick: Quick = False,
    as_json: Json = False,
) -> None:
    """Measure one process and two processes with one thread each, in turns. Needs a machine that is otherwise idle.

    Example: `python -m benchmarks ranks speed --rounds 3`
    """
    rows = []
    for model, size in (("complex", dim), ("cont", 40)):
        settings = {"batch_size": batch_size, "epochs": 99, "validate_every": 99}
        limits = {"steps": 5 if quick else steps, "warm_up": 2}
        task = task_of(model, quick=quick, dtype="float32", settings=settings, **limits)
        task["model"]["dim"] = 4 if quick else size
        found: dict[int, list[dict[str, Any]]] = {1: [], 2: []}
        for _ in range(1 if quick else rounds):
            for count in found:
                found[count].append(launch(count, task)[0])
        seconds = {count: min(report["seconds"] for report in reports) for count, reports in found.items()}
        cpu = {count: min(report["cpu_seconds"] for report in reports) for count, reports in found.items()}
        taken = limits["steps"] - 1 - limits["warm_up"]
        rows.append(
            {
                "model": f"{model} + static, dim {task['model']['dim']}, batch {batch_size}",
                "ms a step, one": 1000 * seconds[1] / taken,
                "ms a step, two": 1000 * seconds[2] / taken,
                "speedup": seconds[1] / seconds[2],
                "CPU ms, one": 1000 * cpu[1] / taken,
                "CPU ms each, two": 1000 * cpu[2] / taken,
                "CPU ratio": cpu[1] / cpu[2],
            }
        )
    show(rows, as_json)


@app.command()
def restart(model: Model = None, quick: Quick = False, as_json: Json = False) -> None:
    """Kill one of four processes, let torchrun start them again, and continue with two; compare the weights.

    Example: `python -m benchmarks ranks restart`
    """
    rows = []
    for name in model or MODELS:
        settings = {"epochs": 3, "validate_every": 1}
        task = task_of(name, quick=quick, settings=settings)
        whole = launch(4, task)[0]
        with tempfile.TemporaryDirectory() as folder:
            checkpoint = str(Path(folder) / "run.partial")
            records = len(whole["losses"]) + settings["epochs"]
            kill = {"checkpoint": checkpoint, "kill_at": records // 2}
            killed = launch(4, task | kill, restarts=1)[0]
            assert (Path(folder) / "killed").exists()
        with tempfile.TemporaryDirectory() as folder:
            checkpoint = str(Path(folder) / "run.partial")
            part = task | {"checkpoint": checkpoint, "settings": settings}
            launch(4, part | {"steps": 2 * len(whole["losses"]) // 3 + 1})
            fewer = launch(2, part)[0]
        rows.append(
            {
                "model": name,
                "weights, uninterrupted": whole["digest"],
                "killed and restarted": killed["digest"],
                "same bits": killed["digest"] == whole["digest"],
                "4, then 2 processes": fewer["digest"],
                "MRR": whole["mrr"],
                "MRR killed": killed["mrr"],
                "MRR 4, then 2": fewer["mrr"],
            }
        )
    show(rows, as_json)
