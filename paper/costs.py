"""Costs of models: the table of parameter counts, and seconds per epoch next to the paper's."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.shapes import GDELT, graph_of
from paper.markdown import by_model, markdown_table, number
from paper.printed import RUNTIME, SHOWN
from paper.workspace import Workspace
from recollect import MODELS, RECIPES, EpisodicGraph, ModelConfig, TrainingRun
from recollect.io.datasets import DATASETS
from recollect.models.zoo import parameter_count
from recollect.training.trainer import Epoch

# the paper's table, with the N_t that its HolE lacks
FORMULAS = {
    "distmult": {"semantic": "(N_e + N_p + 1) r", "episodic": "(N_e + N_p + N_t + 1) r"},
    "hole": {"semantic": "(N_e + N_p) r", "episodic": "(N_e + N_p + N_t) r"},
    "complex": {"semantic": "2 (N_e + N_p) r", "episodic": "2 (N_e + N_p + N_t) r"},
    "rescal": {"semantic": "N_e r + N_p r²"},
    "tree": {"episodic": "N_e r + N_p r² + (N_t + 2 r²) r_t"},
    "cont": {"episodic": "(N_e + N_p) r + N_t r³"},
    "tucker": {"semantic": "(N_e + N_p) r + r³", "episodic": "(N_e + N_p) r + (N_t + r³) r_t"},
}
COMPLEXITY = {
    "distmult": "O(r)",
    "hole": "O(r log r)",
    "complex": "O(r)",
    "rescal": "O(r²)",
    "tree": "O(r³)",
    "cont": "O(r³)",
    "tucker": "O(r⁴)",
}
PAPER_SHAPES = {
    "the paper's ICEWS": {"entity": 258, "predicate": 20, "time": 72},
    "the paper's GDELT": {"entity": 1100, "predicate": 180, "time": 366},
}
DIMS = (40, 60, 150)
WARM_STEPS = 3  # before an epoch is timed: they compile and fill caches
QUICK_DIM = 4


def run_parameters(workspace: Workspace) -> dict[str, Any]:
    """Count the parameters of every model on every dataset whose sizes are known, at the paper's dims."""
    if workspace.data:
        shapes = {workspace.data: workspace.graph(workspace.data).sizes}
    else:
        shapes = dict(PAPER_SHAPES)
        if not workspace.quick:
            shapes |= _dataset_shapes()
    dims = workspace.dims or DIMS
    rows = []
    for data, sizes in shapes.items():
        for model, form, dim in _models_of_the_table(dims):
            count = parameter_count(ModelConfig(model=model, dim=dim, form=form), sizes)
            rows.append({"data": data, "model": model, "form": form, "dim": dim, "parameters": count})
    return {"shapes": shapes, "dims": dims, "rows": rows}


def _dataset_shapes() -> dict[str, dict[str, int]]:
    """Return the sizes of the datasets that are known without reading them."""
    kinds = ("entity", "predicate", "time")
    return {
        name: dict(zip(kinds, entry.sizes, strict=True)) for name, entry in DATASETS.items() if entry.sizes is not None
    }


def _models_of_the_table(dims: tuple[int, ...]) -> Iterator[tuple[str, str, int]]:
    """Yield (model, form, dim) of every count; the paper has no semantic Tree or ConT."""
    for model in MODELS:
        for form in ("semantic", "episodic"):
            if form in FORMULAS[model]:
                for dim in dims:
                    yield model, form, dim


def page_parameters(found: dict[str, Any], _folder: Path) -> str:
    """Return the page: formulas, then one table of counts per dataset."""
    formulas = [
        [SHOWN[model], forms.get("semantic", "–"), forms.get("episodic", "–"), COMPLEXITY[model]]
        for model, forms in FORMULAS.items()
    ]
    parts = [
        "The number of parameters of a model: r is the embedding size (dim) of entities and predicates, r_t that of "
        "times, N_e, N_p and N_t are the numbers of entities, predicates and times. The paper prints HolE's episodic "
        "count without N_t; a_t is learned, so it belongs there.",
        markdown_table(["", "semantic", "episodic", "cost of a score"], formulas),
    ]
    for data, sizes in found["shapes"].items():
        counts = {
            (row["model"], row["form"], row["dim"]): row["parameters"] for row in found["rows"] if row["data"] == data
        }
        rows = [
            [f"{SHOWN[model]}, {form}", *(f"{counts[model, form, dim]:,}" for dim in found["dims"])]
            for model, form in dict.fromkeys((model, form) for model, form, _ in counts)
        ]
        parts += [
            f"## {data}: {sizes['entity']:,} × {sizes['predicate']:,} × {sizes['time']:,}",
            markdown_table(["", *(f"dim {dim}" for dim in found["dims"])], rows),
        ]
    return "\n\n".join(parts)


