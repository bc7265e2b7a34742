"""When facts held: intervals predicted from the scores of single times, on data with start and end."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
import torch
from torch import Tensor

from paper.markdown import markdown_table, percent
from paper.workspace import Workspace
from recollect import EpisodicGraph, Facts
from recollect.evaluation.baselines import Baseline
from recollect.evaluation.intervals import METRICS, fit_intervals, interval_metrics
from recollect.evaluation.ranking import Scorer
from recollect.graph.episodes import runs
from recollect.history.history import History
from recollect.io.datasets import find_dataset
from recollect.io.datasets.download import fetch
from recollect.io.datasets.readers import interval_rows

DATA = "wikidata12k"
PUBLISHED = 0.2636  # TIMEPLEX, aeIOU@1
ROWS = {"recency": "recency, no model", "history": "history"}


def run(workspace: Workspace) -> dict[str, Any]:
    """Fit on train, choose thresholds on valid, and evaluate once on test."""
    data = workspace.data or ("world" if workspace.quick else DATA)
    graph = workspace.graph(data)
    workspace.expected = len(ROWS)
    rows = [workspace.cached(kind, {"data": data, "kind": kind}, partial(_row, graph, kind)) for kind in ROWS]
    return {"data": data, "published": PUBLISHED if data == DATA else None, "rows": rows}


def _row(graph: EpisodicGraph, kind: str) -> dict[str, Any]:
    train = graph.split("train")
    scorer: Scorer
    if kind == "history":
        scorer = History.fit(train, graph.sizes, asked="t")
    else:
        scorer = _Logarithm(Baseline(train, graph.sizes, decay=1.0))
    facts, true = true_intervals(graph, "valid")
    predictor = fit_intervals(scorer.score_against(facts, "t"), facts.p, true)
    found: dict[str, Any] = {"kind": kind, "figures": {}, "intervals": {}}
    for split in ("valid", "test"):
        facts, true = true_intervals(graph, split)
        predicted = predictor.predict(scorer.score_against(facts, "t"), facts.p)
        found["figures"][split], found["intervals"][split] = interval_metrics(true, predicted), len(facts)
    return found


class _Logarithm:
    """The logarithm of a scorer whose scores are positive counts."""

    def __init__(self, scorer: Scorer) -> None:
        self.scorer = scorer

    def score(self, facts: Facts) -> Tensor:
        return self.scorer.score(facts).clamp(min=1e-12).log()

    def score_against(self, facts: Facts, slot: str, candidates: Tensor | None = None) -> Tensor:
        return self.scorer.score_against(facts, slot, candidates).clamp(min=1e-12).log()


def true_intervals(graph: EpisodicGraph, split: str) -> tuple[Facts, Tensor]:
    """Return the facts (s, p, o, first time) and intervals (n, 2) of a split.

    For wikidata12k these are the rows with a known start and end, as Jain et al. evaluate; else the runs of the split.
    """
    if graph.name != DATA:
        found = runs(graph.with_splits({split: graph.split(split)}))
        return found.first, torch.stack([found.first.t, found.last], dim=1)
    paths = {role: fetch(file) for role, file in find_dataset(DATA).files.items()}
    rows = interval_rows(paths, split).drop_nulls().filter(pl.col("start") <= pl.col("end"))
    first, last = (rows[column].cast(pl.Int64).to_torch() - graph.times.first for column in ("start", "end"))
    s, p, o = graph.entities.ids(rows["subject"]), graph.predicates.ids(rows["predicate"]), rows["object"]
    return Facts.from_columns(s, p, graph.entities.ids(o), first), torch.stack([first, last], dim=1)


def page(found: dict[str, Any], _folder: Path) -> str:
    """Return the page: one line per scorer."""
    head = ["", *(f"valid {name}" for name in METRICS), *(f"test {name}" for name in METRICS)]
    lines = []
    for row in found["rows"]:
        figures = [row["figures"][split][name] for split in ("valid", "test") for name in METRICS]
        lines.append([ROWS[row["kind"]], *(percent(value, 2) for value in figures)])
    counts = found["rows"][0]["intervals"]
    parts = [
        f"aeIOU@1, gIOU@1 and TAC@1 in percent of `{found['data']}`: {counts['valid']:,} validation and "
        f"{counts['test']:,} test intervals whose start and end are known. The scorer, fitted to the train split, "
        "scores every time for the triple; the interval grows from the most probable time until it holds the mass "
        "that was best for its predicate on the validation split (so the validation figures are optimistic). Every "
        "row was evaluated once on the test split.",
        markdown_table(head, lines),
    ]
    if found["published"]:
        parts.append(f"Published test aeIOU@1: TIMEPLEX {percent(found['published'], 2)} (Jain et al. 2020).")
    return "\n\n".join(parts)
