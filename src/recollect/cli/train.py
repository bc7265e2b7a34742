"""Train a memory, with checkpoints that Ctrl-C leaves behind, and search the settings of a recipe."""

from __future__ import annotations

import shlex
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from recollect.cli import options as opt
from recollect.cli.allocator import keep_freed_memory
from recollect.cli.rendering import check_memory_place, check_place, console, print_json, print_line, share_progress
from recollect.errors import UserError

if TYPE_CHECKING:
    from recollect.graph.facts import EpisodicGraph
    from recollect.memory.learning import Learning
    from recollect.memory.memory import Memory
    from recollect.models.config import ModelConfig
    from recollect.training.recipe import Recipe
    from recollect.training.run import TrainingRun
    from recollect.training.trainer import Epoch, Step

CHECKPOINT_SECONDS = 60  # at most, between two checkpoints


def train(
    data: opt.Data,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the memory; by default the name of DATA with .memory.")
    ] = None,
    model: opt.Model = "auto",
    dim: opt.Dim = None,
    predicate_dim: opt.PredicateDim = None,
    time_dim: opt.TimeDim = None,
    form: opt.Form = "episodic",
    static: opt.Static = None,
    reciprocal: opt.Reciprocal = None,
    time_levels: opt.TimeLevels = None,
    recipe: opt.RecipeName = "modern",
    settings: opt.Settings = None,
    epochs: opt.Epochs = None,
    split: opt.Split = None,
    columns: opt.Columns = None,
    grain: opt.Grain = None,
    seed: opt.Seed = 0,
    device: opt.Device = "cpu",
    resume: Annotated[bool, typer.Option("--resume", help="Continue an interrupted run.")] = False,
    force: opt.Force = False,
    as_json: opt.Json = False,
) -> None:
    """Learn a graph and save the memory. After Ctrl-C, the same command with --resume continues the run.

    Example: `recollect train world --model cont --dim 16 --epochs 2`
    """
    from recollect.io.atomic import locked
    from recollect.memory.learning import Learning
    from recollect.memory.memory import Memory

    keep_freed_memory()
    out = default_out(data) if out is None else out
    check_place(out)
    with locked(out, wait=0):
        partial = check_out(out, resume, force)
        chosen, dtype = opt.choose_recipe(recipe, settings, epochs)
        graph = opt.split_graph(opt.load_graph(data, columns, grain), split, seed)
        options = {
            "model": model, "dim": dim, "predicate_dim": predicate_dim, "time_dim": time_dim, "form": form,
            "static": static, "reciprocal": reciprocal, "time_levels": opt.parse_levels(time_levels), "dtype": dtype,
        }  # fmt: skip
        resume = resume and partial.exists()
        stored = stored_configs(partial) if resume else []
        configs, reason = choose_configs(graph, chosen, options, stored)
        learning = Learning(graph, configs, recipe=chosen, seed=seed, device=device)
        if force:
            remove_checkpoints(partial)
        start = time.monotonic()
        train_runs(learning, partial, resume)
        with share_progress("history") as progress:
            memory = Memory.of(learning.result(progress.update))
        with how_to_go_on(partial):
            memory.save(out, overwrite=force or resume)
        remove_checkpoints(partial)
    print_summary(summary(memory, out, reason, time.monotonic() - start), as_json)


def checkpoint_of(partial: Path, number: int) -> Path:
    """Return the path of the checkpoint of a run by its number from 0: m.partial, m.partial-2, m.partial-3 …"""
    return partial if number == 0 else partial.with_name(f"{partial.name}-{number + 1}")


def checkpoints(partial: Path) -> Iterator[Path]:
    """Yield the checkpoints that there are, those of earlier runs first."""
    for number in count():
        path = checkpoint_of(partial, number)
        if not path.exists():
            return
        yield path


def remove_checkpoints(partial: Path) -> None:
    """Remove all checkpoints, those of later runs first, so that a kill leaves a run that can be continued."""
    from recollect.io.atomic import remove_file

    for path in reversed(list(checkpoints(partial))):
        remove_file(path)


def train_runs(learning: Learning, partial: Path, resume: bool) -> None:
    """Train all runs; those that have a checkpoint continue from it, so that finished ones are not trained again."""
    for number, run in enumerate(learning.runs()):
        path = checkpoint_of(partial, number)
        if resume and path.exists():
            run.load_checkpoint_(path)
        run_to_end(run, path)


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


def choose_configs(
    graph: EpisodicGraph, recipe: Recipe, options: Mapping[str, Any], stored: Sequence[ModelConfig] = ()
) -> tuple[list[ModelConfig], str]:
    """Return the models to train and the sentence that says what was chosen and why, which is printed too."""
    from recollect.training.auto import resolve_configs

    configs, reason = resolve_configs(graph, recipe, stored=stored, **options)
    if reason:
        print_line(f"chosen: {reason}", err=True)
    return configs, reason


def stored_configs(partial: Path) -> list[ModelConfig]:
    """Return the models of an interrupted run; none if its checkpoint cannot be read as one."""
    from recollect.io.checkpoint import read_settings
    from recollect.models.config import ModelConfig

    try:
        return [ModelConfig.from_dict(read_settings(path)) for path in checkpoints(partial)]
    except (KeyError, TypeError, UserError):
        return []  # `load_checkpoint_` says what is wrong with it


