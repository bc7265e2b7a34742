"""Episodic to semantic: Start and Start-End projection, by the paper's loss and in closed form, at growing dims."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from paper.triples import triple_codes
from paper.workspace import Workspace
from recollect import MODELS, RECIPES, EpisodicGraph, Facts, ModelConfig, Recipe, UserError, current, ends, starts
from recollect.evaluation.metrics import precision_recall, summarise
from recollect.evaluation.ranking import rank
from recollect.graph.fact_index import FactIndex
from recollect.graph.seeds import seeded
from recollect.memory.answering.projection import Projection, project
from recollect.models.parameters import initial_parameter
from recollect.models.tensor_model import TensorModel
from recollect.training.trainer import Trainer

PROJECTED = ("distmult", "hole", "complex", "tucker", "cont")


@dataclass(frozen=True, kw_only=True)
class Series:
    """One dataset: models are trained at growing dims, repeatedly with other samples of its triples."""

    data: str
    dims: tuple[int, ...]
    repetitions: int
    episodic: Recipe
    semantic: Recipe
    sample: float = 0.8  # share of all triples, drawn anew for each repetition


_RANKING = replace(RECIPES["paper"], loss="ranking", sigmoid=False, epochs=40)
_SEMANTIC = replace(RECIPES["paper"], epochs=100)
SERIES = (
    Series(data="icews-countries", dims=(5, 10, 15, 25, 40), repetitions=4, episodic=_RANKING, semantic=_SEMANTIC),
    Series(data="wikidata12k", dims=(10, 20), repetitions=1, episodic=_RANKING, semantic=_SEMANTIC),
    Series(
        data="gdelt2012-countries",
        dims=(10, 20, 40),
        repetitions=1,
        episodic=replace(_RANKING, epochs=8, batch_size=4096),
        semantic=replace(_SEMANTIC, epochs=40, batch_size=4096),
    ),
)
QUICK = (
    Series(
        data="world",
        dims=(4, 12),
        repetitions=2,
        episodic=replace(_RANKING, epochs=3),
        semantic=replace(_SEMANTIC, epochs=5),
    ),
)
RELATIVE_COST = {"gdelt2012-countries": 4.0, "wikidata12k": 3.0}  # of a training run, compared with icews-countries


@dataclass(frozen=True)
class Sample:
    """Starts, ends and the state at the last time of a sample of triples."""

    sizes: dict[str, int]
    starts: Facts
    ends: Facts
    state: Facts  # at the last time, True or False

    @property
    def genuine(self) -> Facts:
        """Return the triples that hold at the last time."""
        return Facts(self.state[self.state.truth].ids)

    @property
    def false(self) -> Facts:
        """Return the triples that have ended."""
        return Facts(self.state[~self.state.truth].ids)


def draw_sample(graph: EpisodicGraph, share: float, seed: int) -> Sample:
    """Return a random share of the triples that occur in a graph."""
    state = current(graph)
    drawn = torch.randperm(len(state), generator=seeded(seed))[: max(1, int(share * len(state)))]
    codes = triple_codes(state[drawn], graph.sizes)

    def restrict(facts: Facts) -> Facts:
        return facts[torch.isin(triple_codes(facts, graph.sizes), codes)]

    return Sample(graph.sizes, restrict(starts(graph)), restrict(ends(graph)), restrict(state))


def run(workspace: Workspace) -> dict[str, Any]:
    """Train every model at every dim on every sample, and evaluate its projections."""
    plans = QUICK if workspace.quick else SERIES
    if workspace.data or workspace.dims:
        first = plans[0]
        plans = (replace(first, data=workspace.data or first.data, dims=workspace.dims or first.dims),)
    workspace.expected = sum(cost for series in plans for *_, cost in _units(series))
    return {"series": [_run_series(workspace, series) for series in plans]}


def _run_series(workspace: Workspace, series: Series) -> dict[str, Any]:
    graph = workspace.graph(series.data)
    state = current(graph)
    if bool(state.truth.all()) or not bool(state.truth.any()):
        raise UserError(f"of {series.data} everything holds at the last time, or nothing; projection tells them apart")
    points = []
    for model, dim, repetition, cost in _units(series):
        point = {"model": model, "dim": dim, "repetition": repetition}
        work = partial(compute_point, workspace, series, graph, model, dim, repetition)
        name = f"{series.data} {model} dim {dim} #{repetition + 1}"
        points.append(point | workspace.cached(name, point | asdict(series), work, cost=cost))
    return {
        "settings": asdict(series),
        "sizes": graph.sizes,
        "triples": len(state),
        "current": int(state.truth.sum()),
        "exact": exact_auprc(graph),
        "points": points,
    }


def _units(series: Series) -> Iterator[tuple[str, int, int, float]]:
    """Yield (model, dim, repetition, relative cost)."""
    weight = RELATIVE_COST.get(series.data, 1.0)
    for model in PROJECTED:
        for dim in series.dims:
            for repetition in range(series.repetitions):
                yield model, dim, repetition, weight * (1 + dim / 4 if model in ("tucker", "cont") else 1)


def exact_auprc(graph: EpisodicGraph) -> dict[str, float]:
    """Return the AUPRC of the tensors of starts and ends: that of a model without reconstruction error."""
    state = current(graph)
    codes = triple_codes(state, graph.sizes)

    def count(facts: Facts) -> Tensor:
        rows = torch.searchsorted(codes, triple_codes(facts, graph.sizes))
        return torch.bincount(rows, minlength=len(codes)).float()

    started, ended = count(starts(graph)), count(ends(graph))
    return {
        "start": precision_recall(started, state.truth)["auprc"],
        "start-end": precision_recall(started - ended, state.truth)["auprc"],
    }


def compute_point(
    workspace: Workspace, series: Series, graph: EpisodicGraph, model: str, dim: int, repetition: int
) -> dict[str, Any]:
    """Return the figures of one model at one dim on one sample, by both methods and of the semantic model."""
    sample = draw_sample(graph, series.sample, repetition)
    config = ModelConfig(model=model, dim=dim)
    graph_of_starts = graph.with_splits({"train": sample.starts})
    learned = workspace.train(graph_of_starts, config, series.episodic, seed=repetition).model
    ends_table = learn_ends(series.episodic, sample, learned, repetition)
    projections = {
        "paper": Projection(learned, learned.time.detach().clone(), ends_table),
        "closed": project(learned, sample.starts, sample.ends),
    }
    found: dict[str, Any] = {}
    for method, projection in projections.items():
        assert projection.ends is not None
        found[method] = {
            "starts time mrr": time_mrr(learned, projection.starts, sample.starts, sample),
            "ends time mrr": time_mrr(learned, projection.ends, sample.ends, sample),
            "start": evaluate_state(replace(projection, ends=None).at(), sample),
            "start-end": evaluate_state(projection.at(), sample),
        }
    found["semantic"] = learn_semantic(workspace, series, graph, sample, model, dim, repetition)
    return found


def learn_ends(recipe: Recipe, sample: Sample, learned: TensorModel, seed: int) -> Tensor:
    """Return a time table of the ends, trained by the same loss with everything else fixed: (times, …)."""
    generator = seeded(seed)
    initial = initial_parameter(tuple(learned.time.shape), learned.dtype, learned.device, generator)
    model = learned.with_rows({"time": initial.detach()})
    for _ in Trainer(model, sample.ends, recipe, generator=generator, learn={"time"}):
        pass
    return model.time.detach()


def learn_semantic(
    workspace: Workspace, series: Series, graph: EpisodicGraph, sample: Sample, model: str, dim: int, seed: int
) -> dict[str, float]:
    """Train the semantic counterpart on the state itself, true and false triples, and evaluate it."""
    counterpart = MODELS[model].semantic_counterpart or MODELS[model]
    name = next(name for name, kind in MODELS.items() if kind is counterpart)
    config = ModelConfig(model=name, dim=dim, form="semantic")
    run = workspace.train(graph.with_splits({"train": sample.state}), config, series.semantic, seed=seed)
    return evaluate_state(run.model, sample)


def time_mrr(model: TensorModel, table: Tensor, facts: Facts, sample: Sample) -> float:
    """Return the filtered MRR of the facts' times with this time table: how well it reconstructs them."""
    known = FactIndex(facts, sample.sizes)
    return summarise([rank(model.with_rows({"time": table}), facts, "t", known=known)["filtered"]])["mrr"]


@torch.no_grad()
def evaluate_state(model: TensorModel, sample: Sample) -> dict[str, float]:
    """Return AUPRC and recall of the state, and Hits@10 of subjects and objects of genuine and of false triples."""
    found = precision_recall(model.score(model.normalize(sample.state)), sample.state.truth)
    for suffix, facts in (("", sample.genuine), (" false", sample.false)):
        normalized = model.normalize(facts)
        known = FactIndex(normalized, sample.sizes)
        rankings = [rank(model, normalized, slot, known=known) for slot in "so"]
        for setting in ("filtered", "raw"):
            found[setting + suffix] = summarise([ranking[setting] for ranking in rankings])["hits@10"]
    return found
