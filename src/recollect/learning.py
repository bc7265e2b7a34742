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

from recollect.bundle import read_checkpoint, write_checkpoint
from recollect.errors import UserError
from recollect.facts import EpisodicGraph
from recollect.known import Known
from recollect.metrics import Calibration, calibrate, summarise
from recollect.models import Ranks, TensorModel, parse_model
from recollect.ranks import rank
from recollect.recipes import Recipe
from recollect.training import Epoch, Step, Training

DTYPES = {"float32": torch.float32, "float64": torch.float64}
COPIES = 5  # of the weights while training: themselves, gradient, two Adam moments, the best so far


class Learning:
    """A model learning a graph; iterate for `Step` and `Epoch` records."""

    def __init__(
        self,
        graph: EpisodicGraph,
        *,
        model: str,
        ranks: Ranks | int,
        recipe: Recipe | None = None,
        seed: int = 0,
        form: str = "episodic",
        dtype: str = "float32",
        device: str = "cpu",
    ) -> None:
        kind = parse_model(model)
        ranks = ranks if isinstance(ranks, Ranks) else Ranks.of(ranks)
        if dtype not in DTYPES:
            raise UserError(f"unknown dtype {dtype!r}; choose one of {', '.join(DTYPES)}")
        check_fits(kind, graph.sizes, ranks, form, DTYPES[dtype])
        self.graph, self.seed = graph, seed
        self.recipe = recipe or Recipe()
        self.history: list[Epoch] = []
        generator = torch.Generator().manual_seed(seed)
        self.model = kind(
            graph.sizes, ranks, form=form, dtype=DTYPES[dtype], device=_device(device), generator=generator
        )
        self.known = Known(graph.facts, graph.sizes)
        valid = graph.splits.get("valid")
        self.valid = None if valid is None or not len(valid.true()) else valid.true()
        validate = None if self.valid is None else self._validate
        self.training = Training(self.model, graph.split("train"), self.recipe, generator=generator, validate=validate)

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
        for name, ours in self._settings().items():
            theirs = plain["settings"].get(name)
            if theirs != ours and name != "epochs":
                raise UserError(
                    f"{path} was made with {name} {theirs}, this run has {ours}; "
                    "resume with the same settings, or start anew (--force)"
                )
        self.training.restore_(tensors, plain["training"])
        self.history = [Epoch(**record) for record in plain["history"]]

    def result(self) -> tuple[TensorModel, Calibration, dict[str, Any]]:
        """The model with its best weights, calibrated on the validation split, and how it came about."""
        self.training.finish_()
        calibration = Calibration.identity()
        if self.valid is not None:
            generator = torch.Generator().manual_seed(self.seed)
            slots = self.model.indicator.slots
            calibration = calibrate(self.model, self.valid, known=self.known, slots=slots, generator=generator)
        about = {
            "recipe": self.recipe.as_dict(),
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
        return {
            **self.model.spec(),
            **self.recipe.as_dict(),
            "seed": self.seed,
            "data": self.graph.fingerprint,
        }


def check_fits(model: type[TensorModel], sizes: dict[str, int], ranks: Ranks, form: str, dtype: torch.dtype) -> None:
    """Refuse, before any memory is taken, a model whose training does not fit in it."""
    count = model.parameter_count(sizes, ranks, form)
    needed = count * dtype.itemsize * COPIES
    free = psutil.virtual_memory().available
    if needed > free:
        raise UserError(
            f"{model.__name__} with {ranks} needs {needed:,} bytes to train ({count:,} parameters of "
            f"{dtype.itemsize} bytes, {COPIES} copies), and {free:,} are free; choose a lower rank"
        )


def _device(name: str) -> torch.device:
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise UserError(f"device {name!r} cannot be used here; choose cpu or one that this PyTorch supports") from error
    return device
