"""recollect: memory for knowledge graphs that change."""

from recollect.episodes import aggregate, current, ends, rare, runs, split_by_time, split_randomly, starts
from recollect.errors import UserError
from recollect.facts import EpisodicGraph, Facts, Vocabulary
from recollect.learning import Learning
from recollect.memory import Memory, load
from recollect.models import MODELS, Ranks
from recollect.recipes import RECIPES, Recipe
from recollect.sources import dataset
from recollect.sources.events import EventRecipe, read_events
from recollect.sources.exchange import write_graph
from recollect.sources.tables import read
from recollect.times import TimeAxis

__all__ = [
    "MODELS",
    "RECIPES",
    "EpisodicGraph",
    "EventRecipe",
    "Facts",
    "Learning",
    "Memory",
    "Ranks",
    "Recipe",
    "TimeAxis",
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
