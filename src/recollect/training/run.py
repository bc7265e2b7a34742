"""One run from graph to memory: a model, its training and what it is judged by.

Iterate it for training records; `keep` and `resume_` it at any of them; `result` is what was learned.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import psutil
import torch

from recollect.errors import UserError
from recollect.evaluation.metrics import UNCALIBRATED, Calibration, calibrate, summarise
from recollect.evaluation.ranking import rank
from recollect.graph.fact_index import FactIndex
from recollect.graph.facts import EpisodicGraph, Facts
from recollect.graph.seeds import seeded
from recollect.io.checkpoint import read_checkpoint, write_checkpoint
from recollect.models.tensor_model import Dims, TensorModel, parse_model
from recollect.training.recipe import Recipe, parse_recipe
from recollect.training.trainer import Epoch, Step, Trainer

DTYPES = {"float32": torch.float32, "float64": torch.float64}
COPIES = 5  # of the weights while training: themselves, gradient, two Adam moments, the best so far


class TrainingRun:
    """A model learning a graph; iterate for `Step` and `Epoch` records."""

    def __init__(
        self,
        graph: EpisodicGraph,
        *,
        model: str,
        dim: Dims | int,
        recipe: Recipe | str = "paper",
        seed: int = 0,
        form: str = "episodic",
        dtype: str = "float32",
        device: str = "cpu",
    ) -> None:
        kind = parse_model(model)
        dims = dim if isinstance(dim, Dims) else Dims.of(dim)
        if dtype not in DTYPES:
            raise UserError(f"unknown dtype {dtype!r}; choose one of {', '.join(DTYPES)}")
        self.graph, self.seed = graph, seed
        self.recipe = recipe if isinstance(recipe, Recipe) else parse_recipe(recipe, model)
        check_fits(kind, graph.sizes, dims, form, DTYPES[dtype], self.recipe)
        self.history: list[Epoch] = []
        generator = seeded(seed)
        self.model = kind(
            graph.sizes,
            dims,
            form=form,
            reciprocal=self.recipe.reciprocal,
            levels=_levels(kind, form, self.recipe),
            dtype=DTYPES[dtype],
            device=_device(device, DTYPES[dtype]),
            generator=generator,
        )
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
            slots = self.model.indicator.slots
            asked = self.model.as_modelled(self.valid)
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
        return {**self.model.spec(), **self.recipe.told(), "seed": self.seed, "data": self.graph.fingerprint}


def known_cells(model: TensorModel, known: FactIndex) -> FactIndex:
    """Known facts as the model tells them apart; the same index where it knows times."""
    facts = model.as_modelled(known.facts)
    return known if facts is known.facts else FactIndex(facts, known.sizes)


def check_fits(
    model: type[TensorModel], sizes: dict[str, int], dims: Dims, form: str, dtype: torch.dtype, recipe: Recipe
) -> None:
    """Refuse, before any memory is taken, a model whose weights and batches do not fit in it."""
    count = model.parameter_count(sizes, dims, form, recipe.reciprocal, _levels(model, form, recipe))
    weights = count * dtype.itemsize * COPIES
    # the work of a batch and its gradients, and the candidates of each fact
    columns = sum(1 + count for count in recipe.drawn.values())
    slots = "".join(slot for slot in recipe.slots if slot in model.equation(form).slots)
    numbers = model.batch_numbers(sizes, dims, recipe.batch_size, slots, form) + recipe.batch_size * columns
    batch = 3 * numbers * dtype.itemsize
    free = psutil.virtual_memory().available
    if weights + batch > free:
        raise UserError(
            f"{model.__name__} with {dims} needs {weights + batch:,} bytes to train ({weights:,} for {count:,} "
            f"parameters, {batch:,} for a batch), and {free:,} are free; choose a lower dim or batch size"
        )


def _levels(model: type[TensorModel], form: str, recipe: Recipe) -> tuple[int, ...]:
    """A recipe's levels, where the model has times."""
    return recipe.levels if "t" in model.equation(form).slots else (1,)


def _device(name: str, dtype: torch.dtype) -> torch.device:
    try:
        device = torch.device(name)
        torch.zeros(1, device=device, dtype=dtype).item()
    except (RuntimeError, AssertionError, NotImplementedError, TypeError) as error:
        raise UserError(
            f"device {name!r} cannot be used here with {dtype}; choose cpu or one that this PyTorch supports"
        ) from error
    return device
