"""Episodic to semantic: Start and Start-End projection, by the paper's loss and in closed form, at many dims."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import torch

from paper.lab import Lab
from paper.pages import by_model, file_name, markdown_table, mean_and_spread, number
from paper.paper import PROJECTION, SHOWN
from paper.plots import Line, lines
from recollect.errors import UserError
from recollect.evaluation.metrics import precision_recall, summarise
from recollect.evaluation.ranking import rank as rank_slot
from recollect.graph.episodes import current, ends, starts
from recollect.graph.fact_index import FactIndex
from recollect.graph.facts import EpisodicGraph, Facts, encode
from recollect.graph.seeds import seeded
from recollect.memory.projection import Projection, project
from recollect.models.tensor_model import MODELS, TensorModel, xavier_
from recollect.training.recipe import Recipe
from recollect.training.trainer import Trainer

PROJECTED = ("distmult", "hole", "complex", "tucker", "cont")
WAYS = {"paper": "ranking loss", "closed": "closed form"}
KINDS = {"start": "Start", "start-end": "Start-End"}


@dataclass(frozen=True, kw_only=True)
class Series:
    """The same triples at growing dims, so many times with other samples of them."""

    data: str
    dims: tuple[int, ...]
    repetitions: int
    episodic: Recipe
    semantic: Recipe
    sample: float = 0.8  # of all triples, drawn anew for each repetition


_RANKING = Recipe(loss="ranking", sigmoid=False, epochs=40)
_SEMANTIC = Recipe(epochs=100)
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
    codes = encode(state[kept], graph.sizes, "spo")

    def of(facts: Facts) -> Facts:
        return facts[torch.isin(encode(facts, graph.sizes, "spo"), codes)]

    return Sampled(graph.sizes, of(starts(graph)), of(ends(graph)), of(state))


def run(lab: Lab) -> dict[str, Any]:
    """Every model at every dim on every sample."""
    series = QUICK if lab.quick else SERIES
    if lab.data or lab.dims:
        first = series[0]
        series = (replace(first, data=lab.data or first.data, dims=lab.dims or first.dims),)
    lab.expected = sum(cost for some in series for *_, cost in _units(some))
    found = []
    for some in series:
        graph = lab.graph(some.data)
        state = current(graph)
        if bool(state.truth.all()) or not bool(state.truth.any()):
            raise UserError(
                f"of {some.data} everything holds at the last time, or nothing; projection tells them apart"
            )
        points = []
        for model, dim, repetition, cost in _units(some):
            told = {"model": model, "dim": dim, "repetition": repetition, **asdict(some)}
            work = partial(_point, lab, some, graph, model, dim, repetition)
            points.append(
                {"model": model, "dim": dim, "repetition": repetition}
                | lab.once(f"{some.data} {model} dim {dim} #{repetition + 1}", told, work, cost=cost)
            )
        told = {"triples": len(state), "current": int(state.truth.sum()), "exact": _exact(graph)}
        found.append({"settings": asdict(some), "sizes": graph.sizes, **told, "points": points})
    return {"series": found}


def _units(series: Series) -> Iterator[tuple[str, int, int, float]]:
    """Model, dim, repetition, and about what it costs beside the others."""
    weight = {"gdelt2012-countries": 4.0, "wikidata12k": 3.0}.get(series.data, 1.0)
    for model in PROJECTED:
        for dim in series.dims:
            for repetition in range(series.repetitions):
                yield model, dim, repetition, weight * (1 + dim / 4 if model in ("tucker", "cont") else 1)


def _exact(graph: EpisodicGraph) -> dict[str, float]:
    """The AUPRC of the tensors themselves: what a model that reconstructs them would reach."""
    state = current(graph)
    codes = encode(state, graph.sizes, "spo")

    def counts(facts: Facts) -> torch.Tensor:
        where = torch.searchsorted(codes, encode(facts, graph.sizes, "spo"))
        return torch.bincount(where, minlength=len(codes)).float()

    began, ended = counts(starts(graph)), counts(ends(graph))
    return {
        kind: precision_recall(score, state.truth)["auprc"]
        for kind, score in (("start", began), ("start-end", began - ended))
    }


def _point(lab: Lab, series: Series, graph: EpisodicGraph, model: str, dim: int, repetition: int) -> dict[str, Any]:
    sampled = sample(graph, series.sample, repetition)
    learned = _learn_starts(lab, series, graph, sampled, model, dim, repetition)
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
    found["semantic"] = _semantic(lab, series, graph, sampled, model, dim, repetition)
    return found


def _learn_starts(
    lab: Lab, series: Series, graph: EpisodicGraph, sampled: Sampled, model: str, dim: int, seed: int
) -> TensorModel:
    learning = lab.train(
        graph.with_splits({"train": sampled.starts}), model=model, dim=dim, recipe=series.episodic, seed=seed
    )
    return learning.model


def _learn_ends(series: Series, sampled: Sampled, learned: TensorModel, seed: int) -> torch.Tensor:
    """The time table of the ends, by the same loss, everything else fixed."""
    model, generator = learned.part({"time": torch.empty_like(learned.time)}), seeded(seed)
    with torch.no_grad():
        xavier_(model.time, generator=generator)
    for _ in Trainer(model, sampled.ends, series.episodic, generator=generator, learn={"time"}):
        pass
    return model.time.detach()


def _semantic(
    lab: Lab, series: Series, graph: EpisodicGraph, sampled: Sampled, model: str, dim: int, seed: int
) -> dict[str, Any]:
    """The semantic counterpart, trained on the state itself: what is true and what is false now."""
    counterpart = MODELS[model].counterpart
    name = model if counterpart is None else next(name for name, kind in MODELS.items() if kind is counterpart)
    learning = lab.train(
        graph.with_splits({"train": sampled.state}),
        model=name,
        dim=dim,
        recipe=series.semantic,
        seed=seed,
        form="semantic",
    )
    return _judge(learning.model, sampled)


def _time_mrr(model: TensorModel, table: torch.Tensor, facts: Facts, sampled: Sampled) -> float:
    """How well the times of facts are recollected: reconstruction."""
    known = FactIndex(facts, sampled.sizes)
    return summarise([rank_slot(model.part({"time": table}), facts, "t", known=known)["filtered"]])["mrr"]


@torch.no_grad()
def _judge(model: TensorModel, sampled: Sampled) -> dict[str, float]:
    """AUPRC and recall of the state; Hits@10 of subjects and objects of genuine and of false triples."""
    found = precision_recall(model.score(model.as_modelled(sampled.state)), sampled.state.truth)
    for name, facts in (("", sampled.genuine), (" false", sampled.false)):
        facts = model.as_modelled(facts)
        known = FactIndex(facts, sampled.sizes)
        rankings = [rank_slot(model, facts, slot, known=known) for slot in "so"]
        for setting in ("filtered", "raw"):
            found[f"{setting}{name}"] = summarise([ranking[setting] for ranking in rankings])["hits@10"]
    return found


def page(found: dict[str, Any], folder: Path) -> str:
    """One section a dataset: curves, reconstruction against projection, the Hits@10 table."""
    intro = (
        "A model learns the starts of all runs by the paper's ranking loss without sigmoid; then a time table of the "
        "ends is learned with everything else fixed. **Start** sums the time rows of all starts, **Start-End** "
        "subtracts those of all ends, and the state at the last time should follow: which triples still hold (true) "
        "and which have ended (false). *Ranking loss* takes the time rows as that loss leaves them; *closed form* "
        "keeps the entities and predicates and solves for the rows of both tables, so that θ is 1 where something "
        "starts or ends and 0 elsewhere. *Semantic* is the counterpart trained on the state itself (RESCAL for ConT)."
    )
    return "\n\n".join([intro, *(_section(series, folder) for series in found["series"])])


def _section(series: dict[str, Any], folder: Path) -> str:
    settings, sizes, exact = series["settings"], series["sizes"], series["exact"]
    data = settings["data"]
    files = {name: f"projection-{name}-{file_name(data)}.png" for name in ("auprc", "recall", "why")}
    for figure, name in (("auprc", "AUPRC"), ("recall", "recall")):
        panels = {SHOWN[model]: _curves(rows, figure) for model, rows in by_model(series["points"]).items()}
        lines(panels, folder / files[figure], xlabel="dim", ylabel=name, columns=3)
    shown = _why(series["points"])
    lines(shown, folder / files["why"], xlabel="MRR of recollected start and end times", ylabel="AUPRC", xlim=(0, 1.02))
    recipe = settings["episodic"]
    return "\n\n".join(
        [
            f"## {data}",
            f"{series['triples']:,} triples of {sizes['entity']:,} entities × {sizes['predicate']} predicates × "
            f"{sizes['time']:,} times, {series['current']:,} of which hold at the last; "
            f"{settings['repetitions']} × a sample of {settings['sample']:.0%} of them (mean ± deviation). "
            f"{recipe['epochs']} epochs of the ranking loss. The tensors themselves, reconstructed without error, have "
            f"AUPRC {number(exact['start'])} by Start and {number(exact['start-end'])} by Start-End.",
            f"![AUPRC against dim]({files['auprc']})",
            f"![recall against dim]({files['recall']})",
            "### Why: a sum needs θ itself, not its order",
            f"![AUPRC of Start-End against reconstruction]({files['why']})",
            "A curve is a model at growing dim. The ranking loss learns the order of θ: a model may recollect every "
            "start and end, and the sum over times still tells nothing. Where θ is tied to 0 and 1, what holds follows "
            "as well as the times are reconstructed.",
            markdown_table(
                ["", "dim", "times: loss", "solved", "Start: loss", "solved", "Start-End: loss", "solved", "semantic"],
                _rows(series["points"]),
            ),
            "The first two columns are the filtered MRR of the times of starts and ends, averaged; the others AUPRC.",
            f"### Hits@10 at dim {settings['dims'][-1]}, filtered / raw, in percent",
            markdown_table(["", *(HITS_SHOWN[name] for name in HITS_SHOWN)], _hits(series)),
            "A row of the paper's table, then ours by the ranking loss and in closed form. Subjects and objects "
            "together; the filter leaves out the other triples of the same kind, genuine or false.",
        ]
    )


HITS_SHOWN = {
    "start": "Start",
    "start-end": "Start-End",
    "start false": "Start (false)",
    "start-end false": "Start-End (false)",
    "semantic": "Semantic",
}


def _at_rank(rows: Sequence[dict[str, Any]]) -> dict[int, list[dict[str, Any]]]:
    return {dim: [row for row in rows if row["dim"] == dim] for dim in dict.fromkeys(row["dim"] for row in rows)}


def _curves(rows: Sequence[dict[str, Any]], figure: str) -> list[Line]:
    """Five curves against dim: both projections by both ways, and the semantic model."""

    def curve(name: str, colour: int, dashed: bool, pick: Callable[[dict[str, Any]], float]) -> Line:
        values = [[pick(row) for row in some] for some in _at_rank(rows).values()]
        spread = [stdev(some) for some in values] if len(values[0]) > 1 else None
        return Line(name, list(_at_rank(rows)), [fmean(some) for some in values], spread, dashed, colour)

    made = [curve("Semantic", 6, False, lambda row: row["semantic"][figure])]
    for colour, (kind, shown) in enumerate(KINDS.items()):
        for way, told in WAYS.items():
            pick = partial(_pick, way=way, kind=kind, figure=figure)
            made.append(curve(f"{shown}, {told}", colour, way == "paper", pick))
    return made


def _pick(row: dict[str, Any], *, way: str, kind: str, figure: str) -> float:
    value: float = row[way][kind][figure]
    return value


def _reconstruction(row: dict[str, Any], way: str) -> float:
    return fmean(row[way][f"{name} time mrr"] for name in ("starts", "ends"))


def _why(points: Sequence[dict[str, Any]]) -> dict[str, list[Line]]:
    """AUPRC of Start-End against reconstruction, a curve a model through its dims."""
    panels: dict[str, list[Line]] = {told: [] for told in WAYS.values()}
    for way, told in WAYS.items():
        for i, (model, rows) in enumerate(by_model(points).items()):
            dims = _at_rank(rows).values()
            x = [fmean(_reconstruction(row, way) for row in some) for some in dims]
            y = [fmean(_pick(row, way=way, kind="start-end", figure="auprc") for row in some) for some in dims]
            panels[told].append(Line(SHOWN[model], x, y, colour=i))
    return panels


def _rows(points: Sequence[dict[str, Any]]) -> list[list[Any]]:
    rows: list[list[Any]] = []
    for model, some in by_model(points).items():
        for dim, same in _at_rank(some).items():
            cells = [mean_and_spread([_reconstruction(row, way) for row in same]) for way in WAYS]
            for kind in KINDS:
                for way in WAYS:
                    cells.append(mean_and_spread([row[way][kind]["auprc"] for row in same]))
            rows.append([SHOWN[model], dim, *cells, mean_and_spread([row["semantic"]["auprc"] for row in same])])
    return rows


def _hits(series: dict[str, Any]) -> list[list[str]]:
    rows = []
    for model, some in by_model(series["points"]).items():
        same = _at_rank(some)[series["settings"]["dims"][-1]]
        paper = PROJECTION[model]
        rows.append(
            [f"{SHOWN[model]}, paper", *(f"{a:.1f} / {b:.1f}" for a, b in (paper[name] for name in HITS_SHOWN))]
        )
        for way, told in WAYS.items():
            cells = []
            for name in HITS_SHOWN:
                kind, _, false = name.partition(" ")
                found = [row["semantic"] if kind == "semantic" else row[way][kind] for row in same]
                suffix = f" {false}" if false else ""
                both = (100 * fmean(one[f"{setting}{suffix}"] for one in found) for setting in ("filtered", "raw"))
                cells.append(" / ".join(f"{value:.1f}" for value in both))
            rows.append([f"**{SHOWN[model]}, {told}**", *cells])
    return rows
