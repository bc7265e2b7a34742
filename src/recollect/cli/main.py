"""The command line: thin, labelled, and calm about mistakes."""

from __future__ import annotations

import io
import shlex
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table

from recollect.cli import demo as show
from recollect.cli.allocator import keep_freed_memory
from recollect.cli.data import Columns, Data, Grain, InclusiveEnd, Json, Static, graph_of
from recollect.cli.data import app as data_app
from recollect.cli.rendering import check_place, console, plain, print_json, print_rows, share_progress
from recollect.errors import UserError
from recollect.evaluation import metrics
from recollect.evaluation.baselines import DECAYS, Baseline
from recollect.graph.episodes import most_frequent, split_by_time, split_randomly
from recollect.graph.fact_index import FactIndex
from recollect.graph.facts import EpisodicGraph, parse_slots
from recollect.io.checkpoint import remove_checkpoint
from recollect.io.plots import figure_class
from recollect.memory.bundle import ABOUT
from recollect.memory.memory import Memory, load
from recollect.models.config import FORMS
from recollect.models.time_knots import parse_time_levels
from recollect.models.zoo import MODELS
from recollect.training.auto import resolve_config
from recollect.training.recipe import LOSSES, USED_BY, Recipe, check_negatives, check_predict, parse_recipe
from recollect.training.run import TrainingRun
from recollect.training.search import FOUND, Search, find_optuna
from recollect.training.trainer import Epoch, Step

