"""History of the stored facts, alone and added to models, on public splits: who and whom, what, when."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

from paper.leaderboard_entries import Entry, modern
from paper.markdown import board_heading, group, markdown_table, mean_and_spread, number, percent
from paper.workspace import Workspace
from recollect import EpisodicGraph, Facts, split_randomly
from recollect.evaluation.baselines import DECAYS, Baseline
from recollect.evaluation.metrics import evaluate
from recollect.evaluation.ranking import Scorer
from recollect.graph.fact_index import FactIndex
from recollect.history.cells import CellRates
from recollect.history.history import History
from recollect.memory.answering.held_out import HeldOut
from recollect.memory.answering.scorer import MemoryScorer
from recollect.memory.learning.fitting import fit_fold
from recollect.models.tensor_model import TensorModel

METRICS = ("mrr", "hits@1", "hits@3", "hits@10")
KINDS = {"entity": "who, whom", "predicate": "what", "time": "when"}
PARTS = {
    "ConT": modern("cont", 100, predicate_dim=12, static=True, candidates=0, epochs=16, patience=9),
    "ComplEx": modern("complex", 200, static=True, epochs=24, patience=9),
}


@dataclass(frozen=True, kw_only=True)
class Board:
    """A dataset, the models that its rows add to history, and published figures of who and whom."""

    data: str
    rows: tuple[tuple[str, ...], ...] = ((),)  # names of parts
    slots: str = "spot"
    seeds: tuple[int, ...] = (0, 1, 2)
    counted: bool = True  # whether counting is evaluated too; of ICEWS05-15 another page has it
    published: tuple[tuple[str, float], ...] = ()
    note: str = ""  # on how its figures came about


SAMPLED = "Evaluated when sampled fits took 12 passes; they take 36 now."
BOARDS = (
    Board(
        data="icews14",
        rows=((), ("ConT",), ("ConT", "ComplEx")),
        published=(("TNTComplEx, dim 1560", 0.62), ("best of any method", 0.651)),
    ),
    Board(
        data="icews05-15",
        slots="spo",  # 4,017 days
        seeds=(0,),
        counted=False,
        published=(("TNTComplEx, ten times the dim", 0.67), ("best of any method", 0.698)),
        note="Evaluated twice on the test split: sampled fits of 12 passes had 0.692 and 0.673; 36 passes were then "
        "chosen on the validation split.",
    ),
    Board(data="icews-countries", note=SAMPLED),
    Board(data="gdelt2012-countries", seeds=(0,), note=SAMPLED),  # a seed only chooses which facts a pass reads
)


def run(workspace: Workspace) -> dict[str, Any]:
    """Fit every row with every seed on train, its weights on valid, and evaluate it once on test."""
    boards: tuple[Board, ...] = BOARDS
    if workspace.data or workspace.quick:
        data = workspace.data or "world"
        boards = (Board(data=data, rows=((), ("ConT", "ComplEx")), seeds=(0,)),)
    workspace.expected = sum(len(board.rows) * len(board.seeds) + board.counted for board in boards)
    return {"boards": [_run_board(workspace, board) for board in boards]}


def _run_board(workspace: Workspace, board: Board) -> dict[str, Any]:
    graph = workspace.graph(board.data)
    graph = graph if "valid" in graph.splits else split_randomly(graph)
    rows = []
    for seed in board.seeds:
        fitted = _Fitted(workspace, graph, board, seed)
        for names in board.rows:
            settings = {"data": board.data, "parts": names, "seed": seed, "slots": board.slots}
            name = " ".join([board.data, *names, f"history seed {seed}"])
            found = workspace.cached(name, settings, partial(fitted.row, names))
            rows.append({"parts": list(names), "seed": seed, **found})
    workspace.remove_checkpoints()
    settings = {"data": board.data, "slots": board.slots}
    counting: dict[str, Any] = {}
    if board.counted:
        counting = workspace.cached(f"{board.data} counting", settings, partial(_counting, graph, board.slots))
    return {
        "data": board.data,
        "published": board.published,
        "note": board.note,
        "slots": board.slots,
        "sizes": graph.sizes,
        "splits": {split: len(facts) for split, facts in graph.splits.items()},
        "counting": {kind: counting[kind] for kind in DECAYS if kind in counting},
        "rows": rows,
    }


class _Fitted:
    """What the rows of one board and seed share: the history of the training facts, and trained models."""

    def __init__(self, workspace: Workspace, graph: EpisodicGraph, board: Board, seed: int) -> None:
        self.workspace, self.graph, self.board, self.seed = workspace, graph, board, seed
        self._history: History | None = None
        self.fit_seconds, self.fit_cpu_seconds = 0.0, 0.0

    @property
    def history(self) -> History:
        """The history of the training facts, fitted when it is first asked for."""
        if self._history is None:
            wall, cpu = time.monotonic(), time.process_time()
            asked = "o" + "".join(slot for slot in self.board.slots if slot in "pt")
            train = self.graph.split("train")
            self._history = History.fit(train, self.graph.sizes, asked=asked, seed=self.seed)
            self.fit_seconds, self.fit_cpu_seconds = time.monotonic() - wall, time.process_time() - cpu
        return self._history

    def row(self, names: tuple[str, ...]) -> dict[str, Any]:
        """Return the figures of a sum of models and history."""
        history = self.history
        weights: dict[str, tuple[float, ...]] = {}
        scorer: Scorer = history
        if names:
            models = [self._train(PARTS[name]) for name in names]
            unfitted = MemoryScorer(tuple(models), history, {}, CellRates.fit(history, seed=self.seed))
            weights = fit_fold(unfitted, HeldOut.of(self.graph), self.seed).weights
            scorer = replace(unfitted, weights=weights)
        figures = {}
        for split in ("valid", "test"):
            figures[split] = _figures(scorer, self.graph, split, self.board.slots if split == "test" else "so")
        fit = {"seconds": round(self.fit_seconds, 1), "cpu_seconds": round(self.fit_cpu_seconds, 1)}
        return {"weights": weights, "figures": figures, "history_fit": fit}

    def _train(self, entry: Entry) -> TensorModel:
        """Return a trained model; rows of the same seed share its checkpoint."""
        entry = _small(entry) if self.workspace.quick else entry
        settings = {"data": self.board.data, "entry": entry.to_dict(), "seed": self.seed}
        checkpoint = self.workspace.checkpoint(f"{entry.config.model} seed {self.seed}", settings)
        run = self.workspace.train(self.graph, entry.config, entry.recipe, seed=self.seed, checkpoint=checkpoint)
        run.trainer.finish_()
        return run.model


def _counting(graph: EpisodicGraph, slots: str) -> dict[str, Any]:
    """Return the figures of counting, which is not fitted."""
    train, sizes = graph.split("train"), graph.sizes
    return {kind: _figures(Baseline(train, sizes, decay=decay), graph, "test", slots) for kind, decay in DECAYS.items()}


def _small(entry: Entry) -> Entry:
    """Return an entry that trains in seconds, to try the code."""
    config = replace(entry.config, dim=4, predicate_dim=None, time_dim=None)
    return replace(entry, config=config, recipe=replace(entry.recipe, epochs=1))


def _figures(scorer: Scorer, graph: EpisodicGraph, split: str, slots: str) -> dict[str, dict[str, float]]:
    """Return filtered metrics of a split by kind of question."""
    known = FactIndex(Facts.concat(graph.splits[name] for name in graph.filter_splits(split)), graph.sizes)
    report = evaluate(scorer, graph.split(split), known=known, slots=slots)["filtered"]
    return {kind: {metric: report[kind][metric] for metric in METRICS} for kind in KINDS if kind in report}


def page(found: dict[str, Any], _folder: Path) -> str:
    """Return the page: a table per dataset."""
    parts = [
        "Filtered MRR of the test split: *who, whom* of subjects and objects together, *what* of predicates, *when* of "
        "times; the filter knows all facts with the same other slots, and ties count half. History is fitted to the "
        "train split, without a model; sums are Σ a θ + b · history, weighted on the validation split. Settings were "
        "chosen on the validation split, and each row was evaluated once on the test split, unless a note says "
        "otherwise. Means over seeds ± their standard deviation; Hits@n of who and whom in percent; *valid* is the MRR "
        "of who and whom on the validation split, whose filter does not know the test facts; *min* is minutes with "
        "training and evaluation (a model that "
        "several rows share counts in each).",
        "ConT has dims 100 / 12 and ComplEx dim 200, both with a static part and the modern recipe. Models without "
        "history are in [benchmark-icews14](benchmark-icews14.md) and "
        "[benchmark-icews05-15](benchmark-icews05-15.md); models of countries are in [recipes-icews](recipes-icews.md) "
        "and [recipes-gdelt](recipes-gdelt.md).",
    ]
    for board in found["boards"]:
        parts.append(board_heading(board))
        head = ["", *KINDS.values(), "@1", "@3", "@10", "valid", "min", "seeds"]
        lines = [
            _line(rows)
            for rows in group([{**row, "key": tuple(row["parts"])} for row in board["rows"]], "key").values()
        ]
        lines += [_counting_line(kind, report) for kind, report in board["counting"].items()]
        parts.append(markdown_table(head, lines))
        seconds = fmean(row["history_fit"]["seconds"] for row in board["rows"])
        parts.append(f"Fitting history took {seconds:.0f} s (mean), next to other work on the machine.")
        if board["note"]:
            parts.append(board["note"])
        if board["published"]:
            figures = ", ".join(f"{name} {number(mrr)}" for name, mrr in board["published"])
            parts.append(f"Published test MRR of who and whom: {figures}.")
    return "\n\n".join(parts)


def _line(rows: list[dict[str, Any]]) -> list[Any]:
    """Return the line of a sum: means over its seeds."""
    test = [row["figures"]["test"] for row in rows]
    means = []
    for kind in KINDS:
        values = [figures[kind]["mrr"] for figures in test if kind in figures]
        means.append(mean_and_spread(values) if values else number(None))
    hits = [percent(fmean(figures["entity"][metric] for figures in test)) for metric in METRICS[1:]]
    valid = number(fmean(row["figures"]["valid"]["entity"]["mrr"] for row in rows))
    minutes = number(fmean(row["seconds"] for row in rows) / 60, 1)
    name = " + ".join([*rows[0]["parts"], "history"])
    return [name, *means, *hits, valid, minutes, len(rows)]


def _counting_line(kind: str, report: dict[str, Any]) -> list[Any]:
    """Return the line of counting, which is not fitted."""
    figures = [number(report[each]["mrr"] if each in report else None) for each in KINDS]
    return [f"*{kind}, no model*", *figures, *(percent(report["entity"][metric]) for metric in METRICS[1:]), *"–––"]
