"""recollect: memory for knowledge graphs that change."""

from recollect.errors import UserError
from recollect.graph.episodes import aggregate, current, ends, rare, runs, split_by_time, split_randomly, starts
from recollect.graph.facts import EpisodicGraph, Facts, Vocabulary
from recollect.graph.times import TimeAxis
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
    "EpisodicGraph",
    "Epoch",
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
__version__ = "0.1.0"
