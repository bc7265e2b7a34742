"""Run parts of a workload with one checkout of recollect, as a process that `benchmarks.compare` drives.

The process is started with PYTHONPATH pointing at the sources to measure. It imports nothing of this package, because
the other checkout may have none. Requests and replies are JSON lines on stdin and stdout:

    {"setup": {"task": "train", "model": "cont", "dim": 40, ...}}  ->  {"total": 251}
    {"run": 30}                                                    ->  {"wall": 0.31, "cpu": 0.58}

A unit is an optimizer step or one whole evaluation, and `total` the units of an epoch or an evaluation.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import gc
import importlib
import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

ENDLESS = 10**9  # epochs: training goes on as long as it is driven
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # parameters of mallopt(3)
KEPT_BYTES = 2**28  # freed memory that the allocator keeps, as in the `recollect` command


class Version01:
    """The names of version 0.1: flat modules, `Ranks`, `Learning`, `Known`."""

    facts_module, times_module = "recollect.facts", "recollect.times"

    def train(self, graph: Any, case: dict[str, Any], recipe_options: dict[str, Any]) -> Iterator[object]:
        """Return the training records of the paper's recipe with these options."""
        recipe = dataclasses.replace(self._import("recollect.recipes").RECIPES["paper"], **recipe_options)
        learning = self._import("recollect.learning").Learning
        return iter(learning(graph, model=case["model"], rank=case["dim"], form=case["form"], recipe=recipe))

    def build_model(self, graph: Any, case: dict[str, Any]) -> Any:
        """Return an untrained model."""
        models = self._import("recollect.models")
        kind, dims = models.MODELS[case["model"]], models.Ranks.of(case["dim"])
        return kind(graph.sizes, dims, form=case["form"], generator=torch.Generator().manual_seed(0))

    def ranker(self, graph: Any, model: Any, slot: str) -> Callable[[Any], object]:
        """Return a function that ranks a slot of facts, filtered by all facts of the graph."""
        known = self._import("recollect.known").Known(graph.facts, graph.sizes)
        rank = self._import("recollect.ranks").rank
        return lambda facts: rank(model, facts, slot, known=known)

    def _import(self, module: str) -> Any:
        return importlib.import_module(module)


class Version02(Version01):
    """The names since version 0.2: folders, `ModelConfig`, `TrainingRun`, `FactIndex`."""

    facts_module, times_module = "recollect.graph.facts", "recollect.graph.times"

    def train(self, graph: Any, case: dict[str, Any], recipe_options: dict[str, Any]) -> Iterator[object]:
        recollect = self._import("recollect")
        recipe = dataclasses.replace(recollect.RECIPES["paper"], **recipe_options)
        return iter(recollect.TrainingRun(graph, self._config(case), recipe=recipe))

    def build_model(self, graph: Any, case: dict[str, Any]) -> Any:
        build = self._import("recollect.models.zoo").build_model
        return build(self._config(case), graph.sizes, generator=torch.Generator().manual_seed(0))

    def ranker(self, graph: Any, model: Any, slot: str) -> Callable[[Any], object]:
        known = self._import("recollect.graph.fact_index").FactIndex(graph.facts, graph.sizes)
        rank = self._import("recollect.evaluation.ranking").rank
        return lambda facts: rank(model, facts, slot, known=known)

    def _config(self, case: dict[str, Any]) -> Any:
        config = self._import("recollect").ModelConfig
        return config(model=case["model"], dim=case["dim"], form=case["form"])


def installed_version() -> Version01:
    """Return the names of the recollect that this process imports."""
    package = importlib.import_module("recollect")
    return Version02() if hasattr(package, "ModelConfig") else Version01()


