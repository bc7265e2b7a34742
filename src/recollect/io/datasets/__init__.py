"""Where graphs come from: tables of facts, raw events, and named datasets."""

from __future__ import annotations

import inspect
from dataclasses import replace
from typing import Any

from recollect.errors import UserError
from recollect.graph.facts import EpisodicGraph
from recollect.io.datasets.derived import DERIVED, VIEWS
from recollect.io.datasets.fetch import Progress, fetch
from recollect.io.datasets.published import PUBLISHED, Dataset
from recollect.io.datasets.world import world

DATASETS: dict[str, Dataset] = {
    **PUBLISHED,
    **DERIVED,
    "world": Dataset(
        about="an invented world by month: offices, alliances, treaties, wars, visits (synthetic)",
        make=world,
        sizes=(243, 10, 120),
        licence="MIT",
        source="made on the spot",
    ),
}


def dataset(name: str, *, progress: Progress | None = None, **options: Any) -> EpisodicGraph:
    """The graph of that name, or a view of it: NAME/rare, NAME/starts, NAME/ends, NAME/current.

    Its files are looked for in RECOLLECT_DATA, then in the cache, else downloaded and checked; `progress(done,
    total)` hears of the bytes. Options are those of its maker.

    >>> dataset("world", countries=4, years=1).name
    'world'
    """
    entry = find_dataset(name)
    takes_files = bool(entry.files)
    known = list(inspect.signature(entry.make).parameters)[int(takes_files) :]
    if unknown := [option for option in options if option not in known]:
        raise UserError(f"{name} has no option {unknown[0]!r}; its options: {', '.join(known) or 'none'}")
    paths = {role: fetch(file, progress) for role, file in entry.files.items()}
    graph = replace(entry.make(paths, **options) if takes_files else entry.make(**options), name=name)
    view = name.partition("/")[2]
    return VIEWS[view](graph) if view else graph


def find_dataset(name: str) -> Dataset:
    """The entry of a dataset, or of the one that a view is of."""
    base, slash, view = name.partition("/")
    if base not in DATASETS:
        raise UserError(f"unknown dataset {name!r}; choose one of {', '.join(DATASETS)}")
    if slash and view not in VIEWS:
        raise UserError(f"{base} has no view {view!r}; choose one of {', '.join(VIEWS)}")
    return DATASETS[base]
