"""One training run from graph to memory: a model, its trainer and its validation.

Iterate it for training records, store and load a checkpoint at any of them, and take `result` at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import psutil
import torch
from torch import Tensor

from recollect.engine import max_query_elements
from recollect.errors import UserError, check_process
from recollect.evaluation.metrics import summarise
from recollect.evaluation.ranking import rank
from recollect.graph.fact_index import FactIndex
from recollect.graph.facts import KINDS, EpisodicGraph, Facts
from recollect.graph.seeds import seeded
from recollect.io.checkpoint import read_checkpoint, write_checkpoint
from recollect.models.config import ModelConfig
from recollect.models.parameters import equations_of, parameter_shapes, table_name
from recollect.models.tensor_model import TensorModel
from recollect.models.zoo import build_model, parameter_count, parse_model
from recollect.training.recipe import Recipe, parse_recipe
from recollect.training.trainer import Epoch, Step, Trainer

WEIGHT_COPIES = 5  # while training: weights, gradient, two Adam moments (or Adagrad's sum and the mean), best so far
BATCH_COPIES = 3  # of the intermediate tensors of a batch: values, gradients, temporaries


class TrainingRun:
    """Train a model on a graph; iterate for `Step` and `Epoch` records."""

    def __init__(
        self,
        graph: EpisodicGraph,
        config: ModelConfig,
        *,
        recipe: Recipe | str = "modern",
        seed: int = 0,
        device: str | torch.device = "cpu",
        initial: TensorModel | None = None,
    ) -> None:
        """Start from random weights, or from those of an `initial` model of the same config and sizes."""
        check_process()
        chosen = recipe if isinstance(recipe, Recipe) else parse_recipe(recipe)
        self.graph, self.seed, self.recipe = graph, seed, chosen.for_model(config.model)
        self._check_fits(config)  # before any memory is allocated
        self.history: list[Epoch] = []
        generator = seeded(seed)
        self.model = self._build_model(config, parse_device(device, config.torch_dtype), generator)
        if initial is not None:
            self.model.load_state_dict(initial.state_dict())
        train, valid = graph.split("train"), graph.splits.get("valid", Facts.of([])).true()
        if train.weight is not None and len(train) and not train.weight.any():
            raise UserError(
                "every training fact has weight 0, so there is nothing to learn; give some a weight above 0"
            )
        self.known = FactIndex(Facts.concat([train, valid]), graph.sizes)  # never the test split
        self.valid = valid if len(valid) else None
        validate = None if self.valid is None else self._validate
        self.trainer = self._build_trainer(train, generator, validate)

    def _check_fits(self, config: ModelConfig) -> None:
        check_fits(config, self.graph.sizes, self.recipe)

    def _build_model(self, config: ModelConfig, device: torch.device, generator: torch.Generator) -> TensorModel:
        return build_model(config, self.graph.sizes, device=device, generator=generator)

    def _build_trainer(self, train: Facts, generator: torch.Generator, validate: Callable[[], float] | None) -> Trainer:
        return Trainer(self.model, train, self.recipe, generator=generator, validate=validate)

    def __iter__(self) -> Iterator[Step | Epoch]:
        for record in self.trainer:
            if isinstance(record, Epoch):
                self.history.append(record)
            yield record

    def save_checkpoint(self, path: Path) -> None:
        """Write everything that the rest of the run depends on to one file, atomically."""
        tensors, training = self.trainer.state()
        write_checkpoint(path, tensors, self._description(training))

    def _description(self, training: Mapping[str, Any]) -> dict[str, Any]:
        """Return what a checkpoint says besides its tensors."""
        history = [asdict(record) for record in self.history]
        return {"settings": self._settings(), "training": dict(training), "history": history}

    def load_checkpoint_(self, path: Path) -> None:
        """Continue from a checkpoint of a run with the same settings; only the number of epochs may differ."""
        tensors, plain = self._read_checkpoint(path)
        try:
            self._check_settings(path, plain["settings"])
            history = [Epoch(**record) for record in plain["history"]]
            self.trainer.restore_(tensors, plain["training"])
        except (KeyError, TypeError, AttributeError, RuntimeError) as error:
            raise UserError(f"{path}: not a checkpoint that this version can continue; start anew (--force)") from error
        self.history = history

    def _read_checkpoint(self, path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
        return read_checkpoint(path)

    def _check_settings(self, path: Path, stored: Mapping[str, Any]) -> None:
        """Raise UserError unless the stored settings are this run's; options that are new since have their default."""
        defaults = Recipe().to_dict()
        for name, ours in self._settings().items():
            theirs = stored.get(name, defaults.get(name))
            if theirs != ours and name != "epochs":
                difference = "other data" if name == "data" else f"{name} {theirs}, this run has {ours}"
                raise UserError(
                    f"{path} was made with {difference}; resume with the same settings, or start anew (--force)"
                )

    def _settings(self) -> dict[str, Any]:
        """Return the settings that a resumed run must share with its checkpoint, by the names of version 0.1."""
        config = self.model.config
        settings = {**config.to_dict(), "reciprocal": config.reciprocal}
        if "t" in self.model.slots:
            settings["levels"] = list(config.time_levels)
        return {**settings, **self.recipe.to_dict(), "seed": self.seed, "data": self.graph.fingerprint}

    def result(self) -> tuple[TensorModel, dict[str, Any]]:
        """Return the model with its best weights, and a training report."""
        self.trainer.finish_()
        if not all(bool(weight.isfinite().all()) for weight in self.model.parameters()):
            raise UserError("the weights are no longer finite numbers; train again with a lower learning rate")
        about = {
            "recipe": self.recipe.to_dict(),
            "seed": self.seed,
            "training": {
                "epochs": self.trainer.epoch,
                "best_epoch": self.trainer.best_epoch or self.trainer.epoch,
                "valid_mrr": self.trainer.best_mrr,
                "history": [asdict(record) for record in self.history],
            },
        }
        return self.model, about

    def _validate(self) -> float:
        """Return the filtered MRR of the validation facts' subjects and objects."""
        assert self.valid is not None
        rankings = [rank(self.model, self.valid, slot, known=self.known)["filtered"] for slot in "so"]
        return summarise(rankings)["mrr"]


