"""Public benchmarks: models with the modern recipe, several seeds, each evaluated once on the test split."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

from paper.leaderboard_entries import LEADERBOARDS, Entry, Leaderboard
from paper.markdown import markdown_table, mean_and_spread, number, percent
from paper.printed import SHOWN
from paper.workspace import Workspace
from recollect import EpisodicGraph, Facts, ModelConfig, split_randomly
from recollect.evaluation.baselines import DECAYS, Baseline
from recollect.evaluation.metrics import evaluate
from recollect.graph.fact_index import FactIndex

METRICS = ("mrr", "hits@1", "hits@3", "hits@10")
FORM_SUFFIXES = {"both": " + static", "semantic": ", static", "episodic": ""}
CHOICE = {
    "test": "Settings were chosen on the validation split, and each row was evaluated once on the test split. "
    "Memories add the [history](history.md) of the stored facts to these models.",
    "valid": "Settings are chosen by these figures; the test split is not used.",
}


def run(name: str, workspace: Workspace) -> dict[str, Any]:
    """Train every entry with every seed, and evaluate it once."""
    board = LEADERBOARDS[name]
    data = workspace.data or ("world" if workspace.quick else board.data)
    entries = _entries(board, workspace)
    graph = workspace.graph(data)
    graph = graph if "valid" in graph.splits else split_randomly(graph)
    facts = graph.split(board.split)
    known = FactIndex(_filter_facts(graph, board.split), graph.sizes)
    workspace.expected = sum(len(entry.seeds) for entry in entries)
    rows = []
    for entry in entries:
        for seed in entry.seeds:
            rows.append(_row(workspace, data, graph, known, board, entry, seed))
        workspace.remove_checkpoints()
    baselines = {}
    for kind, decay in DECAYS.items():
        baseline = Baseline(graph.split("train"), graph.sizes, decay=decay)
        baselines[kind] = _evaluate(baseline, facts, known, board.slots)
    return {
        "settings": {"data": data, "entries": [entry.to_dict() for entry in entries]},
        "split": board.split,
        "published": board.published,
        "sizes": graph.sizes,
        "splits": {split: len(facts) for split, facts in graph.splits.items()},
        "baselines": baselines,
        "rows": rows,
    }


def _filter_facts(graph: EpisodicGraph, split: str) -> Facts:
    """Return the facts that the filter knows: those of all splits, without the test split unless it is evaluated."""
    return Facts.concat([facts for name, facts in graph.splits.items() if name != "test" or split == "test"])


def _entries(board: Leaderboard, workspace: Workspace) -> list[Entry]:
    """Return the entries to train: small ones with --quick, and at the dims of --dim if given."""
    entries = [_small(entry) if workspace.quick else entry for entry in board.entries]
    if not workspace.dims:
        return entries
    return [replace(entry, config=_at_dim(entry.config, dim)) for entry in entries for dim in workspace.dims]


def _small(entry: Entry) -> Entry:
    config = _at_dim(entry.config, max(2, entry.config.dim // 25))
    return replace(
        entry, config=config, recipe=replace(entry.recipe, epochs=2, validate_every=1), seeds=entry.seeds[:1]
    )


def _at_dim(config: ModelConfig, dim: int) -> ModelConfig:
    return replace(config, dim=dim, predicate_dim=None, time_dim=None)


def _row(
    workspace: Workspace,
    data: str,
    graph: EpisodicGraph,
    known: FactIndex,
    board: Leaderboard,
    entry: Entry,
    seed: int,
) -> dict[str, Any]:
    """Return the results of an entry with one seed."""
    settings = {key: value for key, value in entry.to_dict().items() if key not in ("note", "seeds")}
    settings = {"data": data, "entry": settings, "seed": seed, "split": board.split, "slots": board.slots}
    name = f"{entry.config.model} {entry.form} {entry.config.dim} seed {seed}"
    work = partial(_train, workspace, graph, known, board, entry, seed, workspace.checkpoint(name, settings))
    found = workspace.cached(name, settings, work)
    return {"model": entry.config.model, "form": entry.form, "note": entry.note, "seed": seed, **found}


def _train(
    workspace: Workspace,
    graph: EpisodicGraph,
    known: FactIndex,
    board: Leaderboard,
    entry: Entry,
    seed: int,
    checkpoint: Path,
) -> dict[str, Any]:
    """Train an entry with one seed, and evaluate its best weights."""
    run = workspace.train(graph, entry.config, entry.recipe, seed=seed, checkpoint=checkpoint)
    run.trainer.finish_()
    slots = "".join(slot for slot in board.slots if slot in run.model.slots)
    return {
        "dims": entry.config.dims,
        "parameters": sum(parameter.numel() for parameter in run.model.parameters()),
        "epochs": run.trainer.epoch,
        "best_epoch": run.trainer.best_epoch,
        "valid_mrr": run.trainer.best_mrr,
        "figures": _evaluate(run.model, graph.split(board.split), known, slots),
    }


def _evaluate(scorer: Any, facts: Facts, known: FactIndex, slots: str) -> dict[str, dict[str, float]]:
    """Return filtered metrics by slot."""
    report = evaluate(scorer, facts, known=known, slots=slots)["filtered"]
    return {slot: {metric: metrics[metric] for metric in METRICS} for slot, metrics in report.items()}


def page(found: dict[str, Any], _folder: Path) -> str:
    """Return the page: one line per entry, then the baselines."""
    sizes, splits = found["sizes"], found["splits"]
    lines, first = [], 0
    for entry in found["settings"]["entries"]:
        last = first + len(entry["seeds"])
        lines.append(_entry_line(found["rows"][first:last]))
        first = last
    lines += [_baseline_line(kind, report) for kind, report in found["baselines"].items()]
    head = ["", "dim", "parameters", "MRR", "@1", "@3", "@10", "valid", "predicate", "time", "epoch", "min", "seeds"]
    parts = [
        f"Filtered figures of the {found['split']} split of `{found['settings']['data']}` ({sizes['entity']:,} "
        f"entities × {sizes['predicate']} predicates × {sizes['time']:,} times; {splits['train']:,} training, "
        f"{splits['valid']:,} validation and {splits.get('test', 0):,} test facts), subjects and objects together; "
        "the filter knows all facts of the same time, and ties count half. Means over the seeds ± their standard "
        "deviation; Hits@n in percent; *min* is minutes of one run with its evaluation. *predicate* and *time* are "
        "the MRR of the other slots. " + CHOICE[found["split"]],
        markdown_table(head, lines),
    ]
    if found["published"]:
        parts.append(
            "Published test MRR: " + ", ".join(f"{name} {number(mrr)}" for name, mrr in found["published"]) + "."
        )
    return "\n\n".join(parts)


def _entry_line(rows: Sequence[dict[str, Any]]) -> list[Any]:
    """Return the line of an entry: means over its seeds."""
    first = rows[0]
    name = SHOWN[first["model"]] + FORM_SUFFIXES[first["form"]]
    entity = [row["figures"]["entity"] for row in rows]
    others = []
    for slot in ("predicate", "time"):
        evaluated = slot in first["figures"]
        others.append(number(fmean(row["figures"][slot]["mrr"] for row in rows) if evaluated else None))
    return [
        f"{name} ({first['note']})" if first["note"] else name,
        _dims(first["dims"]),
        f"{first['parameters']:,}",
        f"**{mean_and_spread([metrics['mrr'] for metrics in entity])}**",
        *(percent(fmean(metrics[metric] for metrics in entity)) for metric in METRICS[1:]),
        number(fmean(row["valid_mrr"] for row in rows)),
        *others,
        f"{fmean(row['best_epoch'] for row in rows):.0f}",
        f"{fmean(row['seconds'] for row in rows) / 60:.0f}",
        len(rows),
    ]


def _baseline_line(kind: str, report: dict[str, Any]) -> list[str]:
    """Return the line of a baseline, which has no dim, parameters or training."""
    entity = report["entity"]
    hits = [percent(entity[metric]) for metric in METRICS[1:]]
    others = [number(report[slot]["mrr"] if slot in report else None) for slot in ("predicate", "time")]
    return [f"*{kind}, no model*", "–", "–", number(entity["mrr"]), *hits, "–", *others, "–", "–", "–"]


def _dims(dims: dict[str, int]) -> str:
    """Return one dim if all are equal, else entity / predicate / time."""
    values = [dims[kind] for kind in ("entity", "predicate", "time")]
    return str(values[0]) if len(set(values)) == 1 else " / ".join(map(str, values))
