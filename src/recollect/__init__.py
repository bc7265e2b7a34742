"""recollect: memory for knowledge graphs that change."""

from recollect.episodes import current, ends, rare, runs, split_by_time, split_randomly, starts
from recollect.errors import UserError
from recollect.facts import EpisodicGraph, Facts, Vocabulary
from recollect.learning import Learning
from recollect.memory import Memory, load
from recollect.models import MODELS, Ranks
from recollect.recipes import RECIPES, Recipe
from recollect.sources import dataset
from recollect.sources.tables import read
from recollect.times import TimeAxis

__all__ = [
    "MODELS",
    "RECIPES",
    "EpisodicGraph",
    "Facts",
    "Learning",
    "Memory",
    "Ranks",
    "Recipe",
    "TimeAxis",
    "UserError",
    "Vocabulary",
    "current",
    "dataset",
    "ends",
    "load",
    "rare",
    "read",
    "runs",
    "split_by_time",
    "split_randomly",
    "starts",
]
__version__ = "0.1.0"
