"""Where graphs come from: tables of facts and named datasets."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from recollect.errors import UserError
from recollect.facts import EpisodicGraph
from recollect.sources.world import world


@dataclass(frozen=True)
class Dataset:
    """A named graph: how to make it and what it is."""

    make: Callable[..., EpisodicGraph]
    about: str


DATASETS: dict[str, Dataset] = {
    "world": Dataset(world, "an invented world by month: offices, alliances, treaties, wars, visits (synthetic)"),
}


def dataset(name: str, **options: Any) -> EpisodicGraph:
    """The graph of that name; options are those of its maker.

    >>> dataset("world", countries=4, years=1).name
    'world'
    """
    if name not in DATASETS:
        raise UserError(f"unknown dataset {name!r}; choose one of {', '.join(DATASETS)}")
    make = DATASETS[name].make
    if unknown := [option for option in options if option not in inspect.signature(make).parameters]:
        known = ", ".join(inspect.signature(make).parameters) or "none"
        raise UserError(f"{name} has no option {unknown[0]!r}; its options: {known}")
    return make(**options)
