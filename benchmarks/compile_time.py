"""CPU seconds that compiling the kernels of all models costs: `python -m benchmarks.compile_time`."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile

import torch

from recollect import Facts
from recollect.engine import OPTIMIZERS, RowOptimizer, rank_counts
from recollect.models.config import ModelConfig
from recollect.models.zoo import MODELS, build_model

SIZES = {"entity": 50, "predicate": 4, "time": 6}
COLUMNS = ("entity", "predicate", "entity", "time")
COUNT = 200  # facts


def use_all_kernels() -> list[float]:
    """Score, train and rank with every model in float32; return the sum of each model's scores."""
    g = torch.Generator().manual_seed(0)
    facts = Facts.from_columns(*(torch.randint(SIZES[kind], (COUNT,), generator=g) for kind in COLUMNS))
    negatives = {slot: torch.randint(SIZES["entity"], (COUNT, 1), generator=g) for slot in "so"}
    sums = []
    for number, (name, model_class) in enumerate(MODELS.items()):
        form = "episodic" if model_class.has_form("episodic") else "semantic"
        model = build_model(ModelConfig(model=name, dim=8, form=form), SIZES, generator=g)
        parameters = dict(model.named_parameters())
        kind = OPTIMIZERS[number % len(OPTIMIZERS)]
        optimizer = RowOptimizer(kind, parameters, lr=0.1, decay=0.0, lazy=frozenset())
        true, false = model.score_with_negatives(facts, negatives)
        (false.sum() - true.sum() + model.score(facts).square().sum()).backward()
        optimizer.step({key: (None, x.grad) for key, x in parameters.items() if x.grad is not None})
        with torch.no_grad():
            scores = model.score_against(facts, "o")
            none = torch.zeros_like(facts.o)
            rank_counts(scores, facts.o, none, none, none)
        sums.append(float(scores.double().sum()))
    return sums


def cpu_seconds(cache: str) -> float:
    """Return the CPU time of a new process that uses all kernels with a cache folder."""
    script = "from benchmarks.compile_time import use_all_kernels; use_all_kernels()"
    before = os.times()
    subprocess.run([sys.executable, "-c", script], check=True, env=os.environ | {"NUMBA_CACHE_DIR": cache})
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


def main() -> None:
    with tempfile.TemporaryDirectory() as cache:
        cold = cpu_seconds(cache)
        warm = cpu_seconds(cache)
    sys.stdout.write(f"cold {cold:.1f} s, cached {warm:.1f} s, compilation {cold - warm:.1f} s of CPU\n")


if __name__ == "__main__":
    main()
