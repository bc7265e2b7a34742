"""One process of a measured training: `python -m benchmarks.ranks.worker TASK FOLDER` writes FOLDER/RANK.json."""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from recollect import Facts, dataset
from recollect.engine import MappedTables, Tables
from recollect.graph.seeds import seeded
from recollect.models.config import ModelConfig
from recollect.models.zoo import build_model
from recollect.training.auto import resolve_config
from recollect.training.distributed.processes import Processes, joined_processes
from recollect.training.distributed.run import DistributedRun
from recollect.training.distributed.trainer import DistributedTrainer, empty_model
from recollect.training.recipe import RECIPES, Recipe
from recollect.training.run import TrainingRun
from recollect.training.trainer import Step, Trainer


def main() -> None:
    """Run the task in this process, together with the others that have the variables of torchrun."""
    task, folder = json.loads(sys.argv[1]), Path(sys.argv[2])
    torch.set_num_threads(1)
    with joined_processes() as processes:
        recipe = replace(RECIPES[task["recipe"]], **task.get("settings", {}))
        if "sizes" in task:
            report = train(task, processes, random_trainer(task, recipe, processes), None)
        else:
            run = dataset_run(task, recipe, processes)
            report = train(task, processes, run.trainer, run)
        (folder / f"{processes.rank}.json").write_text(json.dumps(report))


def dataset_run(task: dict[str, Any], recipe: Recipe, processes: Processes) -> TrainingRun:
    """Return a run on a dataset; what the task leaves open of its model is chosen as by the command line."""
    graph = dataset(task["data"])
    config, _ = resolve_config(graph, recipe, **task["model"])
    if processes.count == 1:
        return TrainingRun(graph, config, recipe=recipe)
    return DistributedRun(graph, config, recipe=recipe, processes=processes, shard=task.get("shard", False))


def random_trainer(task: dict[str, Any], recipe: Recipe, processes: Processes) -> Trainer:
    """Return a trainer on random facts: a graph of many entities has too many labels for a small memory."""
    sizes, generator = task["sizes"], seeded(0)
    ids = [torch.randint(sizes[kind], (task["facts"],), generator=generator) for kind in _KINDS]
    facts, config = Facts.from_columns(*ids), ModelConfig(**task["model"])
    if processes.count == 1:
        return Trainer(build_model(config, sizes, generator=generator), facts, recipe, generator=generator)
    model = empty_model(config, sizes)
    tables = MappedTables(Path(task["tables"])) if "tables" in task else Tables()
    return DistributedTrainer(
        model, facts, recipe, processes=processes, generator=generator, shard=task.get("shard", False), tables=tables
    )


_KINDS = ("entity", "predicate", "entity", "time")


def train(task: dict[str, Any], processes: Processes, trainer: Trainer, run: TrainingRun | None) -> dict[str, Any]:
    """Train for some steps or to the end; return losses, times, bytes and memory of this process."""
    checkpoint = Path(task["checkpoint"]) if "checkpoint" in task else None
    if run is not None and checkpoint is not None and checkpoint.exists():
        run.load_checkpoint_(checkpoint)
    first_order = trainer.order_state
    losses: list[float] = []
    mrr, seen, before = None, 0, 0.0
    start = cpu = 0.0
    network, sent = 0, {}
    for number, record in enumerate(trainer if run is None else run):
        if isinstance(record, Step):
            total = record.loss * record.seen
            losses.append((total - before) / (record.seen - seen))
            seen, before = record.seen, total
        else:
            mrr, seen, before = record.mrr, 0, 0.0
            if run is not None and checkpoint is not None:
                run.save_checkpoint(checkpoint)
        if number == task.get("warm_up", 0):  # the first steps compile
            start, cpu, network, sent = time.perf_counter(), time.process_time(), sent_bytes(), dict(processes.sent)
        _die_if_due(task, number, processes, checkpoint)
        if len(losses) == task.get("steps"):
            break
    return {
        "losses": losses,
        "mrr": mrr,
        "seconds": time.perf_counter() - start,
        "cpu_seconds": time.process_time() - cpu,
        "network_bytes": sent_bytes() - network,
        "sent": {name: count - sent.get(name, 0) for name, count in processes.sent.items()},
        "bound": entity_bound(trainer, first_order, task, processes) if task.get("shard") else None,
        "peak_bytes": 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
        "held_bytes": sum(table.nbytes for table in trainer.weights.values()),
        "whole_bytes": sum(weight.numel() * weight.itemsize for weight in trainer.model.parameters()),
        "digest": None if run is None or not trainer.finished else weight_digest(run, processes),
    }


def _die_if_due(task: dict[str, Any], number: int, processes: Processes, checkpoint: Path | None) -> None:
    """Kill the last process once, at the record that the task names."""
    if number != task.get("kill_at") or processes.rank != processes.count - 1:
        return
    assert checkpoint is not None
    mark = checkpoint.with_name("killed")
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)


def weight_digest(run: TrainingRun, processes: Processes) -> float | None:
    """Return the sum of all final weights, by which runs are compared; None but in the first process."""
    model, _ = run.result()
    if not processes.is_first:
        return None
    return float(sum(parameter.detach().double().sum() for parameter in model.parameters()))


def sent_bytes() -> int:
    """Return the bytes that this network namespace has sent by its interface eth0; 0 if there is none."""
    for line in Path("/proc/net/dev").read_text().splitlines():
        name, _, columns = line.partition(":")
        if name.strip() == "eth0":
            return int(columns.split()[8])
    return 0


def entity_bound(trainer: Trainer, order_state: torch.Tensor, task: dict[str, Any], processes: Processes) -> int:
    """Return the bytes that this process must send for sharded entities, by the batches after the first steps.

    Every distinct entity of a share that another process owns is received once and its gradient is sent once.
    """
    generator = torch.Generator()
    generator.set_state(order_state)
    order = trainer.sampler.draw_order(generator)
    model, rows = trainer.model, 0
    for number in range(task["steps"]):
        facts = model.normalize(trainer.sampler.batch(order, number))
        batch = trainer.objective.sample(model, facts, trainer.known, generator)
        if number <= task.get("warm_up", 0):
            continue
        for rank, chosen in enumerate(torch.arange(batch.count).tensor_split(processes.count)):
            share = batch.share(chosen)
            columns = [
                share.facts.s,
                share.facts.o,
                *(share.negatives[slot] for slot in "so" if slot in share.negatives),
            ]
            columns += [] if batch.entities is None else [batch.entities]
            owners = torch.cat([column.reshape(-1) for column in columns]).unique() % processes.count
            if rank == processes.rank:
                rows += int((owners != rank).sum())  # gradients to their owners
            else:
                rows += int((owners == processes.rank).sum())  # rows to those who need them
    return rows * model.row_size("s") * model.entity.itemsize


if __name__ == "__main__":
    main()