def training_bytes(config: ModelConfig, sizes: Mapping[str, int]) -> int:
    """Return the bytes of the weights and their copies while training."""
    return WEIGHT_COPIES * parameter_count(config, sizes) * config.torch_dtype.itemsize


def check_fits(
    config: ModelConfig, sizes: Mapping[str, int], recipe: Recipe, *, weights: int | None = None, processes: int = 1
) -> None:
    """Raise UserError if the model and its batches do not fit in the free memory that some processes share.

    `weights` are the bytes of the weights and their copies in a process, by default those of the whole model.
    """
    objective = recipe.objective()
    weights = training_bytes(config, sizes) if weights is None else weights
    columns = sum(1 + count for count in objective.negatives.values())  # scores per fact
    elements = batch_elements(config, sizes, recipe.batch_size, objective.slots) + recipe.batch_size * columns
    batch = BATCH_COPIES * elements * config.torch_dtype.itemsize
    free = psutil.virtual_memory().available // processes
    if weights + batch > free:
        name, count = parse_model(config.model).__name__, parameter_count(config, sizes)
        raise UserError(
            f"{name} with dims {config.dims} needs {weights + batch:,} bytes to train ({weights:,} for {count:,} "
            f"parameters, {batch:,} for a batch), and {free:,} are free; choose a lower dim or batch size"
        )


def batch_elements(config: ModelConfig, sizes: Mapping[str, int], facts: int, slots: str) -> int:
    """Return an upper bound of the elements of all intermediate tensors of a batch's queries."""
    kind = parse_model(config.model)
    shapes, equations, total = parameter_shapes(kind, config, sizes), equations_of(kind, config), 0
    for prefix, equation in equations.items():
        axes: dict[str, int] = {}
        for slot, names in equation.factors:
            axes |= dict(zip(names, shapes[table_name(equations, prefix, slot)][1:], strict=False))
        for number, names in enumerate(equation.cores):
            axes |= dict(zip(names, shapes[f"{prefix}core{number}"], strict=True))
        ids = {slot: sizes[KINDS[slot]] for slot in equation.slots}
        total += max_query_elements(equation.terms, axes, ids, facts, slots)
    return kind.components * total


def parse_device(name: str | torch.device, dtype: torch.dtype = torch.float32) -> torch.device:
    """Return the device of that name; raise UserError unless it can hold a tensor of the dtype."""
    try:
        device = torch.device(name)
        torch.zeros(1, device=device, dtype=dtype).item()
    except (RuntimeError, AssertionError, NotImplementedError, TypeError) as error:
        raise UserError(
            f"device {str(name)!r} cannot be used here with {dtype}; choose cpu or one that this PyTorch supports"
        ) from error
    return device
