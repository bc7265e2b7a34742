"""The training loop: one optimizer step per batch, one record per step and epoch; it never prints or writes.

At every record the state can be stored and later continued with the same bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from recollect.engine import RowOptimizer, Tables, Zeros, distinct_counts, one_thread
from recollect.errors import UserError
from recollect.graph.fact_index import FactIndex
from recollect.graph.facts import Facts
from recollect.models.regularizers import TimeSmoothness
from recollect.models.tensor_model import TensorModel
from recollect.training.objectives import TrainingBatch
from recollect.training.recipe import Recipe
from recollect.training.rows import RowSelection
from recollect.training.sampler import FactSampler


@dataclass(frozen=True)
class Step:
    """One batch has been trained on.

    Examples:
        >>> Step(epoch=0, seen=1000, loss=2.5).seen
        1000
    """

    epoch: int  # epochs completed before this one
    seen: int  # facts trained on so far in this epoch
    loss: float  # mean over those facts


@dataclass(frozen=True)
class Epoch:
    """Every training fact has been trained on once more.

    Examples:
        >>> Epoch(epoch=3, loss=1.5, mrr=0.61, best=True).best
        True
    """

    epoch: int  # from 1
    loss: float  # mean per fact, its negatives included
    mrr: float | None  # filtered validation MRR, if it was measured
    best: bool  # whether that is the best so far


@dataclass
class EarlyStopping:
    """The best validation so far, its weights, and how many validations have passed without a better one."""

    patience: int
    mrr: float | None = None
    epoch: int = 0
    stale: int = 0  # validations since the best
    weights: dict[str, Tensor] = field(default_factory=dict)
    zeros: Zeros = torch.zeros  # allocates the weights

    @property
    def should_stop(self) -> bool:
        return self.stale >= self.patience

    def update_(self, mrr: float, epoch: int, weights: Mapping[str, Tensor]) -> bool:
        """Record a validation; return whether it is the best, in which case its weights are copied."""
        if self.mrr is not None and not mrr > self.mrr:
            self.stale += 1
            return False
        self.mrr, self.epoch, self.stale = mrr, epoch, 0
        if not self.weights:
            self.weights = _allocate(weights, self.zeros)
        for name, value in weights.items():
            self.weights[name].copy_(value)
        return True


@dataclass
class WeightAverage:
    """The mean Σ i w_i / Σ i of the weights w_i after epochs i."""

    parameters: Mapping[str, nn.Parameter]
    mean: dict[str, Tensor] = field(default_factory=dict)  # empty until the first update
    zeros: Zeros = torch.zeros  # allocates the mean

    @torch.no_grad()
    def update_(self, epoch: int) -> None:
        """Add the weights after an epoch, counted from 1."""
        share = 2 / (epoch + 1)
        is_first = not self.mean
        if is_first:
            self.mean = _allocate(self.parameters, self.zeros)
        for name, parameter in self.parameters.items():
            if is_first:
                self.mean[name].copy_(parameter)
            else:
                self.mean[name].lerp_(parameter, share)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Set the parameters to their average, if there is one, inside the block; restore them after it."""
        last = {name: self.parameters[name].data for name in self.mean}
        for name, value in self.mean.items():
            self.parameters[name].data = value
        try:
            yield
        finally:
            for name, value in last.items():
                self.parameters[name].data = value