def build_graph(api: Version01, path: str) -> Any:
    """Return the graph whose fact ids and sizes were written to a .npz file."""
    facts_module = importlib.import_module(api.facts_module)
    time_axis = importlib.import_module(api.times_module).TimeAxis
    with np.load(path) as stored:
        train, test = (facts_module.Facts(torch.from_numpy(stored[split])) for split in ("train", "test"))
        entities, predicates, times = (int(size) for size in stored["sizes"])
    return facts_module.EpisodicGraph(
        entities=facts_module.Vocabulary("entity", tuple(f"e{i:06d}" for i in range(entities))),
        predicates=facts_module.Vocabulary("predicate", tuple(f"p{i:06d}" for i in range(predicates))),
        times=time_axis("ordinal", 0, times),
        splits={"train": train, "test": test},
    )


class Training:
    """Optimizer steps of an endless training; one unit is one step."""

    def __init__(self, api: Version01, graph: Any, case: dict[str, Any]) -> None:
        options = {"loss": case["loss"], "batch_size": case["batch_size"], "epochs": ENDLESS}
        self.records = api.train(graph, case, options)
        self.total = -(-len(graph.splits["train"]) // case["batch_size"])

    def run(self, steps: int) -> None:
        while steps:
            steps -= type(next(self.records)).__name__ == "Step"  # the others are records of epochs


class Evaluation:
    """Filtered ranking of one slot of all test facts; one unit is one such evaluation."""

    total = 1

    def __init__(self, api: Version01, graph: Any, case: dict[str, Any]) -> None:
        self.test = graph.splits["test"]
        self.rank = api.ranker(graph, api.build_model(graph, case), case["slot"])

    def run(self, evaluations: int) -> None:
        for _ in range(evaluations):
            self.rank(self.test)


TASKS: dict[str, type[Training] | type[Evaluation]] = {"train": Training, "evaluate": Evaluation}


def measure(run: Callable[[int], None], count: int) -> dict[str, float]:
    """Return wall and CPU seconds of `run(count)`; CPU time is that of all threads of this process."""
    wall, cpu = time.perf_counter(), time.process_time()
    run(count)
    return {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}


def keep_freed_memory() -> None:
    """Set the C allocator as the `recollect` command does, the same for every checkout."""
    with contextlib.suppress(OSError, AttributeError, TypeError):
        library = ctypes.CDLL(None)
        library.mallopt(M_MMAP_THRESHOLD, KEPT_BYTES)
        library.mallopt(M_TRIM_THRESHOLD, KEPT_BYTES)


def describe(tree: Path) -> dict[str, Any]:
    """Return what this process measures, after checking that it is the recollect of that source tree."""
    package = importlib.import_module("recollect")
    place = Path(str(package.__file__)).resolve()
    if not place.is_relative_to(tree.resolve()):
        raise SystemExit(f"imported {place}, which is not below {tree}")
    return {
        "threads": torch.get_num_threads(),
        "cpu": torch.backends.cpu.get_cpu_capability(),
        "torch": torch.__version__,
    }


def main() -> None:
    """Answer requests on stdin until it closes; the arguments are the source tree and the number of threads."""
    tree, threads = Path(sys.argv[1]), int(sys.argv[2])
    if threads:
        torch.set_num_threads(threads)
    keep_freed_memory()
    replies = sys.stdout
    sys.stdout = sys.stderr  # replies are the only lines on stdout
    replies.write(json.dumps(describe(tree)) + "\n")
    replies.flush()
    api, graphs, workload = installed_version(), {}, None
    for line in sys.stdin:
        request = json.loads(line)
        if "setup" in request:
            case = request["setup"]
            workload = None  # frees the last one before the next is built
            gc.collect()
            if case["facts"] not in graphs:
                graphs = {case["facts"]: build_graph(api, case["facts"])}
            workload = TASKS[case["task"]](api, graphs[case["facts"]], case)
            reply: dict[str, Any] = {"total": workload.total}
        else:
            assert workload is not None, "set up a workload first"
            reply = measure(workload.run, request["run"])
        replies.write(json.dumps(reply) + "\n")
        replies.flush()


if __name__ == "__main__":
    main()
