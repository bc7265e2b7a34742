"""Named datasets: published, derived from published ones, and a synthetic world."""

from __future__ import annotations

import inspect
from dataclasses import replace
from typing import Any

from recollect.errors import UserError, check_process
from recollect.graph.facts import EpisodicGraph
from recollect.io.datasets.derived import DERIVED, VIEWS
from recollect.io.datasets.download import Progress, fetch
from recollect.io.datasets.registry import PUBLISHED, Dataset
from recollect.io.datasets.world import world

DATASETS: dict[str, Dataset] = {
    **PUBLISHED,
    **DERIVED,
    "world": Dataset(
        about="a synthetic world by month: offices, alliances, treaties, wars, visits",
        make=world,
        sizes=(243, 10, 120),
        licence="MIT",
        source="generated",
    ),
}


def dataset(name: str, *, progress: Progress | None = None, unverified: bool = False, **options: Any) -> EpisodicGraph:
    """Return the dataset of that name, or a view of it: NAME/rare, NAME/starts, NAME/ends, NAME/current.

    Its files are taken from RECOLLECT_DATA or the cache, else downloaded and checked; `progress(done, total)` is
    called with the bytes. A file without a known checksum is downloaded only with `unverified=True`. Options are those
    of the dataset, such as `counts` or, for the world, `seed`.

    Examples:
        >>> dataset("world", countries=4, years=1).name
        'world'
    """
    check_process()
    entry = find_dataset(name)
    known = [option for option in inspect.signature(entry.make).parameters if option != "paths"]
    for option in options:
        if option not in known:
            raise UserError(f"{name} has no option {option!r}; its options: {', '.join(known) or 'none'}")
    if entry.files:
        paths = {role: fetch(file, progress, unverified=unverified) for role, file in entry.files.items()}
        graph = entry.make(paths, **options)
    else:
        graph = entry.make(**options)
    graph = replace(graph, name=name)
    view = name.partition("/")[2]
    return VIEWS[view](graph) if view else graph


def find_dataset(name: str) -> Dataset:
    """Return the entry of a dataset, also for the name of one of its views."""
    base, slash, view = name.partition("/")
    if base not in DATASETS:
        raise UserError(f"unknown dataset {name!r}; choose one of {', '.join(DATASETS)}")
    if slash and view not in VIEWS:
        raise UserError(f"{base} has no view {view!r}; choose one of {', '.join(VIEWS)}")
    return DATASETS[base]
