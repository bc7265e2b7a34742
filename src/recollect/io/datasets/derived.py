"""Datasets computed from published ones: the paper's country tensor, and the views of any graph."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from recollect.graph.episodes import aggregate, current, ends, most_frequent, rare, starts
from recollect.graph.facts import EpisodicGraph, Facts
from recollect.graph.vocabulary import Vocabulary
from recollect.io.datasets.readers import Paths
from recollect.io.datasets.registry import CAMEO, PUBLISHED, Dataset
from recollect.io.events.cameo import name_roots

_PLACE = re.compile(r"\(([^()]*)\)$")


def country_of(entities: Vocabulary) -> dict[str, str]:
    """Return the country or region of every entity that has one: `Role (X)` belongs to X, and so does X itself.

    >>> country_of(Vocabulary.of("entity", ["Police (India)", "India", "Barack Obama"]))
    {'India': 'India', 'Police (India)': 'India'}
    """
    places: dict[str, str] = {}
    for label in entities.labels:
        match = _PLACE.search(label)
        if match:
            places[label] = match[1]
    itself = {region: region for region in set(places.values()) & set(entities.labels)}
    return dict(sorted((itself | places).items()))


def _icews_countries(paths: Paths, counts: bool = False) -> EpisodicGraph:
    """Return ICEWS by country, CAMEO root and month in the paper's shape: 258 countries and regions × 20 × 72."""
    graph = PUBLISHED["icews05-15"].make({role: path for role, path in paths.items() if role != "cameo"})
    roots = name_roots(paths["cameo"])
    graph = aggregate(
        graph,
        entities=country_of(graph.entities),
        predicates={label: roots[label.strip().casefold()] for label in graph.predicates.labels},
        grain="month",
        since="2005-01",
        until="2010-12",
        counts=counts,
    )
    return most_frequent(graph, 258)


DERIVED: dict[str, Dataset] = {
    "icews-countries": Dataset(
        about="ICEWS 2005 to 2010 by country, CAMEO root and month, from icews05-15: the paper's shape",
        make=_icews_countries,
        files={**PUBLISHED["icews05-15"].files, "cameo": CAMEO},
        sizes=(258, 20, 72),
        cells=63_752,
        licence=PUBLISHED["icews05-15"].licence,
        source="derived from icews05-15",
    ),
}


def _view(select: Callable[[EpisodicGraph], Facts]) -> Callable[[EpisodicGraph], EpisodicGraph]:
    """Return a function from a graph to the unsplit graph of some of its facts."""

    def view(graph: EpisodicGraph) -> EpisodicGraph:
        return replace(graph, splits={"train": select(graph)}, duplicates=0, rows={}, dropped={})

    return view


# views of any dataset, as in icews-countries/starts
VIEWS: dict[str, Callable[[EpisodicGraph], EpisodicGraph]] = {
    "rare": _view(rare),
    "starts": _view(starts),
    "ends": _view(ends),
    "current": _view(current),
}
