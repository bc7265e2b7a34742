"""One training run by several processes: every process iterates it, and the first one has the result."""

from __future__ import annotations

import math
import os
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from recollect.graph.facts import EpisodicGraph, Facts
from recollect.graph.free_memory import free_memory
from recollect.io.checkpoint import SHARDS, read_checkpoint, remove_shards, write_checkpoint, write_shard
from recollect.models.config import ModelConfig
from recollect.models.parameters import STATIC, parameter_shapes
from recollect.models.tensor_model import TensorModel
from recollect.models.zoo import parse_model
from recollect.training.distributed.processes import Processes
from recollect.training.distributed.trainer import DistributedTrainer, empty_model
from recollect.training.distributed.validation import SharedValidation
from recollect.training.run import WEIGHT_COPIES, TrainingRun, check_fits
from recollect.training.validation import Validation


class DistributedRun(TrainingRun):
    """Train a model on a graph together with other processes; its checkpoints and result are those of a `TrainingRun`.

    Start the program by torchrun, create the same run in every process and iterate it to its end.
    """

    trainer: DistributedTrainer

    def __init__(
        self, graph: EpisodicGraph, config: ModelConfig, *, processes: Processes, shard: bool = False, **options: Any
    ) -> None:
        """`options` are those of a `TrainingRun`; `shard` shards entities and predicates by row."""
        self.processes, self.shard = processes, shard
        super().__init__(graph, config, **options)

    def _check_fits(self, config: ModelConfig) -> None:
        """Raise UserError if a process's part of the model does not fit; shard entities if all of them do not."""
        local = int(os.environ.get("LOCAL_WORLD_SIZE", self.processes.count))
        free, sizes, count = free_memory() // local, self.graph.sizes, self.processes.count
        self.shard = self.shard or held_bytes(config, sizes, count, shard=False) > free
        held = held_bytes(config, sizes, count, shard=self.shard)
        check_fits(config, sizes, self.recipe, is_mapped=self.is_mapped, held=held, free=free)

    def _build_model(self, config: ModelConfig, device: torch.device, generator: torch.Generator) -> TensorModel:
        return empty_model(config, self.graph.sizes, device)

    def _build_trainer(self, train: Facts, valid: Facts | None, generator: torch.Generator) -> DistributedTrainer:
        trainer = DistributedTrainer(
            self.model,
            train,
            self.recipe,
            processes=self.processes,
            generator=generator,
            shard=self.shard,
            tables=self.tables,
        )
        if valid is not None:
            validation = Validation(self.model, valid, Facts.concat([train, valid]))
            trainer.validate = SharedValidation(validation, valid, trainer).mrr
        return trainer

    def save_checkpoint(self, path: Path) -> None:
        """Write a checkpoint that any number of processes can continue; rows that have an owner are in its shards."""
        tensors, training = self.trainer.state()
        sharded = self.trainer.sharded
        token = self.processes.by_first(lambda: uuid.uuid4().hex[:8])
        names = [f"{path.name}.shard-{token}-{rank}" for rank in range(self.processes.count)] if sharded else []
        whole, own = {}, {}
        for key, value in tensors.items():
            placement = sharded.get(key.rpartition(".")[2])
            if placement is None:
                whole[key] = value
            else:
                own[key] = value[placement.local(placement.owned_by(self.processes.rank))]
        if sharded:
            rows = {name: placement.owned_by(self.processes.rank) for name, placement in sharded.items()}
            write_shard(path, names[self.processes.rank], own, rows)
        self.processes.wait()
        if self.processes.is_first:
            sizes = {name: len(getattr(self.model, name)) for name in sharded}
            shards = [{"file": name, "rows": sizes} for name in names]
            description = self._description(training)
            write_checkpoint(path, whole, description | ({SHARDS: shards} if shards else {}))
            remove_shards(path, kept=names)
        self.processes.wait()

    def _read_checkpoint(self, path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
        held = {name: placement.held for name, placement in self.trainer.sharded.items()}
        return read_checkpoint(path, held)


def held_bytes(config: ModelConfig, sizes: Mapping[str, int], processes: int, *, shard: bool) -> int:
    """Return the bytes of the weights that one of several processes holds, and of their copies while training."""
    kind, elements = parse_model(config.model), 0
    equation = kind.episodic if config.form == "episodic" else kind.semantic
    sharded = {"entity", "predicate"} if shard else set()
    if equation is not None and equation.order("t") > 1:
        sharded.add("time")
    for name, shape in parameter_shapes(kind, config, sizes).items():
        parts = processes if name.removeprefix(STATIC) in sharded else 1
        elements += -(-math.prod(shape) // parts)
    return WEIGHT_COPIES * elements * config.torch_dtype.itemsize
