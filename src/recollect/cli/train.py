"""Train a memory, with checkpoints that Ctrl-C leaves behind, and search the settings of a recipe."""

from __future__ import annotations

import shlex
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from recollect.cli import options as opt
from recollect.cli.allocator import keep_freed_memory
from recollect.cli.checkpoints import checkpoint_of, remove_checkpoints, stored_configs
from recollect.cli.launch import agree_on_start, started_processes
from recollect.cli.measure import metrics_table
from recollect.cli.rendering import check_place, console, print_json, print_line, share_progress
from recollect.cli.settings import choose_recipe, config_words
from recollect.errors import UserError

if TYPE_CHECKING:
    from recollect.graph.facts import EpisodicGraph
    from recollect.memory.learning.learn import Learning
    from recollect.memory.memory import Memory
    from recollect.models.config import ModelConfig
    from recollect.training.distributed.processes import Processes
    from recollect.training.recipe import Recipe
    from recollect.training.run import TrainingRun
    from recollect.training.trainer import Epoch, Step

CHECKPOINT_SECONDS = 60  # at most, between two checkpoints that are written fast
CHECKPOINT_TIMES = 10  # train for so many times as long as the last checkpoint took, if that is more
AGREE_STEPS = 32  # after so many steps, several processes agree whether to stop or to write a checkpoint
LEAKING_LENGTH = 1.5  # mean length of runs, in times, from which a random split is said to leak


def train(
    data: opt.Data,
    out: Annotated[Path | None, typer.Option(help="Folder of the memory: NAME.memory.")] = None,
    model: opt.Model = "auto",
    dim: opt.Dim = None,
    recipe: opt.RecipeName = "modern",
    settings: opt.Settings = None,
    epochs: opt.Epochs = None,
    split: opt.Split = None,
    evaluate: Annotated[bool, typer.Option("--evaluate", help="Withhold facts and rank them.")] = False,
    columns: opt.Columns = None,
    grain: opt.Grain = None,
    dates: opt.Dates = None,
    inclusive_end: opt.InclusiveEnd = False,
    allow_empty: opt.AllowEmpty = False,
    seed: opt.Seed = 0,
    device: opt.Device = "cpu",
    shard: Annotated[bool, typer.Option("--shard", help="torchrun: share out the rows of all entities.")] = False,
    tables: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Train in memory-mapped files here; by default if memory is short."),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue an interrupted run.")] = False,
    force: opt.Force = False,
    as_json: opt.Json = False,
) -> None:
    """Learn a graph and save the memory.

    \b
    recollect train events.csv              learns all facts; writes events.memory
    recollect train events.csv --evaluate   withholds some and measures on them
    recollect train events.csv --resume     continues after Ctrl-C
    torchrun --nproc-per-node 2 -m recollect train events.csv
    Next: recollect ask events.memory
    """
    from recollect.memory.learning.learn import Learning
    from recollect.memory.memory import Memory

    keep_freed_memory()
    out = default_out(data) if out is None else out
    check_place(out)
    with started_processes(out) as processes:
        partial, resume, force = agree_on_start(processes, out, resume, force)
        chosen, of_model = choose_recipe(recipe, settings, epochs)
        evaluate = evaluate or split in ("random", "time")
        graph = opt.load_graph(data, columns, grain, dates, inclusive_end, allow_empty)
        graph = split_for_use(graph, split, evaluate, seed)
        options = {"model": model, "dim": dim, **of_model}
        stored = stored_configs(partial) if resume else []
        learning = Learning(
            graph, recipe=chosen, seed=seed, device=device, stored=stored, show=show_history, tables=tables,
            processes=processes, shard=shard, **options,
        )  # fmt: skip
        if learning.reason:
            print_line(f"chosen: {learning.reason}", err=True)
        map_tables_(learning, out)
        say_weights(graph, bool(learning.configs))
        if force and processes.is_first:
            remove_checkpoints(partial)
        start = time.monotonic()
        train_runs(learning, partial, resume)
        if not processes.is_first:
            return
        memory = Memory.of(learning.result())
        with how_to_go_on(partial):
            memory.save(out, overwrite=force or resume)
        remove_checkpoints(partial)
    about = summary(memory, out, learning.note or learning.reason, time.monotonic() - start)
    report = memory.evaluate("test").to_dict() if evaluate else None
    if as_json:
        print_json(about | ({} if report is None else {"test": report}))
        return
    print_summary(about)
    if report is not None:
        console().print(metrics_table(report))


