"""One training run by several processes: every process iterates it, and the first one has the result."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from recollect.graph.facts import EpisodicGraph, Facts
from recollect.models.config import ModelConfig
from recollect.models.tensor_model import TensorModel
from recollect.training.distributed.processes import Processes
from recollect.training.distributed.trainer import DistributedTrainer, empty_model
from recollect.training.distributed.validation import SharedValidation
from recollect.training.run import TrainingRun


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
        self._validation = None if self.valid is None else SharedValidation(self.valid, self.known, self.trainer)

    def _build_model(self, config: ModelConfig, device: torch.device, generator: torch.Generator) -> TensorModel:
        return empty_model(config, self.graph.sizes, device)

    def _build_trainer(
        self, train: Facts, generator: torch.Generator, validate: Callable[[], float] | None
    ) -> DistributedTrainer:
        return DistributedTrainer(
            self.model,
            train,
            self.recipe,
            processes=self.processes,
            generator=generator,
            validate=validate,
            shard=self.shard,
        )

    def _validate(self) -> float:
        assert self._validation is not None
        return self._validation.mrr()
