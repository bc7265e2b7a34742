"""What models cost: the parameter table, formulas and counts; seconds per epoch beside the paper's GPU."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.bench import PAPER as RUNTIME
from benchmarks.contests import two_negatives_recipe
from benchmarks.shapes import GDELT, graph_of

from paper.lab import Lab
from paper.pages import markdown_table
from paper.paper import SHOWN
from recollect.graph.seeds import seeded
from recollect.io.datasets import DATASETS
from recollect.models.tensor_model import MODELS, Dims
from recollect.training.trainer import Epoch, Step, Trainer

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
RANKS = (40, 60, 150)


def run_parameters(lab: Lab) -> dict[str, Any]:
    """The counts of every model on every dataset whose sizes are known, at the paper's dims."""
    shapes = dict(PAPER_SHAPES)
    dims = lab.dims or RANKS
    if lab.data:
        shapes = {lab.data: lab.graph(lab.data).sizes}
    elif not lab.quick:
        for name, entry in DATASETS.items():
            if entry.sizes is not None:
                shapes[name] = dict(zip(("entity", "predicate", "time"), entry.sizes, strict=True))
    rows = [
        {
            "data": data,
            "model": model,
            "form": form,
            "dim": dim,
            "parameters": kind.parameter_count(sizes, dim, form),
        }
        for data, sizes in shapes.items()
        for model, kind in MODELS.items()
        for form in ("semantic", "episodic")
        if form in FORMULAS[model]  # the paper has no semantic Tree or ConT
        for dim in dims
    ]
    return {"shapes": shapes, "dims": dims, "rows": rows}


def page_parameters(found: dict[str, Any], _folder: Path) -> str:
    formulas = [
        [SHOWN[m], formulas.get("semantic", "–"), formulas.get("episodic", "–"), COMPLEXITY[m]]
        for m, formulas in FORMULAS.items()
    ]
    parts = [
        "How many numbers a model learns: r is the dim of entities and predicates, r_t that of times, N_e, N_p and "
        "N_t how many there are. The paper prints HolE's episodic count without N_t; a_t is learned, so it belongs "
        "there.",
        markdown_table(["", "semantic", "episodic", "cost of a score"], formulas),
    ]
    for data, sizes in found["shapes"].items():
        counts = {(r["model"], r["form"], r["dim"]): r["parameters"] for r in found["rows"] if r["data"] == data}
        rows = [
            [f"{SHOWN[model]}, {form}", *(f"{counts[model, form, dim]:,}" for dim in found["dims"])]
            for model, form in dict.fromkeys((m, f) for m, f, _ in counts)
        ]
        parts += [
            f"## {data}: {sizes['entity']:,} × {sizes['predicate']:,} × {sizes['time']:,}",
            markdown_table(["", *(f"dim {dim}" for dim in found["dims"])], rows),
        ]
    return "\n\n".join(parts)


def run_runtime(lab: Lab) -> dict[str, Any]:
    """One epoch of every model and dim on as many facts as the paper's GDELT, two corruptions each."""
    shape = GDELT.tiny() if lab.quick else GDELT
    timed = {model: tuple(4 if lab.quick else dim for dim in dims) for model, dims in RUNTIME.items()}
    lab.expected = sum(map(len, timed.values()))
    graph = graph_of(shape)
    rows = []
    for model, dims in timed.items():
        for paper_rank, dim in zip(RUNTIME[model], dims, strict=True):
            told = {"model": model, "dim": dim, "paper": paper_rank, "sizes": shape.sizes, "facts": shape.facts}
            work = partial(_epoch, graph.split("train"), shape.sizes, model, dim, shape.batch_size)
            found = lab.once(f"{model} dim {paper_rank}", told, work)
            rows.append({"model": model, "dim": paper_rank, "paper": RUNTIME[model][paper_rank], **found})
    about = {"sizes": shape.sizes, "facts": shape.facts, "batch_size": shape.batch_size}
    return {**about, "rows": rows}


def _epoch(facts: Any, sizes: Mapping[str, int], model: str, dim: int, batch_size: int) -> dict[str, float]:
    """Seconds of an epoch, after a few steps that compile and fill caches."""
    generator = seeded(0)
    learner = MODELS[model](sizes, Dims.of(dim), generator=generator)
    recipe = replace(two_negatives_recipe(batch_size), epochs=2)
    warm = iter(Trainer(learner, facts, recipe, generator=generator))
    for _ in range(3):
        next(warm)
    training = Trainer(learner, facts, recipe, generator=generator)
    began = time.perf_counter()
    for record in training:
        if isinstance(record, Epoch):
            break
        assert isinstance(record, Step)
    return {"epoch_s": time.perf_counter() - began}


def page_runtime(found: dict[str, Any], _folder: Path) -> str:
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
            f"Seconds for one training epoch over {found['facts']:,} facts of {sizes['entity']:,} entities × "
            f"{sizes['predicate']} predicates × {sizes['time']} times, two corruptions a fact, in batches of "
            f"{found['batch_size']:,}: the paper's on a Tesla K80, ours on the processor's cores. The facts are drawn "
            "with the skew of real events; one epoch of each was timed, so take a figure for good to a third or so.",
            markdown_table(["", "dim", "paper", "ours", "times faster"], rows),
            "[What things cost](../performance.md) has medians, references and bounds.",
        ]
    )