def split_for_use(graph: EpisodicGraph, split: str | None, evaluate: bool, seed: int) -> EpisodicGraph:
    """Return the graph to learn: as it is, or with facts withheld to evaluate on; say so where these leak."""
    from recollect.graph.episodes import runs
    from recollect.graph.runs import has_runs

    if evaluate and split == "none":
        raise UserError("--evaluate withholds facts and --split none withholds none; give one of them")
    if split is None and (not evaluate or graph.counts.get("test", 0)):
        return graph
    if (split or "random") == "random" and not has_runs(graph):
        found = runs(graph)
        length = found.count / max(1, len(found))
        if length >= LEAKING_LENGTH:
            print_line(
                f"facts hold for {length:.1f} times in a row on average, so a random split leaks: the times before and "
                "after a withheld fact are learned; --split time withholds the last times instead",
                err=True,
            )
    return opt.split_graph(graph, split or "random", seed)


def map_tables_(learning: Learning, out: Path) -> None:
    """Let a model that does not fit in memory be trained in files next to the memory, and say so."""
    if learning.tables is None and learning.device.type == "cpu" and learning.fits_only_mapped:
        learning.tables = out.resolve().parent
        print_line(
            f"the model does not fit in memory, so it is trained in memory-mapped files in {learning.tables}; "
            "--tables FOLDER chooses another place",
            err=True,
        )


def say_weights(graph: EpisodicGraph, has_model: bool) -> None:
    """Print what the weights of facts do, if they have some."""
    from recollect.graph.runs import split_runs

    if split_runs(graph)["train"].first.weight is None:
        return
    effect = "multiply the loss of facts in training" if has_model else "are stored"
    print_line(f"weights {effect}; history and stored answers do not use them", err=True)


@contextmanager
def show_history() -> Iterator[Callable[[float], None]]:
    """Show a bar while the history of a graph is fitted."""
    with share_progress("history") as progress:
        yield progress.update


def train_runs(learning: Learning, partial: Path, resume: bool) -> None:
    """Train all runs; those that have a checkpoint continue from it, so that finished ones are not trained again."""
    for number, run in enumerate(learning.runs()):
        path = checkpoint_of(partial, number)
        if resume and path.exists():
            run.load_checkpoint_(path)
        run_to_end(run, path, learning.processes)
    if learning.note:
        print_line(f"found: {learning.note}", err=True)


def default_out(data: str) -> Path:
    """Return the folder in which the memory of DATA is saved if --out is left out, in the current folder.

    >>> [str(default_out(data)) for data in ("my.csv", "/data/icews14/", "icews-countries/starts")]
    ['my.memory', 'icews14.memory', 'icews-countries-starts.memory']
    """
    from recollect.io.datasets import DATASETS

    name, _, view = data.partition("/")
    if name in DATASETS:
        return Path(f"{name}-{view}.memory" if view else f"{name}.memory")
    return Path(f"{Path(data).resolve().stem}.memory")


def choose_config(graph: EpisodicGraph, recipe: Recipe, options: Mapping[str, Any]) -> ModelConfig:
    """Return the one model to search settings for; print what was chosen and why."""
    from recollect.training.auto import resolve_config

    config, reason = resolve_config(graph, recipe, **options)
    if reason:
        print_line(f"chosen: {reason}", err=True)
    return config


