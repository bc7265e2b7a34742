"""The demonstration: learn the world, ask it who, what, whom and when, and write a report with figures."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import torch

from recollect.graph.episodes import current
from recollect.graph.facts import SLOT_NAMES, SLOTS, EpisodicGraph, Facts, encode
from recollect.graph.seeds import seeded
from recollect.io.datasets import dataset
from recollect.io.plots import fact_over_time, figure_class, learning_curves
from recollect.memory.memory import Memory
from recollect.training.recipe import Recipe
from recollect.training.run import TrainingRun

MODEL, DIM = "tucker", 20
RECIPE = Recipe(negatives=dict.fromkeys(SLOTS, 1), learning_rate=3e-3, l2=0.03, epochs=40, validate_every=5, patience=3)
_WORDS = {"s": "Who?", "p": "What?", "o": "Whom?", "t": "When?"}


@dataclass(frozen=True)
class Question:
    """A withheld fact with one slot hidden, what was recalled, and what is true."""

    word: str
    text: str
    answers: pl.DataFrame
    truth: set[str]


def start(seed: int = 0) -> TrainingRun:
    """The run that the demonstration shows."""
    figure_class()  # without it there would be no report in the end
    return TrainingRun(dataset("world", seed=seed), model=MODEL, dim=DIM, recipe=RECIPE, seed=seed)


def questions(memory: Memory, *, top: int = 3, seed: int = 0) -> Iterator[Question]:
    """One question a slot, each about another fact of the test split, which the model has never seen."""
    test = memory.graph.split("test")
    offices = test[torch.tensor(["of" in label for label in memory.graph.predicates.take(test.p)])]
    states = test[torch.tensor(["with" in label for label in memory.graph.predicates.take(test.p)])]
    generator = seeded(seed)
    for slot, facts in (("s", offices), ("p", states), ("o", states), ("t", offices)):
        fact = facts[torch.randint(len(facts), (1,), generator=generator)]
        labels = memory.graph.table(fact).row(0, named=True)
        given = {name: label for name, label in labels.items() if name != SLOT_NAMES[slot]}
        shown = ["?" if other == slot else labels[SLOT_NAMES[other]] for other in SLOTS]
        yield Question(
            word=_WORDS[slot],
            text=" · ".join(shown),
            answers=memory.recall(**given, top=top),
            truth=truth(memory, fact, slot),
        )


def truth(memory: Memory, fact: Facts, slot: str) -> set[str]:
    """Every label that completes the question to a fact of the world, withheld or not."""
    _, ids = memory.known.find(fact, slot)
    return set(memory.graph.axis(slot).take(ids))


def known_now(graph: EpisodicGraph) -> pl.DataFrame:
    """Who holds the presidencies at the last time: the answer to "now" that the world itself gives."""
    holds = current(graph).true()
    table = graph.table(holds)
    return table.filter(pl.col("predicate") == "President of").select("object", "subject").sort("object")


def figure_rows(report: dict[str, Any]) -> list[tuple[str, ...]]:
    """MRR, Hits@1, @3, @10 and the chance-adjusted mean rank of every slot, as text."""
    keys = ("mrr", "hits@1", "hits@3", "hits@10", "adjusted_mean_rank_index")
    return [(name, *(f"{figures[key]:.3f}" for key in keys)) for name, figures in report["filtered"].items()]


def write_report(memory: Memory, report: dict[str, Any], asked: list[Question], folder: Path) -> list[Path]:
    """Write `report.md` and its figures; returns the files, the report first."""
    folder.mkdir(parents=True, exist_ok=True)
    history = memory.about["training"]["history"]
    learning_curves(history, folder / "learning.png")
    fact = _a_presidency(memory)
    triple = memory.graph.table(fact).row(0)[:3]
    fact_over_time(
        memory.probabilities(*triple), truth(memory, fact, "t"), " · ".join(triple), folder / "fact-over-time.png"
    )
    text = _report_text(memory, report, asked, triple)
    (folder / "report.md").write_text(text, encoding="utf-8")
    return [folder / name for name in ("report.md", "learning.png", "fact-over-time.png")]


def _a_presidency(memory: Memory) -> Facts:
    """A fact of the president whose term has the most withheld months: the most to infer."""
    test = memory.graph.split("test")
    presidents = test[test.p == memory.graph.predicates.index("President of")]
    _, inverse, counts = encode(presidents, memory.graph.sizes, "spo").unique(return_inverse=True, return_counts=True)
    first = int((inverse == counts.argmax()).nonzero()[0, 0])
    return presidents[first : first + 1]


def _report_text(memory: Memory, report: dict[str, Any], asked: list[Question], fact: tuple[str, ...]) -> str:
    graph, training = memory.graph, memory.about["training"]
    sizes = graph.sizes
    lines = [
        "# A world, remembered",
        "",
        f"An invented world of {sizes['entity']} entities, {sizes['predicate']} predicates and {sizes['time']} months "
        f"({graph.times.label(0)} to {graph.times.label(len(graph.times) - 1)}): {len(graph.facts):,} facts, of which "
        f"{len(graph.split('train')):,} were learned and {len(graph.split('test')):,} withheld for the figures below.",
        "",
        f"Model: {MODEL}, dim {DIM}, {training['epochs']} epochs, best after {training['best_epoch']} "
        f"(validation MRR {training['valid_mrr']:.3f}).",
        "",
        "![loss and validation MRR against epochs](learning.png)",
        "",
        "## Questions about withheld facts",
        "",
        "| question | asked | recalled (probability) | true |",
        "|---|---|---|---|",
    ]
    for q in asked:
        recalled = ", ".join(f"{row[0]} ({row[2]:.2f}{' ✓' if row[0] in q.truth else ''})" for row in q.answers.rows())
        listed = sorted(q.truth)
        true = ", ".join(listed[:4]) + (f" and {len(listed) - 4} more" if len(listed) > 4 else "")
        lines.append(f"| {q.word} | {q.text} | {recalled} | {true} |")
    lines += [
        "",
        "## How well it recalls",
        "",
        f"Filtered ranks of the {report['facts']:,} withheld facts among all candidates. The last column is the mean "
        "rank, adjusted so that 0 is chance and 1 is perfect.",
        "",
        "| slot | MRR | Hits@1 | Hits@3 | Hits@10 | adjusted mean rank |",
        "|---|---|---|---|---|---|",
        *(f"| {' | '.join(row)} |" for row in figure_rows(report)),
        "",
        "Probabilities were calibrated on the validation split. Log loss on withheld facts and all their corruptions:",
        "",
        "| slot | σ(θ) | calibrated |",
        "|---|---|---|",
        *(
            f"| {slot} | {both['before']['log_loss']:.4f} | {both['after']['log_loss']:.4f} |"
            for slot, both in report["calibration"].items()
        ),
        "",
        "## One fact over time",
        "",
        f"How likely it is, month by month, that {fact[0]} is {fact[1]} {fact[2]}; shaded where it is so.",
        "",
        f"![probability over time of {' '.join(fact)}](fact-over-time.png)",
        "",
        "## Now",
        "",
        f"Presidents at the last month, {graph.times.label(len(graph.times) - 1)}, as the world has it:",
        "",
        "| country | president |",
        "|---|---|",
        *(f"| {country} | {person} |" for country, person in known_now(graph).head(8).rows()),
        "",
    ]
    return "\n".join(lines)
