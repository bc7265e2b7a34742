"""One run from graph to memory: a model, its training and what it is judged by.

Iterate it for training records; `keep` and `resume_` it at any of them; `result` is what was learned.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import psutil
import torch

from recollect.engine import Problem, intermediate_elements, max_counts, terms_without
from recollect.errors import UserError
from recollect.evaluation.calibration import UNCALIBRATED, Calibration, calibrate
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

COPIES = 5  # of the weights while training: themselves, gradient, two Adam moments, the best so far


class TrainingRun:
    """A model learning a graph; iterate for `Step` and `Epoch` records."""

    def __init__(
        self,
        graph: EpisodicGraph,
        config: ModelConfig,
        *,
        recipe: Recipe | str = "paper",
        seed: int = 0,
        device: str = "cpu",
    ) -> None:
        self.graph, self.seed = graph, seed
        self.recipe = recipe if isinstance(recipe, Recipe) else parse_recipe(recipe, config.model)
        check_fits(config, graph.sizes, self.recipe)
        self.history: list[Epoch] = []
        generator = seeded(seed)
        self.model = build_model(config, graph.sizes, device=_device(device, config.torch_dtype), generator=generator)
        train, valid = graph.split("train"), graph.splits.get("valid", Facts.of([])).true()
        both = Facts.concat([train, valid])  # of the test split nothing is known here
        self.known = FactIndex(both, graph.sizes)
        self.cells = known_cells(self.model, self.known)
        self.valid = valid if len(valid) else None
        validate = None if self.valid is None else self._validate
        self.training = Trainer(self.model, train, self.recipe, generator=generator, validate=validate)

    def __iter__(self) -> Iterator[Step | Epoch]:
        for record in self.training:
            if isinstance(record, Epoch):
                self.history.append(record)
            yield record

    def keep(self, path: Path) -> None:
        """Write everything the rest of the run depends on to one file."""
        tensors, plain = self.training.state()
        history = [asdict(record) for record in self.history]
        write_checkpoint(path, tensors, {"settings": self._settings(), "training": plain, "history": history})

    def resume_(self, path: Path) -> None:
        """Continue from a kept run with the same settings; only the number of epochs may differ."""
        tensors, plain = read_checkpoint(path)
        try:
            for name, ours in self._settings().items():
                theirs = plain["settings"].get(name)
                if theirs != ours and name != "epochs":
                    which = "other data" if name == "data" else f"{name} {theirs}, this run has {ours}"
                    raise UserError(
                        f"{path} was made with {which}; resume with the same settings, or start anew (--force)"
                    )
            history = [Epoch(**record) for record in plain["history"]]
            self.training.restore_(tensors, plain["training"])
        except (KeyError, TypeError, AttributeError, RuntimeError) as error:
            raise UserError(f"{path}: not a checkpoint that this version can continue; start anew (--force)") from error
        self.history = history

    def result(self) -> tuple[TensorModel, Calibration, dict[str, Any]]:
        """The model with its best weights, calibrated on the validation split, and how it came about."""
        self.training.finish_()
        if not all(bool(weight.isfinite().all()) for weight in self.model.parameters()):
            raise UserError("the weights are no longer finite numbers; train again with a lower learning rate")
        calibration = UNCALIBRATED
        if self.valid is not None:
            generator = seeded(self.seed)
            slots = self.model.slots
            asked = self.model.normalize(self.valid)
            calibration = calibrate(self.model, asked, known=self.cells, slots=slots, generator=generator)
        about = {
            "recipe": self.recipe.told(),
            "seed": self.seed,
            "training": {
                "epochs": self.training.epoch,
                "best_epoch": self.training.best_epoch or self.training.epoch,
                "valid_mrr": self.training.best_mrr,
                "history": [asdict(record) for record in self.history],
            },
        }
        return self.model, calibration, about

    def _validate(self) -> float:
        """Filtered MRR of the validation facts' subjects and objects."""
        assert self.valid is not None
        rankings = [rank(self.model, self.valid, slot, known=self.known)["filtered"] for slot in "so"]
        return summarise(rankings)["mrr"]

    def _settings(self) -> dict[str, Any]:
        return {**self.model.config.to_dict(), **self.recipe.told(), "seed": self.seed, "data": self.graph.fingerprint}


def known_cells(model: TensorModel, known: FactIndex) -> FactIndex:
    """Known facts as the model tells them apart; the same index where it knows times."""
    facts = model.normalize(known.facts)
    return known if facts is known.facts else FactIndex(facts, known.sizes)


def check_fits(config: ModelConfig, sizes: dict[str, int], recipe: Recipe) -> None:
    """Raise UserError, before any memory is allocated, if the model and its batches do not fit in memory."""
    itemsize, count = config.torch_dtype.itemsize, parameter_count(config, sizes)
    weights = count * itemsize * COPIES
    columns = sum(1 + count for count in recipe.drawn.values())  # candidates of each fact
    elements = batch_elements(config, sizes, recipe.batch_size, recipe.slots) + recipe.batch_size * columns
    batch = 3 * elements * itemsize  # values, gradients and temporaries
    free = psutil.virtual_memory().available
    if weights + batch > free:
        name = parse_model(config.model).__name__
        raise UserError(
            f"{name} with dims {config.dims} needs {weights + batch:,} bytes to train ({weights:,} for {count:,} "
            f"parameters, {batch:,} for a batch), and {free:,} are free; choose a lower dim or batch size"
        )


def batch_elements(config: ModelConfig, sizes: Mapping[str, int], facts: int, slots: str) -> int:
    """Return an upper bound of the elements of all intermediate tensors of a batch's queries."""
    kind = parse_model(config.model)
    shapes, equations, total = parameter_shapes(kind, config, sizes), equations_of(kind, config), 0
    for prefix, equation in equations.items():
        axes = {}
        for slot, names in equation.factors:
            axes |= dict(zip(names, shapes[table_name(equations, prefix, slot)][1:], strict=False))
        for number, names in enumerate(equation.cores):
            axes |= dict(zip(names, shapes[f"{prefix}core{number}"], strict=True))
        counts = max_counts(equation.terms, {slot: sizes[KINDS[slot]] for slot in equation.slots}, facts)
        problem = Problem.of(equation.terms, axes, counts)
        for slot in slots:
            if slot in equation.slots:
                total += intermediate_elements(problem, terms_without(equation.terms, slot), counts)
    return kind.components * total


def _device(name: str, dtype: torch.dtype) -> torch.device:
    try:
        device = torch.device(name)
        torch.zeros(1, device=device, dtype=dtype).item()
    except (RuntimeError, AssertionError, NotImplementedError, TypeError) as error:
        raise UserError(
            f"device {name!r} cannot be used here with {dtype}; choose cpu or one that this PyTorch supports"
        ) from error
    return device
