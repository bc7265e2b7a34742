"""The demonstration: learn the invented world, ask it who, what, whom and when, and write a report with figures."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from recollect.cli.allocator import keep_freed_memory
from recollect.cli.measure import metrics_table
from recollect.cli.rendering import check_place, console, plain
from recollect.cli.train import choose_config, show_progress
from recollect.errors import UserError

if TYPE_CHECKING:
    import polars as pl

    from recollect.graph.facts import EpisodicGraph, Facts
    from recollect.memory.memory import Memory
    from recollect.training.run import TrainingRun

SETTINGS: dict[str, Any] = {"epochs": 8, "validate_every": 2}  # enough for this world, in half a minute
QUESTIONS = {"s": "Who?", "p": "What?", "o": "Whom?", "t": "When?"}


@dataclass(frozen=True)
class Question:
    """A test fact with one slot hidden, the answers of the memory, and all true answers."""

    word: str
    text: str
    answers: pl.DataFrame
    truth: set[str]


def demo(
    out: Annotated[Path, typer.Option(help="Folder of the report.")] = Path("recollect-demo"),
    seed: Annotated[int, typer.Option(help="Seed of the world and of training.")] = 0,
) -> None:
    """Learn an invented world, ask it who, what, whom and when, and write a report with figures.

    Example: `python -m examples.demo`
    """
    from recollect.memory.memory import Memory, load

    keep_freed_memory()
    check_place(out)
    shown = console()
    run = start_run(seed)
    graph = run.graph
    sizes = graph.sizes
    shown.print(
        f"A world of {sizes['entity']} entities, {sizes['predicate']} predicates, {sizes['time']} months: "
        f"{len(graph.facts):,} facts, {len(graph.split('test')):,} of them withheld."
    )
    for _ in show_progress(run):
        pass
    memory = Memory.from_run(run)
    questions = list(ask_questions(memory, seed=seed))
    print_questions(questions)
    print_then(memory)
    print_next(memory)
    report = memory.evaluate("test").to_dict()
    shown.print()
    shown.print(metrics_table(report))
    files = write_report(memory, report, questions, out)
    memory.save(out / "world.memory", overwrite=True)
    print_change(load(out / "world.memory"))
    shown.print(f"\nReport: {files[0]}   memory: {out / 'world.memory'}", soft_wrap=True)
    fact = graph.table(graph.split("test")).row(0, named=True)
    shown.print(
        f"Ask it yourself: recollect recall {out / 'world.memory'} --subject '{fact['subject']}' "
        f"--predicate '{fact['predicate']}' --time {fact['time']}",
        soft_wrap=True,
        highlight=False,
    )
    shown.print(f"Or in a browser: recollect serve {out / 'world.memory'}", soft_wrap=True, highlight=False)


def start_run(seed: int = 0) -> TrainingRun:
    """Return the training run of the demonstration: the defaults, and fewer epochs."""
    from recollect.io.datasets import dataset
    from recollect.training.recipe import RECIPES
    from recollect.training.run import TrainingRun

    graph = dataset("world", seed=seed)
    recipe = replace(RECIPES["modern"], **SETTINGS)
    config = choose_config(graph, recipe, {})
    return TrainingRun(graph, config, recipe=recipe, seed=seed)


def ask_questions(memory: Memory, *, top: int = 3, seed: int = 0) -> Iterator[Question]:
    """Yield one question per slot, each about another fact of the test split."""
    import torch

    from recollect.graph.facts import SLOT_NAMES, SLOTS
    from recollect.graph.seeds import seeded

    test = memory.graph.split("test")
    labels = memory.graph.predicates.take(test.p)
    offices = test[torch.tensor([label.endswith(" of") for label in labels])]
    relations = test[torch.tensor([label.endswith(" with") for label in labels])]
    generator = seeded(seed)
    for slot, facts in (("s", offices), ("p", relations), ("o", relations), ("t", offices)):
        fact = facts[torch.randint(len(facts), (1,), generator=generator)]
        by_name = memory.graph.table(fact).row(0, named=True)
        given = {name: label for name, label in by_name.items() if name != SLOT_NAMES[slot]}
        words = ["?" if other == slot else by_name[SLOT_NAMES[other]] for other in SLOTS]
        yield Question(
            word=QUESTIONS[slot],
            text=" · ".join(words),
            answers=memory.recall(**given, top=top, explain=1),
            truth=true_labels(memory, fact, slot),
        )


def print_questions(questions: list[Question]) -> None:
    """Print every question with its answers and the main reason for predicted ones; true ones are marked."""
    shown = console()
    for question in questions:
        shown.print(f"\n[bold]{question.word}[/]  {plain(question.text)}")
        for row in question.answers.rows(named=True):
            label, probability, status, why = next(iter(row.values())), row["probability"], row["status"], row["why"]
            mark = "[green]✓ true[/]" if label in question.truth else ""
            line = f"   {probability:6.1%}  {status:9}  {plain(label)}  {mark}  [dim]{plain(reason(why))}[/]"
            shown.print(line.rstrip(), highlight=False, soft_wrap=True)


def reason(why: list[dict[str, Any]] | None) -> str:
    """Return the stored fact with the largest share of the evidence as text; "" if there is none."""
    if not why:
        return ""
    fact = why[0]
    return f"because {fact['subject']} · {fact['predicate']} · {fact['object']} · {fact['time']} ({fact['share']:.0%})"


def print_then(memory: Memory) -> None:
    """Print who was president in the middle of the record, and who is likely to have been though it is not stored."""
    time = memory.graph.times.label(len(memory.graph.times) // 2)
    found = memory.know(predicate="President of", as_of=time, top=100)
    shown = console()
    shown.print(f"\n[bold]Then[/]  President of, as of {time}")
    rows = found.filter(status="stored").head(3).rows() + found.filter(status="predicted").head(2).rows()
    for person, _, country, _, probability, status in rows:
        shown.print(f"   {probability:6.1%}  {status:9}  {plain(person)} of {plain(country)}", highlight=False)


def print_next(memory: Memory) -> None:
    """Print who is likely to be president in the month after the record ends."""
    found = memory.forecast(predicate="President of", horizon=1, top=3)
    shown = console()
    shown.print(f"\n[bold]Next[/]  President of, {found['time'][0]}")
    for person, _, country, _, probability in found.rows():
        shown.print(f"   {probability:6.1%}  {plain(person)} of {plain(country)}", highlight=False)


def print_change(memory: Memory) -> None:
    """Remember a fact of somebody new, recall it, and forget them: the saved memory is as it was."""
    shown = console()
    country = memory.graph.table(memory.graph.split("train")).filter(predicate="President of")["object"][0]
    fact: dict[str, Any] = {"subject": "Ada Vance", "predicate": "President of", "time": memory.graph.times.label(0)}
    shown.print(f"\n[bold]New[/]  remembered: {' · '.join(fact.values())} · {plain(country)}", highlight=False)
    memory.remember(**fact, object=country)
    for label, _, probability, status in memory.recall(**fact, top=2).rows():
        shown.print(f"   {probability:6.1%}  {status:9}  {plain(label)}", highlight=False)
    memory.forget(entity="Ada Vance")
    is_known = "Ada Vance" in memory.graph.entities.labels
    shown.print(f"   forgotten: Ada Vance is {'still' if is_known else 'no longer'} known", highlight=False)


def true_labels(memory: Memory, fact: Facts, slot: str) -> set[str]:
    """Return every label that completes the question to a fact of any split."""
    _, ids = memory.known.find(fact, slot)
    return set(memory.graph.axis(slot).take(ids))


def current_presidents(graph: EpisodicGraph) -> pl.DataFrame:
    """Return country and president at the last time, from the facts themselves."""
    import polars as pl

    from recollect.graph.episodes import current

    table = graph.table(current(graph).true())
    return table.filter(pl.col("predicate") == "President of").select("object", "subject").sort("object")


def write_report(memory: Memory, report: dict[str, Any], questions: list[Question], folder: Path) -> list[Path]:
    """Write `report.md` and its figures; return the files, the report first. Without matplotlib, no figures."""
    folder.mkdir(parents=True, exist_ok=True)
    fact = longest_presidency(memory)
    figures = write_figures(memory, fact, folder)
    triple = memory.graph.table(fact).row(0)[:3]
    lines = [
        *introduction(memory, bool(figures)),
        *question_table(questions),
        *metrics_lines(report),
        *(fact_lines(triple) if figures else []),
        *now_lines(memory.graph),
    ]
    path = folder / "report.md"
    path.write_text("\n".join(lines), encoding="utf-8")
    return [path, *figures]


def write_figures(memory: Memory, fact: Facts, folder: Path) -> list[Path]:
    """Draw the learning curves and one fact over time; return the files, none if matplotlib is not installed."""
    from recollect.io.plots import fact_over_time, figure_class, learning_curves

    try:
        figure_class()
    except UserError as error:
        typer.echo(f"the report has no figures: {error}", err=True)
        return []
    learning, over_time = folder / "learning.png", folder / "fact-over-time.png"
    learning_curves(memory.about["training"]["history"], learning)
    triple = memory.graph.table(fact).row(0)[:3]
    fact_over_time(memory.probabilities(*triple), true_labels(memory, fact, "t"), " · ".join(triple), over_time)
    return [learning, over_time]


def longest_presidency(memory: Memory) -> Facts:
    """Return a fact of the president with the most withheld months."""
    import polars as pl

    test = memory.graph.split("test")
    presidents = memory.graph.table(test).with_row_index().filter(pl.col("predicate") == "President of")
    terms = presidents.group_by("subject", "object", maintain_order=True).agg(pl.first("index"), pl.len())
    place = terms.sort("len", descending=True, maintain_order=True)["index"][0]
    return test[place : place + 1]


def introduction(memory: Memory, figures: bool) -> list[str]:
    """Return the lines that say what was learned, by which model, and how."""
    graph, training, config = memory.graph, memory.about["training"], memory.model.config
    sizes, months = graph.sizes, graph.times
    return [
        "# A world, remembered",
        "",
        f"An invented world of {sizes['entity']} entities, {sizes['predicate']} predicates and {sizes['time']} months "
        f"({months.label(0)} to {months.label(len(months) - 1)}): {len(graph.facts):,} facts, of which "
        f"{len(graph.split('train')):,} were learned and {len(graph.split('test')):,} withheld for the figures below.",
        "",
        f"Model: {config.model}{' + static' if config.static else ''}, dim {config.dim}, {training['epochs']} epochs, "
        f"best after {training['best_epoch']} (validation MRR {training['valid_mrr']:.3f}).",
        "",
        *(["![loss and validation MRR against epochs](learning.png)", ""] if figures else []),
    ]


def question_table(questions: list[Question]) -> list[str]:
    """Return a table of the questions, the answers and the truth."""
    lines = [
        "## Questions about withheld facts",
        "",
        "| question | given | recalled (probability) | true |",
        "|---|---|---|---|",
    ]
    for question in questions:
        recalled = []
        labels, probabilities = question.answers.to_series(), question.answers["probability"]
        for label, probability in zip(labels, probabilities, strict=True):
            recalled.append(f"{label} ({probability:.2f}{' ✓' if label in question.truth else ''})")
        truth = sorted(question.truth)
        more = f" and {len(truth) - 4} more" if len(truth) > 4 else ""
        lines.append(f"| {question.word} | {question.text} | {', '.join(recalled)} | {', '.join(truth[:4])}{more} |")
    return [*lines, ""]


def metrics_lines(report: dict[str, Any]) -> list[str]:
    """Return the tables of filtered ranks and of calibration."""
    lines = [
        "## How well it recalls",
        "",
        f"Filtered ranks of the {report['facts']:,} withheld facts among all candidates. The last column is the mean "
        "rank, adjusted so that 0 is chance and 1 is perfect.",
        "",
        "| slot | MRR | Hits@1 | Hits@3 | Hits@10 | adjusted mean rank |",
        "|---|---|---|---|---|---|",
    ]
    keys = ("mrr", "hits@1", "hits@3", "hits@10", "adjusted_mean_rank_index")
    for slot, figures in report["filtered"].items():
        lines.append(f"| {slot} | {' | '.join(f'{figures[key]:.3f}' for key in keys)} |")
    lines += [
        "",
        "Probabilities of predicted answers were calibrated on the validation split. Log loss on withheld facts and "
        "all other candidates that are not stored:",
        "",
        "| slot | softmax | calibrated |",
        "|---|---|---|",
    ]
    for slot, figures in report["calibration"].items():
        lines.append(f"| {slot} | {figures['before']['log_loss']:.4f} | {figures['after']['log_loss']:.4f} |")
    return [*lines, ""]


def fact_lines(triple: tuple[str, ...]) -> list[str]:
    """Return the section with one fact over time."""
    return [
        "## One fact over time",
        "",
        f"How likely it is, month by month, that {triple[0]} is {triple[1]} {triple[2]}; shaded where it is so.",
        "",
        f"![probability over time of {' '.join(triple)}](fact-over-time.png)",
        "",
    ]


def now_lines(graph: EpisodicGraph) -> list[str]:
    """Return the section with the presidents of the last month."""
    return [
        "## Now",
        "",
        f"Presidents at the last month, {graph.times.label(len(graph.times) - 1)}, as the world has it:",
        "",
        "| country | president |",
        "|---|---|",
        *(f"| {country} | {person} |" for country, person in current_presidents(graph).head(8).rows()),
        "",
    ]


if __name__ == "__main__":
    typer.run(demo)