def summary(memory: Memory, out: Path, reason: str, seconds: float) -> dict[str, Any]:
    """Return what --json prints of a finished run: of a sum, the list `models` has what a single model has here."""
    from recollect.graph.runs import has_runs, split_runs

    models = [
        {
            "config": model.config.to_dict(),
            "epochs": about["training"]["epochs"],
            "best_epoch": about["training"]["best_epoch"],
            "valid_mrr": about["training"]["valid_mrr"],
            "loss": about["training"]["history"][-1]["loss"],
            "parameters": sum(parameter.numel() for parameter in model.parameters()),
        }
        for model, about in zip(memory.models, memory.about.get("runs", [memory.about]), strict=False)
    ]
    shown = {
        "out": str(out),
        "facts": memory.graph.counts["train"],
        "intervals": len(split_runs(memory.graph)["train"]) if has_runs(memory.graph) else None,
        "chosen": reason,
        "seconds": round(seconds, 1),
    }
    if len(models) == 1:
        return shown | models[0]
    return shown | ({"models": models} if models else {"config": {"model": "history"}})


def print_summary(about: dict[str, Any]) -> None:
    """Print what was learned, and the next command."""
    models = about.get("models", [about] if "epochs" in about else [])
    count = f"{about['facts']:,} facts" if about["intervals"] is None else f"{about['intervals']:,} intervals"
    words = [] if models else [f"history of {count}, {about['seconds']} s"]
    for each in models:
        name = f"{each['config']['model']}: " if len(models) > 1 else ""
        quality = "" if each["valid_mrr"] is None else f", validation MRR {each['valid_mrr']:.3f}"
        words.append(f"{name}best of {each['epochs']} epochs was {each['best_epoch']}{quality}")
    print_line(f"{about['out']}: {'; '.join(words)}")
    print_line(f"next: {shlex.join(['recollect', 'ask', about['out']])}")


def run_to_end(run: TrainingRun, partial: Path, processes: Processes) -> None:
    """Train with a progress bar; write checkpoints at validations, every minute, when interrupted and at the end."""
    from recollect.training.trainer import Epoch

    saved, pause, is_alone = time.monotonic(), float(CHECKPOINT_SECONDS), processes.count == 1
    with stop_signals(patient=not is_alone) as received:
        for number, record in enumerate(show_progress(run)):
            at_end = run.trainer.finished or run.trainer.epoch % run.recipe.validate_every == 0
            validated = isinstance(record, Epoch) and at_end
            stop = late = False
            if is_alone or validated or number % AGREE_STEPS == 0:
                stop, late = processes.any(bool(received), time.monotonic() - saved > pause)
            if stop or validated or late:
                start = time.monotonic()
                with how_to_go_on(partial):
                    run.save_checkpoint(partial)
                saved = time.monotonic()
                pause = max(CHECKPOINT_SECONDS, CHECKPOINT_TIMES * (saved - start))
            if stop:
                print_line(f"stopped; kept at {partial}: the same command with --resume continues it", err=True)
                raise typer.Exit(130)


@contextmanager
def how_to_go_on(partial: Path) -> Iterator[None]:
    """Add to an error what is left of the run and how to continue it."""
    try:
        yield
    except UserError as error:
        if not partial.exists():
            raise UserError(f"{error}; no checkpoint of this run could be written, so start it again") from error
        raise UserError(f"{error}; {partial} is kept: the same command with --resume continues it") from error


