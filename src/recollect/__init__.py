"""recollect: memory for knowledge graphs that change."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from recollect.errors import DataWarning, UserError
    from recollect.evaluation.metrics import Evaluation
    from recollect.graph.episodes import aggregate, current, ends, rare, runs, split_by_time, split_randomly, starts
    from recollect.graph.facts import EpisodicGraph, Facts
    from recollect.graph.times import TimeAxis
    from recollect.graph.vocabulary import Vocabulary
    from recollect.io.datasets import dataset
    from recollect.io.events import EventRecipe, read_events
    from recollect.io.exchange import write_graph
    from recollect.io.tables import read
    from recollect.memory.memory import Memory, load
    from recollect.models.config import ModelConfig
    from recollect.models.zoo import MODELS
    from recollect.training.recipe import RECIPES, Recipe
    from recollect.training.run import TrainingRun
    from recollect.training.trainer import Epoch, Step

__all__ = [
    "MODELS",
    "RECIPES",
    "DataWarning",
    "EpisodicGraph",
    "Epoch",
    "Evaluation",
    "EventRecipe",
    "Facts",
    "Memory",
    "ModelConfig",
    "Recipe",
    "Step",
    "TimeAxis",
    "TrainingRun",
    "UserError",
    "Vocabulary",
    "aggregate",
    "current",
    "dataset",
    "ends",
    "load",
    "rare",
    "read",
    "read_events",
    "runs",
    "split_by_time",
    "split_randomly",
    "starts",
    "write_graph",
]
__version__ = "0.2.0"

# The modules above, imported when one of their names is first used: PyTorch takes a second to import, and
# `recollect --help` does not need it.
_NAMES_OF_MODULE = {
    "errors": ["DataWarning", "UserError"],
    "evaluation.metrics": ["Evaluation"],
    "graph.episodes": ["aggregate", "current", "ends", "rare", "runs", "split_by_time", "split_randomly", "starts"],
    "graph.facts": ["EpisodicGraph", "Facts"],
    "graph.times": ["TimeAxis"],
    "graph.vocabulary": ["Vocabulary"],
    "io.datasets": ["dataset"],
    "io.events": ["EventRecipe", "read_events"],
    "io.exchange": ["write_graph"],
    "io.tables": ["read"],
    "memory.memory": ["Memory", "load"],
    "models.config": ["ModelConfig"],
    "models.zoo": ["MODELS"],
    "training.recipe": ["RECIPES", "Recipe"],
    "training.run": ["TrainingRun"],
    "training.trainer": ["Epoch", "Step"],
}
_MODULE_OF_NAME = {name: module for module, names in _NAMES_OF_MODULE.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF_NAME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_MODULE_OF_NAME[name]}"), name)
    globals()[name] = value  # found without this function the next time
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
