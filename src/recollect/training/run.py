"""One training run from graph to memory: a model, its trainer and its validation.

Iterate it for training records, store and load a checkpoint at any of them, and take `result` at the end.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from recollect.engine import MappedTables, Tables, max_query_elements
from recollect.errors import UserError, check_process
from recollect.graph.facts import KINDS, EpisodicGraph, Facts
from recollect.graph.free_memory import free_memory
from recollect.graph.seeds import seeded
from recollect.io.checkpoint import read_checkpoint, write_checkpoint
from recollect.models.config import ModelConfig
from recollect.models.parameters import all_finite, equations_of, parameter_shapes, table_name
from recollect.models.tensor_model import TensorModel
from recollect.models.zoo import build_model, parameter_count, parse_model
from recollect.training.recipe import Recipe, parse_recipe
from recollect.training.trainer import Epoch, Step, Trainer
from recollect.training.validation import Validation

WEIGHT_COPIES = 5  # while training: weights, gradient, two Adam moments (or Adagrad's sum and the mean), best so far
WHOLE_COPIES = 3  # of a mapped table that batches change whole: values, gradient, temporaries
BATCH_COPIES = 3  # of the intermediate tensors of a batch: values, gradients, temporaries


class TrainingRun:
    """Train a model on a graph; iterate for `Step` and `Epoch` records.

    Examples:
        >>> from recollect import ModelConfig, Recipe, dataset
        >>> graph = dataset("world", countries=4, years=1)
        >>> run = TrainingRun(graph, ModelConfig(model="distmult", dim=4), recipe=Recipe(epochs=2))
        >>> [record.epoch for record in run if hasattr(record, "best")]
        [1, 2]
        >>> model, report = run.result()
        >>> report["training"]["epochs"]
        2
    """

    def __init__(
        self,
        graph: EpisodicGraph,
        config: ModelConfig,
        *,
        recipe: Recipe | str = "modern",
        seed: int = 0,
        device: str | torch.device = "cpu",
        initial: TensorModel | None = None,
        tables: Path | None = None,
    ) -> None:
        """Start from random weights, or from those of an `initial` model of the same config and sizes.

        `tables` is a folder: embedding tables and all that is as large are kept there in memory-mapped files, which the
        system removes when the run ends. Results are the same.
        """
        check_process()
        chosen = recipe if isinstance(recipe, Recipe) else parse_recipe(recipe)
        self.graph, self.seed, self.recipe = graph, seed, chosen.for_model(config.model)
        self.tables = Tables() if tables is None else MappedTables(tables)
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
        with self.tables.in_order():
            self.trainer = self._build_trainer(train, valid if len(valid) else None, generator)

    def _check_fits(self, config: ModelConfig) -> None:
        check_fits(config, self.graph.sizes, self.recipe, is_mapped=self.is_mapped)

    @property
    def is_mapped(self) -> bool:
        """Return whether tables are in memory-mapped files."""
        return isinstance(self.tables, MappedTables)

    def _build_model(self, config: ModelConfig, device: torch.device, generator: torch.Generator) -> TensorModel:
        return build_model(config, self.graph.sizes, device=device, generator=generator, zeros=self.tables.zeros)

    def _build_trainer(self, train: Facts, valid: Facts | None, generator: torch.Generator) -> Trainer:
        validate = None
        if valid is not None:
            validate = Validation(self.model, valid, Facts.concat([train, valid])).mrr  # never the test split
        return Trainer(self.model, train, self.recipe, generator=generator, validate=validate, tables=self.tables)

    def __iter__(self) -> Iterator[Step | Epoch]:
        for record in self.trainer:
            if isinstance(record, Epoch):
                self.history.append(record)
            yield record

    def save_checkpoint(self, path: Path) -> None:
        """Write everything that the rest of the run depends on to one file, atomically."""
        tensors, training = self.trainer.state()
        with self.tables.in_order():
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
            with self.tables.in_order():
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
        with self.tables.in_order():
            self.trainer.finish_()
            is_finite = all(all_finite(weight.detach()) for weight in self.model.parameters())
        if not is_finite:
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


def training_bytes(config: ModelConfig, sizes: Mapping[str, int]) -> int:
    """Return the bytes of the weights and their copies while training."""
    return WEIGHT_COPIES * parameter_count(config, sizes) * config.torch_dtype.itemsize


def fits_only_mapped(config: ModelConfig, sizes: Mapping[str, int], recipe: Recipe) -> bool:
    """Return whether a model fits in the free memory only if its tables are in memory-mapped files."""
    left = free_memory() - batch_bytes(config, sizes, recipe)
    return _whole_bytes(config, sizes, recipe) <= left < training_bytes(config, sizes)


def check_fits(
    config: ModelConfig,
    sizes: Mapping[str, int],
    recipe: Recipe,
    *,
    is_mapped: bool = False,
    held: int | None = None,
    free: int | None = None,
) -> None:
    """Raise UserError if the model and its batches do not fit in the free memory.

    Of tables in memory-mapped files, only those that every batch changes whole must fit. `held` are the bytes of the
    weights and their copies that this process holds, `free` those that it may use, if that is not all.
    """
    batch, free = batch_bytes(config, sizes, recipe), free_memory() if free is None else free
    weights = training_bytes(config, sizes) if held is None else held
    if is_mapped:
        weights = _whole_bytes(config, sizes, recipe)
    if weights + batch <= free:
        return
    name, count = parse_model(config.model).__name__, parameter_count(config, sizes)
    if is_mapped and _is_whole(build_model(config, sizes, device="meta"), recipe, "entity"):
        raise UserError(
            f"{recipe.loss} with candidates={recipe.candidates} compares every fact with all {sizes['entity']:,} "
            f"entities, which needs {weights:,} bytes, and {free:,} are free; sample some of them (candidates=1024), "
            "or use a loss with negatives"
        )
    advice = "choose a lower dim or batch size"
    if not is_mapped and fits_only_mapped(config, sizes, recipe):
        advice += ", or keep the tables in memory-mapped files (tables=FOLDER, --tables FOLDER)"
    raise UserError(
        f"{name} with dims {config.dims} needs {weights + batch:,} bytes to train ({weights:,} for {count:,} "
        f"parameters, {batch:,} for a batch), and {free:,} are free; {advice}"
    )


def batch_bytes(config: ModelConfig, sizes: Mapping[str, int], recipe: Recipe) -> int:
    """Return an upper bound of the bytes of a batch's intermediate tensors."""
    objective = recipe.objective()
    columns = sum(1 + count for count in objective.negatives.values())  # scores per fact
    elements = batch_elements(config, sizes, recipe.batch_size, objective.slots) + recipe.batch_size * columns
    return BATCH_COPIES * elements * config.torch_dtype.itemsize


def _whole_bytes(config: ModelConfig, sizes: Mapping[str, int], recipe: Recipe) -> int:
    """Return the bytes of the parameters that every batch changes whole, and of their gradients."""
    model = build_model(config, sizes, device="meta")
    elements = parameter_count(config, sizes)
    for kind in {KINDS[slot] for slot in model.slots}:
        if not _is_whole(model, recipe, kind):
            elements -= sum(getattr(model, name).numel() for name in model.table_names(kind))
    return WHOLE_COPIES * elements * config.torch_dtype.itemsize


def _is_whole(model: TensorModel, recipe: Recipe, kind: str) -> bool:
    """Return whether every row of a kind's tables is a candidate of each batch."""
    objective = recipe.objective()
    is_sampled = kind == "entity" and objective.samples_entities(model)
    return not is_sampled and objective.scores_all(model, kind)


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
