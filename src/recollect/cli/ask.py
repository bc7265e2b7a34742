"""Ask a saved memory: recall, know, project, evaluate; and the baselines that a memory must beat."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from recollect.cli import options as opt
from recollect.cli.rendering import check_memory_place, console, print_json, print_line, print_rows, share_progress
from recollect.errors import UserError

if TYPE_CHECKING:
    from recollect.memory.memory import Memory

REASONS = 3  # stored facts that --why names for each answer
HITS = ("hits@1", "hits@3", "hits@10")
Why = Annotated[bool, typer.Option("--why", help="Name the stored facts that speak for predicted answers.")]
EvaluatedSplit = Annotated[str, typer.Option(help="train, valid or test.")]


def recall(
    memory: opt.MemoryDir,
    subject: opt.Subject = None,
    predicate: opt.Predicate = None,
    object: opt.Object = None,
    time: opt.Time = None,
    top: opt.Top = 10,
    include: opt.Include = "all",
    why: Why = False,
    as_json: opt.Json = False,
) -> None:
    """Recall the one part that is left out of a fact: stored answers first, then predicted ones.

    Example: `recollect recall world.memory --predicate "President of" --object Reathland --time 2004-05`
    """
    from recollect.memory.memory import load

    given = {"subject": subject, "predicate": predicate, "object": object, "time": time}
    answers = load(memory).recall(**given, top=top, include=include, explain=REASONS if why else 0)
    print_answers(answers.to_dicts(), as_json)


def know(
    memory: opt.MemoryDir,
    subject: opt.Subject = None,
    predicate: opt.Predicate = None,
    object: opt.Object = None,
    as_of: opt.AsOf = None,
    top: opt.Top = 10,
    include: opt.Include = "all",
    as_json: opt.Json = False,
) -> None:
    """List what holds now, or held as of a time: stored facts first, then what is likely though it was never stored.

    Example: `recollect know world.memory --predicate "President of" --as-of 2004-05`
    """
    from recollect.memory.memory import load

    loaded = load(memory)
    say_period_end(loaded, as_of)
    with share_progress("starts and ends") as progress:
        answers = loaded.know(
            subject=subject, predicate=predicate, object=object, as_of=as_of, top=top, include=include,
            progress=progress.update,
        )  # fmt: skip
    print_answers(answers.to_dicts(), as_json)


def forecast(
    memory: opt.MemoryDir,
    subject: opt.Subject = None,
    predicate: opt.Predicate = None,
    object: opt.Object = None,
    horizon: Annotated[int, typer.Option(help="Number of steps after the last stored time.")] = 7,
    top: Annotated[int, typer.Option(min=1, help="Number of facts in each step.")] = 10,
    why: Why = False,
    as_json: opt.Json = False,
) -> None:
    """List the likeliest facts in each of the next steps, by what is stored.

    Example: `recollect forecast world.memory --predicate "President of" --horizon 3 --top 5`
    """
    from recollect.memory.memory import load

    given = {"subject": subject, "predicate": predicate, "object": object}
    found = load(memory).forecast(**given, horizon=horizon, top=top, explain=REASONS if why else 0)
    print_answers(found.to_dicts(), as_json)


def project(
    memory: opt.MemoryDir,
    out: Annotated[Path, typer.Option(help="Folder of the semantic memory.")],
    as_of: opt.AsOf = None,
    force: opt.Force = False,
    as_json: opt.Json = False,
) -> None:
    """Save what holds as of a time as a semantic memory, which recall, know and evaluate read like any other.

    Example: `recollect project world.memory --as-of 2004-05 --out then.memory`
    """
    from recollect.memory.memory import load

    if out.exists() and out.samefile(memory):
        raise UserError(f"{out} is the memory that is projected, and would be lost; choose another --out")
    check_memory_place(out, replace=force)
    loaded = load(memory)
    say_period_end(loaded, as_of)
    with share_progress("starts and ends") as progress:
        semantic = loaded.project(as_of, progress=progress.update)
    semantic.save(out, overwrite=force)
    about = {"out": str(out), **semantic.model.config.to_dict(), "as_of": semantic.about["projection"]["as_of"]}
    if as_json:
        print_json(about)
    else:
        print_line(f"{out}: {about['model']}, {len(semantic.graph.split('train')):,} facts as of {about['as_of']}")


def evaluate(
    memory: opt.MemoryDir,
    split: EvaluatedSplit = "test",
    slots: Annotated[
        str | None, typer.Option(help="Some of s, p, o, t, like `so`; by default all that the model has.")
    ] = None,
    as_json: opt.Json = False,
) -> None:
    """Rank the facts of a split among all candidates of every slot, filtered and raw.

    Example: `recollect evaluate world.memory --split test --slots so`
    """
    from recollect.memory.memory import load

    report = load(memory).evaluate(split, slots).to_dict()
    if as_json:
        print_json(report)
        return
    shown = console()
    shown.print(metrics_table(report))
    table = Table("slot", "log loss of σ(θ)", "calibrated", title="Reliability of probabilities")
    for slot, figures in report["calibration"].items():
        table.add_row(slot, f"{figures['before']['log_loss']:.4f}", f"{figures['after']['log_loss']:.4f}")
    shown.print(table)


def baseline(
    data: opt.Data,
    split: EvaluatedSplit = "test",
    slots: Annotated[str, typer.Option(help="Some of s, p, o, t, like `so`.")] = "spot",
    columns: opt.Columns = None,
    grain: opt.Grain = None,
    dates: opt.Dates = None,
    as_json: opt.Json = False,
) -> None:
    """Rank without a model: the most frequent answer, the most frequent one near in time, and history.

    Example: `recollect baseline world --split valid`
    """
    from recollect.evaluation.baselines import DECAYS, Baseline
    from recollect.evaluation.metrics import evaluate as evaluate_scorer
    from recollect.evaluation.ranking import Scorer
    from recollect.graph.facts import parse_slots
    from recollect.graph.run_index import RunIndex, index_of
    from recollect.graph.runs import sampled, stored_in
    from recollect.graph.seeds import seeded
    from recollect.history.history import History

    graph = opt.split_graph(opt.load_graph(data, columns, grain, dates), None)
    graph.check_split(split)
    facts = sampled(graph, split, seeded(0)).true()
    known = index_of(stored_in(graph, *graph.filter_splits(split)), graph.sizes)
    if isinstance(known, RunIndex):
        known = known.around(facts, parse_slots(slots))
    if not len(facts):
        raise UserError(f"the {split} split of {graph.name} has no facts; choose another")
    train = graph.split("train")
    scorers: dict[str, Scorer] = {name: Baseline(train, graph.sizes, decay=decay) for name, decay in DECAYS.items()}
    scorers["history"] = History.fit(stored_in(graph, "train"), graph.sizes)
    rows = []
    for name, scorer in scorers.items():
        filtered = evaluate_scorer(scorer, facts, known=known, slots=parse_slots(slots))["filtered"]
        for slot, figures in filtered.items():
            rows.append({"baseline": name, "slot": slot, **{key: figures[key] for key in ("mrr", *HITS)}})
    if as_json:
        print_json(rows)
        return
    table = Table("baseline", "slot", "MRR", "Hits@1", "@3", "@10", title=f"Filtered, {len(facts):,} {split} facts")
    for row in rows:
        table.add_row(row["baseline"], row["slot"], *(f"{row[key]:.3f}" for key in ("mrr", *HITS)))
    console().print(table)


def say_period_end(memory: Memory, as_of: str | None) -> None:
    """Print, on standard error, the time that stands for a period: its last."""
    from recollect.memory.periods import is_period, parse_period

    times = memory.graph.times
    if "t" in memory.scorer.slots and is_period(times, as_of):
        print_line(f"as of {times.label(parse_period(times, as_of or '').last)}, the end of {as_of}", err=True)


def print_answers(rows: list[dict[str, Any]], as_json: bool) -> None:
    """Print the answers of a memory; a table rounds scores and probabilities."""
    if not as_json:
        rows = [
            row
            | ({"score": "" if row["score"] is None else f"{row['score']:.3f}"} if "score" in row else {})
            | {"probability": f"{row['probability']:.3f}"}
            | ({"why": _reasons(row["why"])} if "why" in row else {})
            for row in rows
        ]
    print_rows(rows, as_json)


def _reasons(why: list[dict[str, Any]] | None) -> str:
    """Return stored facts with their shares of the evidence."""
    parts = ("subject", "predicate", "object", "time")
    return "; ".join(f"{fact['share']:.0%} {' · '.join(fact[part] for part in parts)}" for fact in why or [])


def metrics_table(report: dict[str, Any]) -> Table:
    """Return the filtered metrics of every slot, and the raw MRR, as a table."""
    table = Table("slot", "MRR", "Hits@1", "@3", "@10", "mean rank", "adjusted", "raw MRR")
    table.title = f"Filtered ranks of {report['facts']:,} {report['split']} facts"
    for slot, figures in report["filtered"].items():
        shares = (f"{figures[key]:.3f}" for key in ("mrr", *HITS))
        adjusted = f"{figures['adjusted_mean_rank_index']:.3f}"
        table.add_row(slot, *shares, f"{figures['mean_rank']:.1f}", adjusted, f"{report['raw'][slot]['mrr']:.3f}")
    return table
