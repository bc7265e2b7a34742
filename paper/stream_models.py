"""Models of the stream study, each trained once and stored with the CPU-seconds that its training took."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from paper.leaderboard_entries import Entry, modern
from paper.workspace import Workspace
from recollect import EpisodicGraph, Recipe, TrainingRun
from recollect.io.checkpoint import read_checkpoint, write_checkpoint
from recollect.models.tensor_model import TensorModel
from recollect.models.zoo import build_model

EPOCHS = 12  # that held-out facts of the base chose
CONT = modern("cont", 60, predicate_dim=10, static=True, epochs=EPOCHS)


@dataclass(frozen=True, eq=False)
class Trained:
    """A model and the CPU-seconds of its training."""

    model: TensorModel
    cpu_seconds: float


def train_once(
    workspace: Workspace,
    name: str,
    graph: EpisodicGraph,
    entry: Entry,
    *,
    seed: int = 0,
    settings: Mapping[str, Any] | None = None,
    initial: TensorModel | None = None,
) -> Trained:
    """Return a model trained on a graph, from the workspace if it is there already."""
    key = {"data": graph.fingerprint, "entry": entry.to_dict(), "seed": seed, **(settings or {})}
    file = workspace.checkpoint(name, key)
    if file.is_file():
        tensors, about = read_checkpoint(file)
        model = build_model(entry.config, graph.sizes, device="meta")
        model.load_state_dict(tensors, assign=True)
        return Trained(model, about["cpu_seconds"])
    start = time.process_time()
    run = TrainingRun(graph, entry.config, recipe=entry.recipe, seed=seed, initial=initial)
    for _ in run:
        pass
    run.trainer.finish_()
    seconds = time.process_time() - start
    write_checkpoint(file, run.model.state_dict(), {"cpu_seconds": seconds})
    return Trained(run.model, seconds)


def shorter(entry: Entry, epochs: int, rate: float = 1.0) -> Entry:
    """Return an entry that trains for fewer epochs, at a share of the learning rate."""
    recipe: Recipe = entry.recipe.for_model(entry.config.model)
    return replace(entry, recipe=replace(recipe, epochs=epochs, learning_rate=rate * recipe.filled("learning_rate")))