def run_runtime(workspace: Workspace) -> dict[str, Any]:
    """Time one epoch of every model and dim on as many facts as the paper's GDELT, two negatives each."""
    shape = GDELT.tiny() if workspace.quick else GDELT
    graph = graph_of(shape)
    workspace.expected = sum(len(dims) for dims in RUNTIME.values())
    rows = []
    for model, paper_seconds in RUNTIME.items():
        for dim, paper in paper_seconds.items():
            config = ModelConfig(model=model, dim=QUICK_DIM if workspace.quick else dim)
            settings = {"model": model, "dim": config.dim, "paper": dim, "sizes": shape.sizes, "facts": shape.facts}
            work = partial(time_epoch, graph, config, shape.batch_size)
            found = workspace.cached(f"{model} dim {dim}", settings, work)
            rows.append({"model": model, "dim": dim, "paper": paper, **found})
    return {"sizes": shape.sizes, "facts": shape.facts, "batch_size": shape.batch_size, "rows": rows}


def time_epoch(graph: EpisodicGraph, config: ModelConfig, batch_size: int) -> Mapping[str, float]:
    """Return the seconds of one epoch with the paper's recipe, after a few steps that are not timed."""
    graph = graph.with_splits({"train": graph.split("train")})
    recipe = replace(RECIPES["paper"], batch_size=batch_size, epochs=2)
    warm = iter(TrainingRun(graph, config, recipe=recipe))
    for _ in range(WARM_STEPS):
        next(warm)
    run = TrainingRun(graph, config, recipe=recipe)
    start = time.perf_counter()
    for record in run:
        if isinstance(record, Epoch):
            break
    return {"epoch_s": time.perf_counter() - start}


def page_runtime(found: dict[str, Any], _folder: Path) -> str:
    """Return the page: the paper's seconds, ours, and their ratio."""
    rows = [
        [
            SHOWN[row["model"]],
            row["dim"],
            f"{row['paper']:.1f} s",
            f"**{row['epoch_s']:.1f} s**",
            f"{row['paper'] / row['epoch_s']:.1f}×",
        ]
        for row in found["rows"]
    ]
    sizes = found["sizes"]
    return "\n\n".join(
        [
            f"Seconds of one training epoch over {found['facts']:,} facts of {sizes['entity']:,} entities × "
            f"{sizes['predicate']} predicates × {sizes['time']} times, two negatives per fact, in batches of "
            f"{found['batch_size']:,}: the paper's on a Tesla K80, ours on the processor's cores. The facts are random "
            "with the skew of real events. One epoch of each was timed, so a figure is good to about a third.",
            markdown_table(["", "dim", "paper", "ours", "times faster"], rows),
            "[Performance](../performance.md) has medians, references and bounds.",
        ]
    )


def runtime_summary(found: dict[str, Any]) -> str:
    """Return the measured seconds in one line: the entry of docs/paper.md, which a test compares with it."""
    seconds = []
    for model, rows in by_model(found["rows"]).items():
        seconds.append(f"{SHOWN[model]} {' / '.join(number(row['epoch_s'], 1) for row in rows)}")
    ratios = [row["paper"] / row["epoch_s"] for row in found["rows"]]
    return f"{', '.join(seconds)} s; {min(ratios):.0f} to {max(ratios):.0f} times faster than the paper's GPU"


def runtime_growth(found: dict[str, Any]) -> str:
    """Return by how much the seconds of the tensor models grow from dim 40 to 60: the entry of docs/paper.md."""
    growth = []
    for model in ("tree", "cont", "tucker"):
        seconds = {row["dim"]: row["epoch_s"] for row in found["rows"] if row["model"] == model}
        growth.append(f"{SHOWN[model]} {seconds[60] / seconds[40]:.1f}")
    return f"dim 40 to 60: {', '.join(growth)} times"
