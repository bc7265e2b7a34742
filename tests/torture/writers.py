"""Processes that replace one memory and one exported graph, and processes that read them meanwhile.

`python -m torture.writers PATH SECONDS write NUMBER` saves a memory whose weights, name and seed are all NUMBER, and a
graph of that name, again and again. `python -m torture.writers PATH SECONDS read` loads both and compares the parts.
Both print as JSON how often they did it, and every error.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from recollect import Memory, ModelConfig, dataset, load, read, write_graph
from recollect.evaluation.calibration import UNCALIBRATED
from recollect.graph.seeds import seeded
from recollect.memory.answering.scorer import MemoryScorer
from recollect.models.zoo import build_model


def numbered_memory(number: int) -> Memory:
    """Return a memory in which everything that can be is `number`."""
    graph = replace(dataset("world", countries=4, years=number), name=str(number))
    model = build_model(ModelConfig(model="distmult", dim=number), graph.sizes, generator=seeded(0))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(float(number))
    return Memory(MemoryScorer((model,), None, {}), graph, UNCALIBRATED, {"seed": number})


def write(folder: Path, memory: Memory) -> None:
    memory.save(folder / "m", overwrite=True)
    write_graph(memory.graph, folder / "g", "tsv", overwrite=True)


def check(folder: Path) -> None:
    """Load both and raise AssertionError unless each is of one number only."""
    memory = load(folder / "m").snapshot()  # a memory itself follows what others write
    number = memory.about["seed"]
    (model,) = memory.scorer.models
    weights = {float(value) for parameter in model.parameters() for value in parameter.flatten().tolist()}
    parts = (weights, memory.graph.name, model.config.dim, len(memory.graph.times))
    if parts != ({float(number)}, str(number), number, 12 * number):
        raise AssertionError(f"a memory of {number} has {parts}")
    graph = read(folder / "g")
    if len(graph.times) != 12 * int(graph.name):
        raise AssertionError(f"a graph of {graph.name} has {len(graph.times)} times")


def repeat(seconds: float, act: Any) -> dict[str, Any]:
    """Call a function until the time is over; count the calls and the errors."""
    calls, errors, stop = 0, Counter(), time.monotonic() + seconds
    while time.monotonic() < stop:
        calls += 1
        try:
            act()
        except Exception as error:
            errors[f"{type(error).__name__}: {error}"[:300]] += 1
    return {"calls": calls, "errors": errors}


if __name__ == "__main__":
    folder, seconds, task, *number = sys.argv[1:]
    if task == "write":
        memory = numbered_memory(int(number[0]))
        result = repeat(float(seconds), lambda: write(Path(folder), memory))
    else:
        result = repeat(float(seconds), lambda: check(Path(folder)))
    print(json.dumps(result))  # noqa: T201