app = typer.Typer(
    help="Memory for knowledge graphs that change: learn facts (subject, predicate, object, time), recall any part.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)
app.add_typer(data_app, name="data")

HITS = ("hits@1", "hits@3", "hits@10")
Form = Annotated[str, typer.Option(help="episodic (s p o t), semantic (s p o), or both, the sum of the two.")]
MemoryDir = Annotated[Path, typer.Argument(help="A saved memory.", metavar="DIR")]

CHECKPOINT_SECONDS = 60  # at most, between two checkpoints


def main() -> None:
    """Run the command line; a mistake of the user's is one sentence and exit code 2."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal may lack the signs of a label
    try:
        app()
    except UserError as error:
        _complain(str(error))
    except BrokenPipeError:
        sys.exit(1)
    except OSError as error:
        _complain(f"{error.filename}: {error.strerror}" if error.filename else str(error))
    except RuntimeError as error:
        if "allocate" not in str(error):
            raise
        _complain(f"not enough memory ({str(error).splitlines()[0]}); choose a lower dim or batch size")


def _complain(sentence: str) -> None:
    console(stderr=True, soft_wrap=True).print(f"[bold red]error:[/] {plain(sentence)}", highlight=False)
    sys.exit(2)


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the report.")] = Path("recollect-demo"),
    seed: Annotated[int, typer.Option(help="Seed of the world and of learning.")] = 0,
) -> None:
    """Learn an invented world, ask it who, what, whom and when, and write a report with figures.

    Example: `recollect demo`
    """
    shown = console()
    check_place(out)
    learning = show.start(seed)
    graph = learning.graph
    sizes = graph.sizes
    shown.print(
        f"A world of {sizes['entity']} entities, {sizes['predicate']} predicates, {sizes['time']} months: "
        f"{len(graph.facts):,} facts, {len(graph.split('test')):,} of them withheld."
    )
    for _ in _shown(learning):
        pass
    memory = Memory.from_run(learning)
    asked = list(show.questions(memory, seed=seed))
    for question in asked:
        shown.print(f"\n[bold]{question.word}[/]  {plain(question.text)}")
        for label, _, probability, _ in question.answers.rows():
            mark = "[green]✓ true[/]" if label in question.truth else ""
            shown.print(f"   {probability:6.1%}  {plain(label)}  {mark}", highlight=False)
    report = memory.evaluate("test").to_dict()
    shown.print()
    shown.print(_figure_table(report))
    files = show.write_report(memory, report, asked, out)
    memory.save(out / "world.memory", overwrite=True)
    shown.print(f"\nReport: {files[0]}   memory: {out / 'world.memory'}", soft_wrap=True)
    who = graph.table(graph.split("test")).row(0, named=True)
    shown.print(
        f"Ask it yourself: recollect recall {out / 'world.memory'} --subject '{who['subject']}' "
        f"--predicate '{who['predicate']}' --time {who['time']}",
        soft_wrap=True,
        highlight=False,
    )


@app.command()
def train(
    data: Data,
    out: Annotated[Path, typer.Option(help="Where the memory is written.")],
    model: Annotated[str, typer.Option(help="See `recollect models`.")] = "complex",
    dim: Annotated[int, typer.Option(help="Length of the latent vectors.")] = 100,
    predicate_dim: Annotated[int | None, typer.Option(help="Of predicates, where the model allows it.")] = None,
    time_dim: Annotated[int | None, typer.Option(help="Of times, where the model allows it.")] = None,
    form: Form = "episodic",
    recipe: Annotated[str, typer.Option(help="paper, modern or a .json file; options below change it.")] = "paper",
    loss: Annotated[str | None, typer.Option(help="logistic, ranking or one-vs-all.")] = None,
    margin: Annotated[float | None, typer.Option(help="Of the ranking loss.")] = None,
    negatives: Annotated[str | None, typer.Option(help="Corruptions per fact and slot: s=1,p=0,o=1,t=0.")] = None,
    avoid_known: Annotated[bool | None, typer.Option(help="Never corrupt a fact into a known one.")] = None,
    predict: Annotated[str | None, typer.Option(help="Slots of one-vs-all and weights: so, or s=1,o=1,t=0.1.")] = None,
    reciprocal: Annotated[bool | None, typer.Option(help="Predicates have inverses; who is asked as whom.")] = None,
    levels: Annotated[str | None, typer.Option(help="Spacings of the knots that times are made of: 1,5,25.")] = None,
    smoothness: Annotated[float | None, typer.Option(help="Of neighbouring times.")] = None,
    candidates: Annotated[
        int | None, typer.Option(help="Entities drawn for every batch that stand for those it does not name; 0: all.")
    ] = None,
    penalty: Annotated[
        float | None, typer.Option(help="Of the rows, and their products, that a score is made of.")
    ] = None,
    dropout: Annotated[float | None, typer.Option(help="The part of a query that is left out.")] = None,
    label_smoothing: Annotated[float | None, typer.Option(help="Of one-vs-all.")] = None,
    average: Annotated[bool | None, typer.Option(help="Keep the mean of the weights after every epoch.")] = None,
    optimizer: Annotated[str | None, typer.Option(help="adam or adagrad.")] = None,
    learning_rate: Annotated[float | None, typer.Option(help="Of the optimizer.")] = None,
    l2: Annotated[float | None, typer.Option(help="λ of λ‖P‖² beside the summed loss.")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Facts a step.")] = None,
    order: Annotated[str | None, typer.Option(help="Of the facts: random, blocks (of one time) or auto.")] = None,
    epochs: Annotated[int | None, typer.Option(help="At most.")] = None,
    validate_every: Annotated[int | None, typer.Option(help="Epochs between validations and checkpoints.")] = None,
    patience: Annotated[int | None, typer.Option(help="Validations without a better MRR before stopping.")] = None,
    split: Annotated[str | None, typer.Option(help="random, time or none; by default as given, else random.")] = None,
    entities: Annotated[int | None, typer.Option(help="Keep only the facts among so many most frequent ones.")] = None,
    seed: Annotated[int, typer.Option(help="The same seed gives the same memory.")] = 0,
    dtype: Annotated[str, typer.Option(help="float32 or float64.")] = "float32",
    device: Annotated[str, typer.Option(help="cpu, cuda, mps …")] = "cpu",
    columns: Columns = None,
    grain: Grain = None,
    static: Static = False,
    inclusive_end: InclusiveEnd = False,
    resume: Annotated[bool, typer.Option("--resume", help="Continue an interrupted run, bit for bit.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace what is at --out, and start anew.")] = False,
    as_json: Json = False,
) -> None:
    """Learn a graph and save the memory. Ctrl-C keeps the run; the same command with --resume continues it.

    Example: `recollect train world --model cont --dim 16 --epochs 50 --out world.memory`
    """
    keep_freed_memory()
    partial = out.with_name(out.name + ".partial") if out.name else out
    _check_out(out, partial, resume, force)
    told: dict[str, Any] = {
        "loss": loss,
        "margin": margin,
        "negatives": check_negatives(negatives) if negatives is not None else None,
        "avoid_known": avoid_known,
        "predict": check_predict(predict) if predict is not None else None,
        "smoothness": smoothness,
        "candidates": candidates,
        "penalty": penalty,
        "dropout": dropout,
        "label_smoothing": label_smoothing,
        "average": average,
        "optimizer": optimizer,
        "learning_rate": learning_rate,
        "l2": l2,
        "batch_size": batch_size,
        "order": order,
        "epochs": epochs,
        "validate_every": validate_every,
        "patience": patience,
    }
    chosen = _changed(recipe, model, told)
    graph = _split(graph_of(data, columns, grain, static, inclusive_end), split, entities, seed)
    with_static = form == "both"
    config, _ = resolve_config(
        graph,
        chosen,
        model=model,
        dim=dim,
        predicate_dim=predicate_dim,
        time_dim=time_dim,
        form="episodic" if with_static else form,
        static=with_static,
        reciprocal=reciprocal,
        time_levels=parse_time_levels(levels) if levels is not None else None,
        dtype=dtype,
    )
    learning = TrainingRun(graph, config, recipe=chosen, seed=seed, device=device)
    if resume and partial.exists():
        learning.load_checkpoint_(partial)
    elif force:
        remove_checkpoint(partial)
    began = time.monotonic()
    _run(learning, partial)
    memory = Memory.from_run(learning)
    memory.save(out, overwrite=force)
    remove_checkpoint(partial)
    summary = _summary(memory, out) | {"seconds": round(time.monotonic() - began, 1)}
    if as_json:
        print_json(summary)
    else:
        quality = "" if summary["valid_mrr"] is None else f", validation MRR {summary['valid_mrr']:.3f}"
        typer.echo(f"{out}: best of {summary['epochs']} epochs was {summary['best_epoch']}{quality}")


@app.command()
def evaluate(
    memory: MemoryDir,
    split: Annotated[str, typer.Option(help="train, valid or test.")] = "test",
    slots: Annotated[
        str | None, typer.Option(help="Some of s, p, o, t, like `so`; all that the model has if left out.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Rank the facts of a split among all candidates of every slot, filtered and raw.

    Example: `recollect evaluate world.memory --split test --slots so`
    """
    report = load(memory).evaluate(split, slots).to_dict()
    if as_json:
        print_json(report)
        return
    shown = console()
    shown.print(_figure_table(report))
    table = Table("slot", "log loss of σ(θ)", "calibrated", title="Reliability of probabilities")
    for slot, both in report["calibration"].items():
        table.add_row(slot, f"{both['before']['log_loss']:.4f}", f"{both['after']['log_loss']:.4f}")
    shown.print(table)


@app.command()
def search(
    data: Data,
    out: Annotated[Path, typer.Option(help="Folder of the study; an earlier one there goes on.")],
    budget: Annotated[float, typer.Option(help="Minutes.")],
    model: Annotated[str, typer.Option(help="See `recollect models`.")] = "complex",
    dim: Annotated[int, typer.Option(help="Length of the latent vectors.")] = 100,
    predicate_dim: Annotated[int | None, typer.Option(help="Of predicates, where the model allows it.")] = None,
    time_dim: Annotated[int | None, typer.Option(help="Of times, where the model allows it.")] = None,
    form: Form = "episodic",
    recipe: Annotated[str, typer.Option(help="Where the search starts: modern or a .json file.")] = "modern",
    epochs: Annotated[int | None, typer.Option(help="At most, of a run that is not behind.")] = None,
    validate_every: Annotated[int | None, typer.Option(help="Epochs between validations.")] = None,
    split: Annotated[str | None, typer.Option(help="random, time or none; by default as given, else random.")] = None,
    seed: Annotated[int, typer.Option(help="Of proposals and of learning.")] = 0,
    columns: Columns = None,
    grain: Grain = None,
    as_json: Json = False,
) -> None:
    """Search the settings of a recipe on the validation split, never the test split. Ctrl-C keeps the study.

    Example: `recollect search world --model cont --dim 8 --epochs 8 --budget 0.5 --out world.search`
    """
    keep_freed_memory()
    check_place(out)
    find_optuna()
    figure_class()
    told: dict[str, Any] = {"epochs": epochs, "validate_every": validate_every}
    chosen = _changed(recipe, model, told)
    graph = _split(graph_of(data, columns, grain, False, False), split, None, seed)
    with_static = form == "both"
    config, _ = resolve_config(
        graph,
        chosen,
        model=model,
        dim=dim,
        predicate_dim=predicate_dim,
        time_dim=time_dim,
        form="episodic" if with_static else form,
        static=with_static,
    )
    searching = Search(graph, config, chosen, out, seed=seed)
    with share_progress("") as progress:
        found = searching.run(budget, progress.tell)
    if as_json:
        print_json(found)
        return
    best = sorted(found["trials"], key=lambda trial: -trial["valid_mrr"])[:10]
    table = Table("run", "valid MRR", "best epoch", *(name.replace("_", " ") for name in best[0]["settings"]))
    for trial in best:
        settings = (f"{value:.3g}" for value in trial["settings"].values())
        table.add_row(str(trial["trial"]), f"{trial['valid_mrr']:.4f}", str(trial["best_epoch"]), *settings)
    if found["importance"]:
        table.add_row("", "", "importance", *(f"{found['importance'].get(n, 0):.0%}" for n in best[0]["settings"]))
    console().print(table)
    typer.echo(f"best of {len(found['trials'])} runs: valid MRR {found['best']['valid_mrr']:.3f}")
    same = {
        "model": model,
        "dim": dim,
        "predicate-dim": predicate_dim,
        "time-dim": time_dim,
        "form": form if form != "episodic" else None,
        "split": split,
        "seed": seed or None,
        "columns": columns,
        "grain": grain,
        "recipe": out / FOUND,
    }
    words = [word for name, value in same.items() if value is not None for word in (f"--{name}", str(value))]
    typer.echo(f"learn with it: {shlex.join(['recollect', 'train', str(data), *words])} --out …")


@app.command()
def baseline(
    data: Data,
    split: Annotated[str, typer.Option(help="train, valid or test.")] = "test",
    slots: Annotated[str, typer.Option(help="Some of s, p, o, t, like `so`.")] = "spot",
    columns: Columns = None,
    grain: Grain = None,
    as_json: Json = False,
) -> None:
    """Rank by counting alone: the most frequent answer, and the most frequent one near in time. Models must beat it.

    Example: `recollect baseline world --split valid`
    """
    graph = _split(graph_of(data, columns, grain, False, False), None, None, 0)
    known, facts = FactIndex(graph.filter_facts(split), graph.sizes), graph.split(split).true()
    if not len(facts):
        raise UserError(f"the {split} split of {graph.name} has no facts; choose another")
    rows = []
    for name, decay in DECAYS.items():
        scorer = Baseline(graph.split("train"), graph.sizes, decay=decay)
        report = metrics.evaluate(scorer, facts, known=known, slots=parse_slots(slots))["filtered"]
        for slot, figures in report.items():
            rows.append({"baseline": name, "slot": slot, **{key: figures[key] for key in ("mrr", *HITS)}})
    if as_json:
        print_json(rows)
        return
    table = Table("baseline", "slot", "MRR", "Hits@1", "@3", "@10", title=f"Filtered, {len(facts):,} {split} facts")
    for row in rows:
        table.add_row(row["baseline"], row["slot"], *(f"{row[key]:.3f}" for key in ("mrr", *HITS)))
    console().print(table)


@app.command()
def recall(
    memory: MemoryDir,
    subject: Annotated[str | None, typer.Option(help="Who.")] = None,
    predicate: Annotated[str | None, typer.Option(help="What.")] = None,
    object: Annotated[str | None, typer.Option(help="Whom.")] = None,
    time: Annotated[str | None, typer.Option(help="When.")] = None,
    top: Annotated[int, typer.Option(min=1, help="How many answers.")] = 10,
    as_json: Json = False,
) -> None:
    """Recall the one part that is left out of a fact.

    Example: `recollect recall world.memory --predicate "President of" --object Reathland --time 2004-05`
    """
    table = load(memory).recall(subject=subject, predicate=predicate, object=object, time=time, top=top)
    _print_answers(table.to_dicts(), as_json)


@app.command()
def know(
    memory: MemoryDir,
    subject: Annotated[str | None, typer.Option(help="Who.")] = None,
    predicate: Annotated[str | None, typer.Option(help="What.")] = None,
    object: Annotated[str | None, typer.Option(help="Whom.")] = None,
    as_of: Annotated[str | None, typer.Option(metavar="TIME", help="When; by default now, the last time.")] = None,
    top: Annotated[int, typer.Option(min=1, help="How many facts.")] = 10,
    as_json: Json = False,
) -> None:
    """Tell what holds now, or held as of a time: semantic memory, projected from the episodic one.

    Example: `recollect know world.memory --predicate "President of" --as-of 2004-05`
    """
    loaded = load(memory)
    with share_progress("starts and ends") as progress:
        table = loaded.know(
            subject=subject, predicate=predicate, object=object, as_of=as_of, top=top, progress=progress.share
        )
    _print_answers(table.to_dicts(), as_json)


@app.command()
def project(
    memory: MemoryDir,
    out: Annotated[Path, typer.Option(help="Where the semantic memory is written.")],
    as_of: Annotated[str | None, typer.Option(metavar="TIME", help="When; by default now, the last time.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the memory at --out.")] = False,
    as_json: Json = False,
) -> None:
    """Write what holds as of a time as a semantic memory, which recall, know and evaluate read like any other.

    Example: `recollect project world.memory --as-of 2004-05 --out then.memory`
    """
    _check_memory_place(out)
    if out.exists() and out.samefile(memory):
        raise UserError(f"{out} is the memory that is projected, and would be lost; choose another --out")
    _check_free(out, force)
    loaded = load(memory)
    with share_progress("starts and ends") as progress:
        semantic = loaded.project(as_of, progress=progress.share)
    semantic.save(out, overwrite=force)
    about = {"out": str(out), **semantic.model.config.to_dict(), "as_of": semantic.about["projection"]["as_of"]}
    if as_json:
        print_json(about)
    else:
        typer.echo(f"{out}: {about['model']}, {len(semantic.graph.split('train')):,} facts as of {about['as_of']}")


@app.command()
def models(as_json: Json = False) -> None:
    """List the models with their equations.

    Example: `recollect models`
    """
    rows = [
        {
            "model": name,
            "equation": (model.__doc__ or "").strip().rstrip("."),
            "forms": " ".join(form for form in FORMS if model.has_form(form)),
        }
        for name, model in MODELS.items()
    ]
    print_rows(rows, as_json)


def _print_answers(rows: list[dict[str, Any]], as_json: bool) -> None:
    if not as_json:
        rows = [row | {"score": f"{row['score']:.3f}", "probability": f"{row['probability']:.3f}"} for row in rows]
    print_rows(rows, as_json)


def _changed(recipe: str, model: str, told: dict[str, Any]) -> Recipe:
    """A recipe, as it suits the model, with what was told otherwise; what its loss has no use for is refused."""
    changes = {name: value for name, value in told.items() if value is not None}
    chosen = replace(parse_recipe(recipe).for_model(model), **changes)
    for name in changes:
        if chosen.loss not in (losses := USED_BY.get(name, LOSSES)):
            raise UserError(
                f"--{name.replace('_', '-')} means nothing to the {chosen.loss} loss; "
                f"leave it out, or choose --loss {' or '.join(losses)}"
            )
    return chosen


def _split(graph: EpisodicGraph, how: str | None, entities: int | None, seed: int) -> EpisodicGraph:
    """Split as told; by default, at random where the data come unsplit."""
    if how not in (None, "random", "time", "none"):
        raise UserError(f"unknown split {how!r}; choose random, time or none")
    graph = graph if entities is None else most_frequent(graph, entities)
    if how is None and len(graph.splits) > 1:
        return graph
    if how == "none":
        return graph.with_splits({"train": graph.facts})
    return split_by_time(graph) if how == "time" else split_randomly(graph, seed=seed)


def _summary(memory: Memory, out: Path) -> dict[str, Any]:
    training = memory.about["training"]
    return {
        "out": str(out),
        "epochs": training["epochs"],
        "best_epoch": training["best_epoch"],
        "valid_mrr": training["valid_mrr"],
        "loss": training["history"][-1]["loss"],
        "parameters": sum(p.numel() for p in memory.model.parameters()),
    }


def _check_out(out: Path, partial: Path, resume: bool, force: bool) -> None:
    if resume and force:
        raise UserError("--resume continues a run and --force discards it; give one of them")
    if not out.name:
        raise UserError(f"--out {str(out)!r} names no directory that could be made; give one like world.memory")
    _check_memory_place(out)
    if out.exists() and resume:
        remove_checkpoint(partial)  # a kill may come between the last two steps of a run
        typer.echo(f"{out} is finished already; there is nothing to resume", err=True)
        raise typer.Exit
    _check_free(out, force)
    if partial.exists() and not (resume or force):
        raise UserError(f"{partial} is an unfinished run; continue it with --resume or discard it with --force")


def _check_memory_place(out: Path) -> None:
    """Refuse a place where no memory can be written, or something else is."""
    check_place(out)
    if out.exists() and not (out / ABOUT).is_file():
        raise UserError(f"{out} exists and is not a memory; choose another --out")


def _check_free(out: Path, force: bool) -> None:
    if out.exists() and not force:
        raise UserError(f"{out} exists; choose another --out, or replace it with --force")


def _run(learning: TrainingRun, partial: Path) -> None:
    """Train to the end with a progress bar, keeping the run now and then and when interrupted."""
    kept = time.monotonic()
    with _stop_signals() as stopped:
        for record in _shown(learning):
            due = isinstance(record, Epoch) and record.epoch % learning.recipe.validate_every == 0
            if stopped or due or time.monotonic() - kept > CHECKPOINT_SECONDS:
                learning.save_checkpoint(partial)
                kept = time.monotonic()
            if stopped:
                typer.echo(f"stopped; kept at {partial}: the same command with --resume continues it", err=True)
                raise typer.Exit(130)


@contextmanager
def _stop_signals() -> Iterator[list[int]]:
    """A list that Ctrl-C or a termination request is noted in; a second one interrupts at once."""
    noted: list[int] = []

    def note(number: int, _frame: object) -> None:
        noted.append(number)
        if len(noted) > 1:
            raise KeyboardInterrupt

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield noted
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _shown(learning: TrainingRun) -> Iterator[Step | Epoch]:
    """The records of a run, with a progress bar on standard error, or a line a validation where that is no terminal."""
    facts, epochs = len(learning.trainer.facts), learning.recipe.epochs
    columns = (
        TextColumn("epoch {task.fields[epoch]}/{task.fields[epochs]}"),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[rate]} facts/s"),
        TextColumn("loss {task.fields[loss]:.4f}"),
        TextColumn("valid MRR {task.fields[mrr]}"),
        TimeRemainingColumn(),
    )
    shown = console(stderr=True)
    with Progress(*columns, console=shown, transient=True, disable=not shown.is_terminal) as progress:
        mrr = next((f"{h.mrr:.3f}" for h in reversed(learning.history) if h.mrr is not None), "–")
        done = learning.trainer.epoch * facts
        task = progress.add_task(
            "learn",
            total=epochs * facts,
            completed=done,
            epoch=learning.trainer.epoch,
            epochs=epochs,
            rate="–",
            loss=0,
            mrr=mrr,
        )
        for record in learning:
            if isinstance(record, Epoch):
                mrr = mrr if record.mrr is None else f"{record.mrr:.3f}"
                progress.update(task, epoch=record.epoch, mrr=mrr)
                if record.mrr is not None and not shown.is_terminal:
                    typer.echo(f"epoch {record.epoch}: loss {record.loss:.4f}, valid MRR {mrr}", err=True)
            else:
                speed = progress.tasks[0].speed
                progress.update(
                    task,
                    completed=record.epoch * facts + record.seen,
                    loss=record.loss,
                    rate="–" if speed is None else f"{speed:,.0f}",
                )
            yield record


def _figure_table(report: dict[str, Any]) -> Table:
    table = Table("slot", "MRR", "Hits@1", "@3", "@10", "mean rank", "adjusted", "raw MRR")
    table.title = f"Filtered ranks of {report['facts']:,} {report['split']} facts"
    for slot, figures in report["filtered"].items():
        shares = (f"{figures[key]:.3f}" for key in ("mrr", "hits@1", "hits@3", "hits@10"))
        adjusted = f"{figures['adjusted_mean_rank_index']:.3f}"
        table.add_row(slot, *shares, f"{figures['mean_rank']:.1f}", adjusted, f"{report['raw'][slot]['mrr']:.3f}")
    return table