class Trainer:
    """Train a model on facts by a recipe; iterate for `Step` and `Epoch` records until the recipe says stop."""

    def __init__(
        self,
        model: TensorModel,
        facts: Facts,
        recipe: Recipe,
        *,
        generator: torch.Generator,
        validate: Callable[[], float] | None = None,
        learn: Collection[str] | None = None,
        tables: Tables | None = None,
    ) -> None:
        """`validate` returns the MRR to stop by; `learn` names the parameters to change, like {"time"}; None = all.

        `tables` allocates what is as large as the parameters: the state of the optimizer, averages, the best weights.
        """
        self.tables = tables or Tables()
        if not len(facts):
            raise UserError("there are no training facts; give a graph with a non-empty train split")
        self.model, self.recipe = model, recipe.for_model(model.config.model)
        self.objective = self.recipe.objective()
        self.objective.check(model, facts)
        self.generator, self.validate = generator, validate
        self.known = FactIndex(model.normalize(facts), model.sizes)
        self.sampler = FactSampler(model, facts, self.recipe, self.objective)
        typical = self.sampler.typical_batch()
        columns = {slot: model.normalize(typical).column(slot) for slot in model.slots}
        self.counts = distinct_counts(model.equation.terms, columns)
        self.rows = RowSelection(model, self.objective, typical)
        self.parameters = self._trained(learn)
        self.smoothness = TimeSmoothness(model, facts, self.recipe.filled("smoothness"))
        self.optimizer = RowOptimizer(
            self.recipe.optimizer,
            self.parameters,
            lr=self.recipe.filled("learning_rate"),
            decay=2 * self.recipe.l2 / len(facts),  # the gradient of λ‖P‖² / n, the objective being a mean over facts
            lazy=self.rows.tables & self.parameters.keys(),
            rates={"time": self.recipe.time_rate} if model.equation.order("t") > 1 else {},
            zeros=self.tables.zeros,
        )
        self.average = WeightAverage(self.parameters, zeros=self.tables.zeros)  # empty unless the recipe averages
        self.stopping = EarlyStopping(self.recipe.patience, zeros=self.tables.zeros)
        self.epoch = 0  # completed
        self.batch = 0  # completed in the current epoch
        self.loss_sum = 0.0  # over the facts of the current epoch
        self.order_state = generator.get_state()  # of the generator before it drew the order of the current epoch

    def _trained(self, learn: Collection[str] | None) -> dict[str, nn.Parameter]:
        """Return the parameters to train by name."""
        return _select_parameters(self.model, learn)

    @property
    def facts(self) -> Facts:
        """Return the training facts, in the order that the sampler numbers them."""
        return self.sampler.facts

    @property
    def best_mrr(self) -> float | None:
        """Return the best validation MRR; None if nothing was validated."""
        return self.stopping.mrr

    @property
    def best_epoch(self) -> int:
        """Return the epoch of the best validation; 0 if nothing was validated."""
        return self.stopping.epoch

    @property
    def finished(self) -> bool:
        return self.epoch >= self.recipe.epochs or self.stopping.should_stop

    def __iter__(self) -> Iterator[Step | Epoch]:
        size, n = self.recipe.batch_size, len(self.facts)
        while not self.finished:
            order = self._epoch_order()
            while self.batch * size < n:
                facts = self.sampler.batch(order, self.batch)
                with one_thread():
                    self.loss_sum += self._step(facts) * len(facts)
                self.batch += 1
                seen = min(n, self.batch * size)
                yield Step(self.epoch, seen, self.loss_sum / seen)
            with self.tables.in_order():
                record = self._end_epoch()
            yield record

    def _epoch_order(self) -> Tensor:
        """Return the order of the current epoch; an epoch under way has its order drawn again from the stored state."""
        if self.batch == 0:
            self.order_state = self.generator.get_state()
            return self.sampler.draw_order(self.generator)
        replay = torch.Generator()
        replay.set_state(self.order_state)
        return self.sampler.draw_order(replay)

    def _step(self, facts: Facts) -> float:
        """Take one optimizer step down the mean loss of a batch; return that loss."""
        batch = self.objective.sample(self.model, self.model.normalize(facts), self.known, self.generator)
        rows = self.rows.select(batch)
        self._prefetch(rows)
        loss, grads = self.loss_and_gradients(batch, rows)
        self._check_finite(loss)
        self.smoothness.add_gradient_(grads, facts.t, rows.get("time"))
        rows_of = {name: rows[kind] for kind in rows for name in self.model.table_names(kind)}
        self.optimizer.step({name: (rows_of.get(name), grads[name]) for name in self.parameters})
        return loss

    def _prefetch(self, rows: Mapping[str, Tensor]) -> None:
        """Announce the rows of lazy tables, and of the state of the optimizer, that a step reads."""
        for kind, selected in rows.items():
            for name in self.model.table_names(kind):
                if name in self.parameters:
                    state = [value for value in self.optimizer.moments[name].values() if value.dim() > 1]
                    self.tables.prefetch([self.parameters[name], *state], selected)

    def _check_finite(self, loss: float) -> None:
        """Raise UserError if training diverged."""
        if not math.isfinite(loss):
            raise UserError(
                f"the loss became {loss} in epoch {self.epoch + 1}; "
                f"lower the learning rate (now {self.recipe.learning_rate:g}) or raise l2"
            )

    def loss_and_gradients(self, batch: TrainingBatch, rows: Mapping[str, Tensor]) -> tuple[float, dict[str, Tensor]]:
        """Return the mean loss of a batch and its gradients by parameter, of only `rows` for the kinds named there."""
        part, renumbered = self.rows.restrict(rows, batch, self.rows.gather(rows))
        loss = self.objective.loss(part, renumbered, self.counts) / batch.count
        loss.backward()
        return loss.item(), {name: leaf.grad for name, leaf in part.named_parameters() if leaf.grad is not None}

    def _end_epoch(self) -> Epoch:
        """Update what is due once per epoch, validate if it is time to, and return the record of the epoch."""
        self.epoch += 1
        self.optimizer.catch_up_()
        if "time" in self.parameters:
            self.smoothness.interpolate_()
        loss, self.batch, self.loss_sum = self.loss_sum / len(self.facts), 0, 0.0
        if self.recipe.average:
            self.average.update_(self.epoch)
        mrr, best = None, False
        due = self.epoch % self.recipe.validate_every == 0 or self.epoch == self.recipe.epochs
        if self.validate and due:
            with self.average.applied():
                mrr = self.validate()
                best = self.stopping.update_(mrr, self.epoch, self.weights)
        return Epoch(self.epoch, loss, mrr, best)

    def finish_(self) -> None:
        """Load the weights of the best validation, else their average over epochs, else keep the last ones."""
        self.load_weights_(self.stopping.weights or self.average.mean)

    @property
    def weights(self) -> dict[str, Tensor]:
        """Return the weights of the model, those that are not trained too, by name."""
        return dict(self.model.state_dict())

    def load_weights_(self, weights: Mapping[str, Tensor]) -> None:
        """Replace some of the `weights`."""
        self.model.load_state_dict(weights, strict=False)

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return everything that the next record depends on: tensors and plain values."""
        groups: dict[str, Mapping[str, Tensor]] = {
            "model": self.weights,
            "best": self.stopping.weights,
            "mean": self.average.mean,
            "optimizer": self.optimizer.state(),
        }
        tensors = {f"{group}.{name}": value for group, values in groups.items() for name, value in values.items()}
        tensors |= {"generator": self.generator.get_state(), "order": self.order_state}
        plain = {name: getattr(self, name) for name in ("epoch", "batch", "loss_sum", "best_mrr", "best_epoch")}
        return tensors, plain | {"stale": self.stopping.stale}

    def restore_(self, tensors: Mapping[str, Tensor], plain: Mapping[str, Any]) -> None:
        """Continue from a `state`."""
        for name in ("epoch", "batch", "loss_sum", "best_mrr", "best_epoch", "stale"):
            if not isinstance(plain[name], int | float) and not (name == "best_mrr" and plain[name] is None):
                raise TypeError(f"{name} is {plain[name]!r}")
        stored = _group(tensors, "model")
        if stored.keys() != self.weights.keys():
            raise KeyError(f"weights of {', '.join(stored)}")
        self.load_weights_(stored)
        self.stopping.weights = self._copies(_group(tensors, "best"))
        self.average.mean = self._copies(_group(tensors, "mean"))
        self.optimizer.restore_(_group(tensors, "optimizer"))
        self.generator.set_state(tensors["generator"])
        self.order_state = tensors["order"]
        self.epoch, self.batch, self.loss_sum = plain["epoch"], plain["batch"], plain["loss_sum"]
        self.stopping.mrr, self.stopping.epoch = plain["best_mrr"], plain["best_epoch"]
        self.stopping.stale = plain["stale"]

    def _copies(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return copies of stored weights, where the weights of the model are."""
        copies = _allocate(tensors, self.tables.zeros, self.model.device)
        for name, value in tensors.items():
            copies[name].copy_(value)
        return copies


def _group(tensors: Mapping[str, Tensor], group: str) -> dict[str, Tensor]:
    """Return the tensors named `group.name`, by name."""
    prefix = f"{group}."
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


def _allocate(tensors: Mapping[str, Tensor], zeros: Zeros, device: torch.device | None = None) -> dict[str, Tensor]:
    """Return zeros of the shapes of some tensors, on a device, by default that of each."""
    return {
        name: zeros(value.shape, dtype=value.dtype, device=device or value.device) for name, value in tensors.items()
    }


def _select_parameters(model: TensorModel, learn: Collection[str] | None) -> dict[str, nn.Parameter]:
    """Return the parameters to train by name."""
    parameters = dict(model.named_parameters())
    if learn is None:
        return parameters
    if unknown := set(learn) - parameters.keys():
        names = ", ".join(parameters)
        raise UserError(f"{type(model).__name__} has no parameter {sorted(unknown)[0]!r} to learn; it has {names}")
    return {name: parameter for name, parameter in parameters.items() if name in learn}