def check_out(out: Path, resume: bool, force: bool) -> Path:
    """Return the path of the checkpoint that belongs to `out`; refuse, before any work, what cannot be written."""
    if resume and force:
        raise UserError("--resume continues a run and --force discards it; give one of them")
    partial = out.with_name(out.name + ".partial")
    check_memory_place(out, replace=force or resume)
    if resume and out.exists() and not partial.exists():
        print_line(f"{out} is finished already; there is nothing to resume", err=True)
        raise typer.Exit
    if partial.exists() and not (resume or force):
        raise UserError(f"{partial} is an unfinished run; continue it with --resume or discard it with --force")
    return partial


def summary(memory: Memory, out: Path, reason: str, seconds: float) -> dict[str, Any]:
    """Return what --json prints of a finished run: of a sum, the list `models` has what a single model has here."""
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
    shown = {"out": str(out), "facts": memory.graph.counts["train"], "chosen": reason, "seconds": round(seconds, 1)}
    if len(models) == 1:
        return shown | models[0]
    return shown | ({"models": models} if models else {"config": {"model": "history"}})


def print_summary(about: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(about)
        return
    models = about.get("models", [about] if "epochs" in about else [])
    if not models:
        print_line(f"{about['out']}: history of {about['facts']:,} facts, {about['seconds']} s")
        return
    words = []
    for each in models:
        name = f"{each['config']['model']}: " if len(models) > 1 else ""
        quality = "" if each["valid_mrr"] is None else f", validation MRR {each['valid_mrr']:.3f}"
        words.append(f"{name}best of {each['epochs']} epochs was {each['best_epoch']}{quality}")
    print_line(f"{about['out']}: {'; '.join(words)}")


def run_to_end(run: TrainingRun, partial: Path) -> None:
    """Train with a progress bar; write checkpoints at validations, every minute, when interrupted and at the end."""
    from recollect.training.trainer import Epoch

    saved = time.monotonic()
    with stop_signals() as received:
        for record in show_progress(run):
            at_end = run.trainer.finished or run.trainer.epoch % run.recipe.validate_every == 0
            validated = isinstance(record, Epoch) and at_end
            if received or validated or time.monotonic() - saved > CHECKPOINT_SECONDS:
                with how_to_go_on(partial):
                    run.save_checkpoint(partial)
                saved = time.monotonic()
            if received:
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
def stop_signals() -> Iterator[list[int]]:
    """Yield a list to which SIGINT and SIGTERM are appended; the second one raises KeyboardInterrupt."""
    received: list[int] = []

    def handle(number: int, _frame: object) -> None:
        received.append(number)
        if len(received) > 1:
            raise KeyboardInterrupt

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def show_progress(run: TrainingRun) -> Iterator[Step | Epoch]:
    """Yield the records of a run; show a bar on standard error, or one line per validation if it is no terminal."""
    from recollect.memory.progress import ProgressBar
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
        typer.Option(help="Folder of the study, continued if there is one; by default the name of DATA with .search."),
    ] = None,
    model: opt.Model = "auto",
    dim: opt.Dim = None,
    predicate_dim: opt.PredicateDim = None,
    time_dim: opt.TimeDim = None,
    form: opt.Form = "episodic",
    static: opt.Static = None,
    reciprocal: opt.Reciprocal = None,
    time_levels: opt.TimeLevels = None,
    recipe: opt.RecipeName = "modern",
    settings: opt.Settings = None,
    epochs: opt.Epochs = None,
    split: opt.Split = None,
    columns: opt.Columns = None,
    grain: opt.Grain = None,
    seed: opt.Seed = 0,
    as_json: opt.Json = False,
) -> None:
    """Search the settings of a recipe on the validation split, never the test split. Ctrl-C keeps the study.

    Example: `recollect search world --model distmult --dim 8 --epochs 2 --budget 0.2`
    """
    from recollect.io.plots import figure_class
    from recollect.training.search import FOUND, Search, find_optuna

    keep_freed_memory()
    out = default_out(data).with_suffix(".search") if out is None else out
    check_place(out)
    find_optuna()
    figure_class()
    chosen, dtype = opt.choose_recipe(recipe, settings, epochs)
    graph = opt.split_graph(opt.load_graph(data, columns, grain), split, seed)
    options = {
        "model": model, "dim": dim, "predicate_dim": predicate_dim, "time_dim": time_dim, "form": form,
        "static": static, "reciprocal": reciprocal, "time_levels": opt.parse_levels(time_levels), "dtype": dtype,
    }  # fmt: skip
    configs, _ = choose_configs(graph, chosen, options)
    if len(configs) != 1:
        raise UserError(f"a search trains one model; got {model!r}")
    [config] = configs
    study = Search(graph, config, chosen, out, seed)
    with share_progress("") as progress:
        found = study.run(budget, progress.describe)
    if as_json:
        print_json(found)
        return
    print_trials(found)
    reading = {"split": split, "columns": columns, "grain": grain, "seed": seed or None, "recipe": out / FOUND}
    words = [word for name, value in reading.items() if value is not None for word in (f"--{name}", str(value))]
    print_line(f"learn with it: {shlex.join(['recollect', 'train', data, *config_words(config), *words])}")


def config_words(config: ModelConfig) -> list[str]:
    """Return the options of `train` that give this config."""
    words = ["--model", config.model, "--dim", str(config.dim)]
    for name in ("predicate_dim", "time_dim"):
        if getattr(config, name) not in (None, config.dim):
            words += [f"--{name.replace('_', '-')}", str(getattr(config, name))]
    words += ["--form", config.form] if config.form != "episodic" else []
    words += ["--static" if config.static else "--no-static"]
    words += ["--reciprocal" if config.reciprocal else "--no-reciprocal"]
    words += ["--time-levels", ",".join(map(str, config.time_levels))]
    return words + (["--set", f"dtype={config.dtype}"] if config.dtype != "float32" else [])


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
