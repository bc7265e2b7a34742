"""Forgotten facts: do they rank as by a memory that never learned them?"""

from __future__ import annotations

import math
import time
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from paper.markdown import markdown_table, number
from paper.workspace import Workspace
from recollect import EpisodicGraph, Facts, ModelConfig
from recollect.evaluation.ranking import Scorer, rank
from recollect.graph.fact_index import FactIndex
from recollect.graph.seeds import seeded
from recollect.history.history import History
from recollect.memory.answering.scorer import MemoryScorer
from recollect.models.new_rows import RowSolver
from recollect.models.tensor_model import TensorModel
from recollect.training.recipe import RECIPES

STATES = {
    "learned": "learned, not forgotten",
    "unstored": "no longer stored, rows as they were",
    "forgotten": "forgotten",
    "never": "never learned",
}
TERMS = 100  # of the series of Kolmogorov's distribution


@dataclass(frozen=True, kw_only=True)
class Study:
    """A dataset, the number of facts that are forgotten, and the model."""

    data: str = "icews14"
    facts: int = 400
    dim: int = 50
    epochs: int = 12
    levels: tuple[int, ...] = (1, 5, 25)
    draws: tuple[int, ...] = (7, 8, 9)  # seeds of the draws of the facts; the training's is 0


def run(workspace: Workspace) -> dict[str, Any]:
    """Train on all facts; for each draw on all but some, forget those in the first memory, and rank them."""
    study = Study()
    if workspace.quick:
        study = Study(data="world", facts=40, dim=8, epochs=4, draws=(7,))
    study = replace(study, data=workspace.data or study.data, dim=(workspace.dims or (study.dim,))[0])
    workspace.expected = len(study.draws)
    draws = []
    for seed in study.draws:
        settings = {"study": str(replace(study, draws=())), "draw": seed}
        draws.append(workspace.cached(f"draw {seed}", settings, partial(_figures, workspace, study, seed)))
    return {"study": asdict(study), "draws": draws}


def _figures(workspace: Workspace, study: Study, seed: int) -> dict[str, Any]:
    graph = workspace.graph(study.data)
    train = graph.split("train")
    drawn = torch.randperm(len(train), generator=seeded(seed))[: study.facts]
    is_kept = torch.ones(len(train), dtype=torch.bool)
    is_kept[drawn] = False
    lost, rest = train[~is_kept], train[is_kept]
    whole = _train(workspace, study, graph, train, "whole")
    never = _train(workspace, study, graph, rest, f"rest {seed}")
    start = time.process_time()
    solver = RowSolver(whole, train)
    without = solver.solve(graph.sizes, rest, forgotten=lost).model
    seconds = time.process_time() - start
    history = {"whole": History.fit(train, graph.sizes, asked="o"), "never": History.fit(rest, graph.sizes, asked="o")}
    updated = history["whole"].with_facts(rest)
    scorers: dict[str, tuple[TensorModel, History]] = {
        "learned": (whole, history["whole"]),
        "unstored": (whole, updated),
        "forgotten": (without, updated),
        "never": (never, history["never"]),
    }
    known = FactIndex(graph.facts, graph.sizes)
    ranks: dict[str, dict[str, Tensor]] = {"model": {}, "memory": {}}
    for state, (model, past) in scorers.items():
        ranks["model"][state] = _ranks(model, lost, known)
        ranks["memory"][state] = _ranks(MemoryScorer((model,), past, {}), lost, known)
    rows = []
    for state in STATES:
        row: dict[str, Any] = {"state": state}
        for part, found in ranks.items():
            distance, p = kolmogorov_smirnov(found[state], found["never"])
            row[part] = {"mrr": found[state].reciprocal().mean().item(), "distance": distance, "p": p}
        rows.append(row)
    return {"rows": rows, "train": len(train), "cpu_seconds": round(seconds, 3)}


def _train(workspace: Workspace, study: Study, graph: EpisodicGraph, facts: Facts, name: str) -> TensorModel:
    config = ModelConfig(model="complex", dim=study.dim, static=True, reciprocal=True, time_levels=study.levels)
    recipe = replace(RECIPES["modern"], epochs=study.epochs)
    checkpoint = workspace.checkpoint(name, {"study": str(replace(study, draws=()))})
    run = workspace.train(graph.with_splits({"train": facts}), config, recipe, checkpoint=checkpoint)
    return run.result()[0]


def _ranks(scorer: Scorer, facts: Facts, known: FactIndex) -> Tensor:
    """Return the filtered ranks of subjects and objects: (2 n,)."""
    return torch.cat([rank(scorer, facts, slot, known=known)["filtered"].ranks() for slot in "so"])


def kolmogorov_smirnov(a: Tensor, b: Tensor) -> tuple[float, float]:
    """Return the distance of two samples' distributions and the asymptotic p-value of the two-sample test.

    >>> kolmogorov_smirnov(torch.arange(50.0), torch.arange(50.0))
    (0.0, 1.0)
    >>> kolmogorov_smirnov(torch.arange(50.0), torch.arange(50.0) + 50)[1] < 1e-9
    True
    """
    points = torch.cat([a, b]).unique()
    shares = [torch.searchsorted(sample.sort().values, points, right=True) / len(sample) for sample in (a, b)]
    distance = (shares[0] - shares[1]).abs().max().item()
    root = math.sqrt(len(a) * len(b) / (len(a) + len(b)))
    scaled = (root + 0.12 + 0.11 / root) * distance
    if scaled < 0.2:  # the series converges slowly, to 1
        return distance, 1.0
    terms = ((-1) ** (k - 1) * math.exp(-2 * (k * scaled) ** 2) for k in range(1, TERMS + 1))
    return distance, min(1.0, max(0.0, 2 * sum(terms)))


def page(found: dict[str, Any], _folder: Path) -> str:
    """Return the page: one table, with the states of every draw."""
    study, draws = found["study"], found["draws"]
    per_fact = 1000 * sum(draw["cpu_seconds"] for draw in draws) / len(draws) / study["facts"]
    text = (
        f"{study['facts']} random facts of the {draws[0]['train']:,} training facts of {study['data']} are forgotten. "
        "Their subjects and objects are ranked, filtered, by the memory that learned them, before and after it forgets "
        "them, and by one that was trained without them. *D* and *p* are those of the two-sample Kolmogorov-Smirnov "
        "test of the ranks against the latter's; p > 0.05 means that they do not differ measurably. *Model*: ComplEx "
        f"with a static part, dim {study['dim']}, {study['epochs']} epochs. *Model and history*: 0.4 θ + 0.6 log λ. "
        f"Forgetting took {per_fact:.0f} ms of CPU time a fact: history is exact, and what the rows of the fact's "
        "entities, predicate and time learned from it is taken out by a Newton step."
    )
    head = ["draw", "forgotten facts", "MRR, model", "D", "p", "MRR, model and history", "D", "p"]
    lines = []
    for place, draw in enumerate(draws, start=1):
        for row in draw["rows"]:
            cells = [number(row[part][name]) for part in ("model", "memory") for name in ("mrr", "distance", "p")]
            lines.append([str(place), STATES[row["state"]], *cells])
    return text + "\n\n" + markdown_table(head, lines)
