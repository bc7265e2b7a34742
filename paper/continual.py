"""Static triples in five snapshots: learn the first, then the facts and entities of each of the others."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
import torch
from torch import Tensor

from paper.workspace import Workspace
from recollect import EpisodicGraph, Facts, ModelConfig, UserError
from recollect.evaluation.ranking import rank
from recollect.graph.fact_index import FactIndex
from recollect.graph.seeds import seeded
from recollect.graph.times import TimeAxis
from recollect.graph.vocabulary import Vocabulary
from recollect.models.new_rows import RowSolver
from recollect.models.tensor_model import TensorModel
from recollect.training.recipe import RECIPES, Recipe
from recollect.training.run import TrainingRun
from recollect.training.trainer import Trainer

SNAPSHOTS = 5
SPLITS = ("train", "valid", "test")
METHODS = {
    "frozen": "frozen: new entities have the mean row",
    "rows": "rows of new entities solved, nothing else moves",
    "primed": "rows of new entities at their priors, then a short training over all facts",
    "consolidated": "rows solved, then the same training",
    "warm start": "the same training, new rows random",
    "retraining": "retraining from scratch",
}


@dataclass(frozen=True, kw_only=True)
class Board:
    """A benchmark, what is trained on it, and published figures by its own protocol."""

    data: str  # folder below `continual`
    dim: int
    epochs: int
    penalty: float
    methods: tuple[str, ...]
    short_epochs: int = 0  # of a training that starts from the model before
    short_rate: float = 0.1  # its learning rate
    retrained: tuple[int, ...] = (4,)  # snapshots after which a model is trained from scratch
    retrained_epochs: int | None = None  # None = epochs
    every: int = 1  # test fact is ranked
    published: tuple[tuple[str, float], ...] = ()

    def recipe(self, number: int = 0) -> Recipe:
        """Return how a model is trained from scratch after a snapshot."""
        epochs = self.retrained_epochs if number and self.retrained_epochs else self.epochs
        return replace(RECIPES["modern"], epochs=epochs, penalty=self.penalty)

    def settings(self, method: str) -> dict[str, Any]:
        """Return what the figures of a method depend on."""
        named = {"method": method, "dim": self.dim, "epochs": self.epochs, "penalty": self.penalty, "every": self.every}
        if method in ("primed", "consolidated", "warm start"):
            named |= {"short_epochs": self.short_epochs, "short_rate": self.short_rate}
        if method == "retraining":
            named |= {"retrained": self.retrained, "retrained_epochs": self.retrained_epochs}
        return named


BOARDS = {
    "fbinc-s": Board(
        data="fbinc-s",
        dim=64,
        epochs=16,
        penalty=0.03,
        methods=("frozen", "rows", "retraining"),
        retrained=(1, 2, 3, 4),
    ),
    "entity": Board(
        data="entity",
        dim=64,
        epochs=16,
        penalty=0.03,
        methods=("rows", "primed", "retraining"),
        short_epochs=3,
        retrained_epochs=8,
        published=(("the best", 0.253),),
    ),
}
QUICK = Board(
    data="world", dim=8, epochs=3, penalty=0.01, methods=tuple(METHODS), short_epochs=1, retrained=(1, 2, 3, 4)
)


@dataclass(frozen=True, eq=False)
class Snapshots:
    """The facts of each snapshot by split; ids are numbered in the order in which labels first occur."""

    splits: Sequence[dict[str, Facts]]
    entities: Sequence[int]  # known after each snapshot
    predicates: Sequence[int]

    def sizes(self, number: int) -> dict[str, int]:
        """Return the sizes after a snapshot, counted from 0."""
        return {"entity": self.entities[number], "predicate": self.predicates[number], "time": 1}

    def until(self, number: int, splits: Sequence[str] = ("train",)) -> Facts:
        """Return the facts of the snapshots up to a number."""
        return Facts.concat(each[split] for each in self.splits[: number + 1] for split in splits)

    def graph(self, number: int) -> EpisodicGraph:
        """Return what a model that is trained after a snapshot learns."""
        sizes = self.sizes(number)
        entities, predicates = (
            Vocabulary(kind, tuple(map(str, range(sizes[kind])))) for kind in ("entity", "predicate")
        )
        axis = TimeAxis(grain="ordinal", first=0, size=1, step=1)
        return EpisodicGraph(entities, predicates, axis, {"train": self.until(number)})


def read_snapshots(folder: Path) -> Snapshots:
    """Read five folders 0 to 4 with train.txt, valid.txt and test.txt: subject, predicate, object, tab-separated."""
    rows = [
        {split: _read_triples(folder / str(number) / f"{split}.txt") for split in SPLITS} for number in range(SNAPSHOTS)
    ]
    return _numbered(rows)


def _read_triples(path: Path) -> pl.DataFrame:
    names = ["s", "p", "o"]
    if not path.is_file():
        raise UserError(
            f"{path} is no file; set RECOLLECT_DATA to a folder with continual/entity and continual/fbinc-s"
        )
    return pl.read_csv(path, separator="\t", has_header=False, new_columns=names, quote_char=None)


def _numbered(rows: Sequence[dict[str, pl.DataFrame]]) -> Snapshots:
    ids: dict[str, dict[str, int]] = {"entity": {}, "predicate": {}}
    splits, entities, predicates = [], [], []
    for snapshot in rows:
        facts = {}
        for split, frame in snapshot.items():
            triples = []
            for s, p, o in frame.select("s", "p", "o").iter_rows():
                subject = ids["entity"].setdefault(s, len(ids["entity"]))
                predicate = ids["predicate"].setdefault(p, len(ids["predicate"]))
                triples.append((subject, predicate, ids["entity"].setdefault(o, len(ids["entity"])), 0))
            facts[split] = Facts.of(triples)
        splits.append(facts)
        entities.append(len(ids["entity"]))
        predicates.append(len(ids["predicate"]))
    return Snapshots(splits, entities, predicates)


def invented(graph: EpisodicGraph) -> Snapshots:
    """Return snapshots of a graph's triples without times: one is in the snapshot in which its last entity is new."""
    facts = graph.facts
    triples = torch.stack([facts.s, facts.p, facts.o], dim=1).unique(dim=0)
    part = -(-len(graph.entities) // SNAPSHOTS)
    number = triples[:, [0, 2]].amax(dim=1) // part
    rows = []
    for snapshot in range(SNAPSHOTS):
        frame = pl.DataFrame(triples[number == snapshot].numpy(), schema=["s", "p", "o"]).cast(pl.String)
        rows.append({split: frame.gather_every(4, i) for i, split in enumerate(("valid", "test"))})
        rows[-1] = {"train": pl.concat([frame.gather_every(4, 2), frame.gather_every(4, 3)])} | rows[-1]
    return _numbered(rows)


# -- methods ----------------------------------------------------------------------------------------------------------


def _train(workspace: Workspace, board: Board, snapshots: Snapshots, number: int) -> tuple[TensorModel, float]:
    """Return a model that was trained from scratch after a snapshot, and the CPU-seconds of its training."""
    recipe = board.recipe(number)
    settings = {"dim": board.dim, "epochs": recipe.epochs, "penalty": board.penalty}
    path = workspace.checkpoint(f"{board.data} {number}", settings)
    seconds_path = path.with_suffix(".run-cpu")
    config = ModelConfig(model="complex", dim=board.dim, form="semantic", reciprocal=True)
    if path.is_file() and seconds_path.is_file():
        run = TrainingRun(snapshots.graph(number), config, recipe=recipe)
        run.load_checkpoint_(path)
        seconds = float(seconds_path.read_text())
    else:
        start = time.process_time()
        run = TrainingRun(snapshots.graph(number), config, recipe=recipe)
        for _ in run:
            pass
        seconds = time.process_time() - start
        run.save_checkpoint(path)
        seconds_path.write_text(str(seconds))
    return run.result()[0], seconds


def _short_training(board: Board, model: TensorModel, facts: Facts) -> TensorModel:
    """Return the model after a few epochs over facts, at a lower learning rate."""
    learning = model.with_rows({})
    learning.sizes = dict(model.sizes)
    recipe = replace(board.recipe(), epochs=board.short_epochs, learning_rate=board.short_rate)
    trainer = Trainer(learning, facts, recipe, generator=seeded(0))
    for _ in trainer:
        pass
    trainer.finish_()
    return learning


def _random_rows(model: TensorModel, sizes: dict[str, int]) -> TensorModel:
    """Return the model with random rows for new ids, as at the start of a training."""
    blank = RowSolver(model, Facts.of([])).solve(sizes, Facts.of([])).model
    fresh = type(model)(sizes, model.config, generator=seeded(0))
    tables = {}
    for kind in ("entity", "predicate"):
        count, total = model.sizes[kind], sizes[kind]
        is_new = torch.arange(len(getattr(fresh, kind))) % total >= count
        like = getattr(fresh, kind).detach()
        tables[kind] = torch.where(is_new.view(-1, *[1] * (like.dim() - 1)), like, getattr(blank, kind).detach())
    result = model.with_rows(tables)
    result.sizes = dict(sizes)
    return result


def models_of(
    method: str, workspace: Workspace, board: Board, snapshots: Snapshots
) -> Iterator[tuple[int, TensorModel, float]]:
    """Yield (number, model, CPU-seconds of the step) after each snapshot."""
    model, seconds = _train(workspace, board, snapshots, 0)
    first, old = model, snapshots.until(0)
    yield 0, model, seconds
    solver, grown = RowSolver(first, old), None
    for number in range(1, SNAPSHOTS):
        sizes, facts, new = snapshots.sizes(number), snapshots.until(number), snapshots.splits[number]["train"]
        if method == "retraining":
            if number in board.retrained:
                yield number, *_train(workspace, board, snapshots, number)
            continue
        start = time.process_time()
        if method == "frozen":
            model = solver.solve(sizes, old).model
        elif method == "rows":
            grown = solver.solve(sizes, facts, before=grown, changed=new if grown is not None else None)
            model = grown.model
        elif method in ("primed", "consolidated"):
            known = RowSolver(model, snapshots.until(number - 1))
            model = known.priors(sizes, facts) if method == "primed" else known.solve(sizes, facts).model
            model = _short_training(board, model, facts)
        else:
            model = _short_training(board, _random_rows(model, sizes), facts)
        yield number, model, time.process_time() - start


# -- figures ----------------------------------------------------------------------------------------------------------


def reciprocal_ranks(model: TensorModel, facts: Facts, known: Facts, entities: int) -> Tensor:
    """Return 1 / rank of the subjects and objects of facts among the first `entities` ids, filtered: (2 n,)."""
    restricted = model.with_rows({"entity": model.entity.detach()[:entities]})
    restricted.sizes = model.sizes | {"entity": entities}
    index = FactIndex(known, restricted.sizes)
    ranks = [rank(restricted, facts, slot, known=index)["filtered"].ranks() for slot in "so"]
    return torch.cat(ranks).reciprocal()


def _method(method: str, workspace: Workspace, board: Board, snapshots: Snapshots) -> dict[str, Any]:
    """Return the figures of a method: MRR by (model after i, test set j), and CPU-seconds of every step."""
    strict: dict[str, dict[str, float]] = {}
    found: dict[str, Any] = {"method": method, "strict": strict, "cpu_seconds": {}}
    for number, model, seconds in models_of(method, workspace, board, snapshots):
        found["cpu_seconds"][str(number)] = round(seconds, 3)
        known = snapshots.until(number, SPLITS)
        row = {}
        for tested in range(number + 1):
            facts = snapshots.splits[tested]["test"][:: board.every]
            row[str(tested)] = reciprocal_ranks(model, facts, known, snapshots.entities[number]).mean().item()
        strict[str(number)] = row
        if number == SNAPSHOTS - 1:
            found["lenient"] = {
                str(tested): reciprocal_ranks(
                    model,
                    snapshots.splits[tested]["test"][:: board.every],
                    snapshots.until(tested, SPLITS),
                    snapshots.entities[tested],
                )
                .mean()
                .item()
                for tested in range(SNAPSHOTS)
            }
    return found


def run(workspace: Workspace) -> dict[str, Any]:
    """Learn the snapshots of each benchmark by each method."""
    boards = list(BOARDS.values())
    if workspace.data in BOARDS:
        boards = [BOARDS[workspace.data]]
    elif workspace.data or workspace.quick:
        boards = [replace(QUICK, data=workspace.data or "world")]
    if workspace.dims:
        boards = [replace(board, dim=workspace.dims[0]) for board in boards]
    workspace.expected = sum(len(board.methods) for board in boards)
    return {"boards": [_run_board(workspace, board) for board in boards]}


def _run_board(workspace: Workspace, board: Board) -> dict[str, Any]:
    snapshots = _snapshots(workspace, board)
    rows = []
    for method in board.methods:
        compute: Callable[[], dict[str, Any]] = partial(_method, method, workspace, board, snapshots)
        rows.append(workspace.cached(f"{board.data} {method}", board.settings(method), compute))
    return {
        "data": board.data,
        "settings": {"dim": board.dim, "epochs": board.epochs, "penalty": board.penalty}
        | {"short_epochs": board.short_epochs, "short_rate": board.short_rate, "every": board.every, "seed": 0}
        | {"retrained_epochs": board.retrained_epochs or board.epochs},
        "entities": list(snapshots.entities),
        "facts": [{split: len(each[split]) for split in SPLITS} for each in snapshots.splits],
        "published": board.published,
        "rows": rows,
    }


def _snapshots(workspace: Workspace, board: Board) -> Snapshots:
    if board.data not in BOARDS:
        return invented(workspace.graph(board.data))
    return read_snapshots(Path(os.environ.get("RECOLLECT_DATA", ".")) / "continual" / board.data)
