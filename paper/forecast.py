"""Forecasts one step ahead on the public splits by time: history that reads the past only."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from paper.markdown import board_heading, markdown_table, number, percent
from paper.workspace import Workspace
from recollect import EpisodicGraph, Facts, split_by_time
from recollect.evaluation.baselines import Baseline
from recollect.evaluation.forecasting import SingleStep
from recollect.evaluation.metrics import evaluate
from recollect.evaluation.ranking import Scorer
from recollect.evaluation.tgb import evaluate_with_tgb
from recollect.graph.fact_index import FactIndex
from recollect.history.history import History

METRICS = ("mrr", "hits@1", "hits@3", "hits@10")
ROWS = {
    "recency": "recency, no model",
    "history": "history",
}


@dataclass(frozen=True, kw_only=True)
class Board:
    """A dataset split by time, published test MRR, and the name of its benchmark in TGB, if it is one."""

    data: str
    published: tuple[tuple[str, float], ...] = ()
    benchmark: str | None = None


BOARDS = (
    Board(
        data="icews14-forecast",
        published=(("recurrency baseline", 0.374), ("RE-GCN", 0.421), ("TLogic", 0.425), ("TiRGN", 0.440)),
    ),
    Board(data="yago-forecast", published=(("recurrency baseline", 0.909),), benchmark="tkgl-yago"),
)


def run(workspace: Workspace) -> dict[str, Any]:
    """Fit on train and evaluate every row on valid and test."""
    boards: tuple[Board, ...] = BOARDS
    if workspace.data or workspace.quick:
        boards = (Board(data=workspace.data or "world"),)
    workspace.expected = len(boards) * len(ROWS)
    return {"boards": [_run_board(workspace, board) for board in boards]}


def _run_board(workspace: Workspace, board: Board) -> dict[str, Any]:
    graph = workspace.graph(board.data)
    if board not in BOARDS:
        graph = split_by_time(graph)
    rows = []
    for kind in ROWS:
        benchmark = board.benchmark if find_spec("tgb") else None
        settings = {"data": board.data, "kind": kind, "tgb": benchmark}
        rows.append(workspace.cached(kind, settings, partial(_row, graph, kind, benchmark)))
    return {
        "data": board.data,
        "published": board.published,
        "benchmark": board.benchmark,
        "sizes": graph.sizes,
        "splits": {split: len(facts) for split, facts in graph.splits.items()},
        "rows": rows,
    }


def _row(graph: EpisodicGraph, kind: str, benchmark: str | None) -> dict[str, Any]:
    """Return the figures of one row; `cpu_seconds` is all of it, with fitting and evaluation."""
    start = time.process_time()
    before = _forecaster(graph, kind)
    found: dict[str, Any] = {"kind": kind, "figures": {}, "tgb": {}}
    for split in ("valid", "test"):
        known = FactIndex(Facts.concat(graph.splits[name] for name in graph.filter_splits(split)), graph.sizes)
        scorer = SingleStep(before, known.facts)
        report = evaluate(scorer, graph.split(split), known=known, slots="so")["filtered"]["entity"]
        found["figures"][split] = {metric: report[metric] for metric in METRICS}
        if benchmark:
            judged = evaluate_with_tgb(scorer, graph.split(split), known=known, benchmark=benchmark)
            found["tgb"][split] = judged["mrr"]
    found["cpu_seconds"] = round(time.process_time() - start, 1)
    return found


def _forecaster(graph: EpisodicGraph, kind: str) -> Callable[[Facts], Scorer]:
    """Return the function from the facts before a time to their scorer."""
    if kind == "recency":
        return partial(Baseline, sizes=graph.sizes, decay=1.0)
    return History.fit(graph.split("train"), graph.sizes, asked="o", past=True).with_facts


def page(found: dict[str, Any], _folder: Path) -> str:
    """Return the page: a table per dataset."""
    parts = [
        "Subjects and objects of the facts of each time, asked with everything before that time stored (single step); "
        "filtered by the facts of the same time; ties count half. Kernels are fitted to the train split; nothing was "
        "chosen on the test split. *CPU min* has everything: fitting and both evaluations. Hits@n in percent. *TGB* is "
        "the test MRR by the official evaluator of the Temporal Graph Benchmark, whose split of `tkgl-yago` by time is "
        "that of `yago-forecast`.",
    ]
    for board in found["boards"]:
        parts.append(board_heading(board))
        head = ["", "valid MRR", "test MRR", "@1", "@3", "@10", "TGB", "CPU min"]
        parts.append(markdown_table(head, [_line(row) for row in board["rows"]]))
        if board["published"]:
            figures = ", ".join(f"{name} {number(mrr)}" for name, mrr in board["published"])
            parts.append(f"Published test MRR: {figures}.")
    return "\n\n".join(parts)


def _line(row: dict[str, Any]) -> list[Any]:
    valid, test = row["figures"]["valid"], row["figures"]["test"]
    hits = [percent(test[metric]) for metric in METRICS[1:]]
    minutes = number(row["cpu_seconds"] / 60, 1)
    return [ROWS[row["kind"]], number(valid["mrr"], 4), number(test["mrr"], 4), *hits,
            number(row["tgb"].get("test"), 4), minutes]  # fmt: skip
