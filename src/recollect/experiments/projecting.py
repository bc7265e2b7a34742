"""Episodic to semantic: Start and Start-End projection, by the paper's loss and in closed form, at many ranks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from recollect.episodes import current, ends, starts
from recollect.experiments.lab import Lab
from recollect.facts import EpisodicGraph, Facts, number
from recollect.known import Known
from recollect.metrics import precision_recall, summarise
from recollect.models import MODELS, TensorModel, xavier_
from recollect.projection import Projection, project
from recollect.ranks import rank as rank_slot
from recollect.recipes import Recipe
from recollect.seeds import seeded
from recollect.sources import dataset
from recollect.training import Training

PROJECTED = ("distmult", "hole", "complex", "tucker", "cont")
WAYS = {"paper": "ranking loss", "closed": "closed form"}
KINDS = {"start": "Start", "start-end": "Start-End"}


@dataclass(frozen=True, kw_only=True)
class Series:
    """The same triples at growing ranks, so many times with other samples of them."""

    data: str
    ranks: tuple[int, ...]
    repetitions: int
    episodic: Recipe
    semantic: Recipe
    sample: float = 0.8  # of all triples, drawn anew for each repetition


_RANKING = Recipe(loss="ranking", sigmoid=False, epochs=40)
_SEMANTIC = Recipe(epochs=100)
SERIES = (
    Series(data="icews-countries", ranks=(5, 10, 15, 25, 40), repetitions=4, episodic=_RANKING, semantic=_SEMANTIC),
    Series(data="wikidata12k", ranks=(10, 20), repetitions=1, episodic=_RANKING, semantic=_SEMANTIC),
    Series(
        data="gdelt2012-countries",
        ranks=(10, 20, 40),
        repetitions=1,
        episodic=replace(_RANKING, epochs=8, batch_size=4096),
        semantic=replace(_SEMANTIC, epochs=40, batch_size=4096),
    ),
)
QUICK = (
    Series(
        data="world",
        ranks=(4, 12),
        repetitions=2,
        episodic=replace(_RANKING, epochs=3),
        semantic=replace(_SEMANTIC, epochs=5),
    ),
)


@dataclass(frozen=True)
class Sampled:
    """The starts, the ends and the state at the last time of some triples."""

    sizes: dict[str, int]
    starts: Facts
    ends: Facts
    state: Facts  # at the last time, True or False

    @property
    def genuine(self) -> Facts:
        return Facts(self.state[self.state.truth].ids)

    @property
    def false(self) -> Facts:
        return Facts(self.state[~self.state.truth].ids)


def sample(graph: EpisodicGraph, share: float, seed: int) -> Sampled:
    """A share of the triples that occur in a graph, drawn with a seed."""
    state = current(graph)
    kept = torch.randperm(len(state), generator=seeded(seed))[: max(1, int(share * len(state)))]
    codes = number(state[kept], graph.sizes, "spo")

    def of(facts: Facts) -> Facts:
        return facts[torch.isin(number(facts, graph.sizes, "spo"), codes)]

    return Sampled(graph.sizes, of(starts(graph)), of(ends(graph)), of(state))


def run(lab: Lab) -> dict[str, Any]:
    """Every model at every rank on every sample."""
    series = QUICK if lab.quick else SERIES
    lab.expected = sum(cost for some in series for *_, cost in _units(some))
    found = []
    for some in series:
        graph = dataset(some.data)
        points = []
        for model, rank, repetition, cost in _units(some):
            told = {"model": model, "rank": rank, "repetition": repetition, **asdict(some)}
            work = partial(_point, lab, some, graph, model, rank, repetition)
            points.append(
                {"model": model, "rank": rank, "repetition": repetition}
                | lab.once(f"{some.data} {model} rank {rank} #{repetition + 1}", told, work, cost=cost)
            )
        state = current(graph)
        told = {"triples": len(state), "current": int(state.truth.sum()), "exact": _exact(graph)}
        found.append({"settings": asdict(some), "sizes": graph.sizes, **told, "points": points})
    return {"series": found}


def _units(series: Series) -> Iterator[tuple[str, int, int, float]]:
    """Model, rank, repetition, and about what it costs beside the others."""
    weight = {"gdelt2012-countries": 4.0, "wikidata12k": 3.0}.get(series.data, 1.0)
    for model in PROJECTED:
        for rank in series.ranks:
            for repetition in range(series.repetitions):
                yield model, rank, repetition, weight * (1 + rank / 4 if model in ("tucker", "cont") else 1)


def _exact(graph: EpisodicGraph) -> dict[str, float]:
    """The AUPRC of the tensors themselves: what a model that reconstructs them would reach."""
    state = current(graph)
    codes = number(state, graph.sizes, "spo")

    def counts(facts: Facts) -> torch.Tensor:
        where = torch.searchsorted(codes, number(facts, graph.sizes, "spo"))
        return torch.bincount(where, minlength=len(codes)).float()

    began, ended = counts(starts(graph)), counts(ends(graph))
    return {
        kind: precision_recall(score, state.truth)["auprc"]
        for kind, score in (("start", began), ("start-end", began - ended))
    }


def _point(lab: Lab, series: Series, graph: EpisodicGraph, model: str, rank: int, repetition: int) -> dict[str, Any]:
    sampled = sample(graph, series.sample, repetition)
    learned = _learn_starts(lab, series, graph, sampled, model, rank, repetition)
    ways = {
        "paper": Projection(learned, learned.time.detach().clone(), _learn_ends(series, sampled, learned, repetition)),
        "closed": project(learned, sampled.starts, sampled.ends),
    }
    found: dict[str, Any] = {}
    for way, projection in ways.items():
        assert projection.ends is not None
        tables = {"starts": projection.starts, "ends": projection.ends}
        facts = {"starts": sampled.starts, "ends": sampled.ends}
        found[way] = {f"{name} time mrr": _time_mrr(learned, tables[name], facts[name], sampled) for name in tables} | {
            kind: _judge(which.at(), sampled)
            for kind, which in (("start", replace(projection, ends=None)), ("start-end", projection))
        }
    found["semantic"] = _semantic(lab, series, graph, sampled, model, rank, repetition)
    return found


def _learn_starts(
    lab: Lab, series: Series, graph: EpisodicGraph, sampled: Sampled, model: str, rank: int, seed: int
) -> TensorModel:
    learning = lab.train(
        graph.with_splits({"train": sampled.starts}), model=model, rank=rank, recipe=series.episodic, seed=seed
    )
    return learning.model


def _learn_ends(series: Series, sampled: Sampled, learned: TensorModel, seed: int) -> torch.Tensor:
    """The time table of the ends, by the same loss, everything else fixed."""
    model, generator = learned.part({}), seeded(seed)
    with torch.no_grad():
        xavier_(model.time, generator=generator)
    for _ in Training(model, sampled.ends, series.episodic, generator=generator, learn={"time"}):
        pass
    return model.time.detach()


def _semantic(
    lab: Lab, series: Series, graph: EpisodicGraph, sampled: Sampled, model: str, rank: int, seed: int
) -> dict[str, Any]:
    """The semantic counterpart, trained on the state itself: what is true and what is false now."""
    counterpart = MODELS[model].counterpart
    name = model if counterpart is None else next(name for name, kind in MODELS.items() if kind is counterpart)
    learning = lab.train(
        graph.with_splits({"train": sampled.state}),
        model=name,
        rank=rank,
        recipe=series.semantic,
        seed=seed,
        form="semantic",
    )
    return _judge(learning.model, sampled)


def _time_mrr(model: TensorModel, table: torch.Tensor, facts: Facts, sampled: Sampled) -> float:
    """How well the times of facts are recollected: reconstruction."""
    known = Known(facts, sampled.sizes)
    return summarise([rank_slot(model.part({"time": table}), facts, "t", known=known)["filtered"]])["mrr"]


@torch.no_grad()
def _judge(model: TensorModel, sampled: Sampled) -> dict[str, float]:
    """AUPRC and recall of the state; Hits@10 of subjects and objects of genuine and of false triples."""
    found = precision_recall(model.score(model.as_modelled(sampled.state)), sampled.state.truth)
    for name, facts in (("", sampled.genuine), (" false", sampled.false)):
        facts = model.as_modelled(facts)
        known = Known(facts, sampled.sizes)
        rankings = [rank_slot(model, facts, slot, known=known) for slot in "so"]
        for setting in ("filtered", "raw"):
            found[f"{setting}{name}"] = summarise([ranking[setting] for ranking in rankings])["hits@10"]
    return found


def page(found: dict[str, Any], folder: Path) -> str:
    """One section a dataset: curves, the Hits@10 table, reconstruction against projection."""
    return "\n\n".join(_section(series, folder) for series in found["series"])


def _section(series: dict[str, Any], folder: Path) -> str:
    return str(series["settings"]["data"])