@contextmanager
def stop_signals(*, patient: bool = False) -> Iterator[list[int]]:
    """Yield a list to which SIGINT and SIGTERM are appended; unless `patient`, the second raises KeyboardInterrupt."""
    received: list[int] = []

    def handle(number: int, _frame: object) -> None:
        received.append(number)
        if len(received) > 1 and not patient:
            raise KeyboardInterrupt

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def show_progress(run: TrainingRun) -> Iterator[Step | Epoch]:
    """Yield the records of a run; show a bar on standard error, or one line per validation if it is no terminal."""
    from recollect.memory.learning.progress import ProgressBar
    from recollect.training.trainer import Epoch

    shown = console(stderr=True)
    if shown.is_terminal:
        with ProgressBar(run, console=shown) as bar:
            for record in run:
                bar.on_record(record)
                yield record
        return
    for record in run:
        if isinstance(record, Epoch) and record.mrr is not None:
            print_line(f"epoch {record.epoch}: loss {record.loss:.4f}, valid MRR {record.mrr:.3f}", err=True)
        yield record


def search(
    data: opt.Data,
    budget: Annotated[float, typer.Option(help="Minutes.")],
    out: Annotated[
        Path | None,
        typer.Option(help="Folder of the study, new or old: NAME.search."),
    ] = None,
    storage: Annotated[
        str | None, typer.Option(metavar="URL", help="Study that several workers share; see docs/scale.md.")
    ] = None,
    model: opt.Model = "auto",
    dim: opt.Dim = None,
    recipe: opt.RecipeName = "modern",
    settings: opt.Settings = None,
    epochs: opt.Epochs = None,
    split: opt.Split = None,
    columns: opt.Columns = None,
    grain: opt.Grain = None,
    dates: opt.Dates = None,
    inclusive_end: opt.InclusiveEnd = False,
    allow_empty: opt.AllowEmpty = False,
    seed: opt.Seed = 0,
    as_json: opt.Json = False,
) -> None:
    """Search the settings of a recipe on the validation split. Test facts are never read; Ctrl-C keeps the study.

    \b
    recollect search world --budget 30
    recollect search world --model distmult --dim 8 --epochs 2 --budget 0.2
    recollect search events.csv --split time --budget 60
    Next: the recollect train that it prints
    """
    from recollect.io.plots import figure_class
    from recollect.training.search import FOUND, Search, find_optuna

    keep_freed_memory()
    out = default_out(data).with_suffix(".search") if out is None else out
    check_place(out)
    find_optuna()
    figure_class()
    chosen, of_model = choose_recipe(recipe, settings, epochs)
    graph = opt.load_graph(data, columns, grain, dates, inclusive_end, allow_empty)
    graph = opt.split_graph(graph, split, seed)
    config = choose_config(graph, chosen, {"model": model, "dim": dim, **of_model})
    study = Search(graph, config, chosen, out, seed, storage)
    with share_progress("") as progress:
        found = study.run(budget, progress.describe)
    if as_json:
        print_json(found)
        return
    print_trials(found)
    reading: dict[str, Any] = {"split": split, "columns": columns, "grain": grain, "dates": dates, "seed": seed or None}
    reading |= {"recipe": out / FOUND}
    words = [word for name, value in reading.items() if value is not None for word in (f"--{name}", str(value))]
    words += ["--inclusive-end"] * inclusive_end + ["--allow-empty"] * allow_empty
    print_line(f"learn with it: {shlex.join(['recollect', 'train', data, *config_words(config), *words])}")


def print_trials(found: dict[str, Any]) -> None:
    """Print the ten best runs of a search, and the importance of each setting."""
    best = sorted(found["trials"], key=lambda trial: -trial["valid_mrr"])[:10]
    names = list(best[0]["settings"])
    table = Table("run", "valid MRR", "best epoch", *(name.replace("_", " ") for name in names))
    for trial in best:
        values = (f"{value:.3g}" for value in trial["settings"].values())
        table.add_row(str(trial["trial"]), f"{trial['valid_mrr']:.4f}", str(trial["best_epoch"]), *values)
    if found["importance"]:
        table.add_row("", "", "importance", *(f"{found['importance'].get(name, 0):.0%}" for name in names))
    console().print(table)
    print_line(f"best of {len(found['trials'])} runs: valid MRR {found['best']['valid_mrr']:.3f}")
