"""The loop: one optimizer step a batch, one record a step and an epoch; it never prints, parses or writes.

At every record the run can be stopped, its state kept, and later continued bit for bit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from recollect.errors import UserError
from recollect.facts import Facts
from recollect.known import Known
from recollect.models import TensorModel
from recollect.negatives import corrupt
from recollect.recipes import Recipe

PLAIN = ("epoch", "batch", "loss_sum", "best_mrr", "best_epoch", "stale")  # of a run's state, what is no tensor


@dataclass(frozen=True)
class Step:
    """A batch has been learned."""

    epoch: int  # epochs completed before this one
    seen: int  # facts learned so far in this epoch
    loss: float  # mean over those


@dataclass(frozen=True)
class Epoch:
    """All training facts have been seen once more."""

    epoch: int  # from 1
    loss: float  # mean per fact, its corruptions included
    mrr: float | None  # filtered validation MRR, when it was measured
    best: bool  # whether that is the best so far


class Training:
    """A model on its way: iterate for `Step` and `Epoch` records until the recipe says stop."""

    def __init__(
        self,
        model: TensorModel,
        facts: Facts,
        recipe: Recipe,
        *,
        generator: torch.Generator,
        validate: Callable[[], float] | None = None,
    ) -> None:
        if not len(facts):
            raise UserError("there are no training facts; give a graph with a non-empty train split")
        if recipe.loss == "ranking" and not bool(facts.truth.all()):
            raise UserError("the ranking loss needs true facts only; use the logistic loss for facts valued False")
        self.model, self.facts, self.recipe = model, facts, recipe
        self.generator, self.validate = generator, validate
        self.objective = recipe.objective()
        self.known = Known(model.as_modelled(facts), model.sizes)
        # the sum over all facts + λ‖P‖², divided by the number of facts: Adam's weight decay adds the gradient 2λP/n
        decay = 2 * recipe.l2 / len(facts)
        self.optimizer = torch.optim.Adam(
            model.parameters(), lr=recipe.learning_rate, weight_decay=decay, fused=model.device.type in ("cpu", "cuda")
        )
        self.epoch = 0  # completed
        self.batch = 0  # completed in the running epoch
        self.loss_sum = 0.0  # over the facts of the running epoch
        self.order_state = generator.get_state()  # from which the running epoch's order is drawn
        self.best_mrr: float | None = None
        self.best_epoch = 0
        self.stale = 0  # validations since the best
        self.best: dict[str, Tensor] = {}

    @property
    def finished(self) -> bool:
        return self.epoch >= self.recipe.epochs or self.stale >= self.recipe.patience

    def __iter__(self) -> Iterator[Step | Epoch]:
        size, n = self.recipe.batch_size, len(self.facts)
        while not self.finished:
            order = self._order()
            while (start := self.batch * size) < n:
                batch = self.facts[order[start : start + size]]
                self.loss_sum += self._step(batch) * len(batch)
                self.batch += 1
                seen = min(n, start + size)
                yield Step(self.epoch, seen, self.loss_sum / seen)
            yield self._end_epoch()

    def finish_(self) -> None:
        """Put the best weights into the model; the last ones when nothing was validated."""
        if self.best:
            self.model.load_state_dict(self.best)

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Everything that the next record depends on: tensors and plain values."""
        tensors = {f"model.{name}": value for name, value in self.model.state_dict().items()}
        tensors |= {f"best.{name}": value for name, value in self.best.items()}
        for name, parameter in self.model.named_parameters():
            moments = self.optimizer.state.get(parameter, {})
            tensors |= {f"adam.{key}.{name}": value for key, value in moments.items()}
        tensors |= {"generator": self.generator.get_state(), "order": self.order_state}
        return tensors, {name: getattr(self, name) for name in PLAIN}

    def restore_(self, tensors: dict[str, Tensor], plain: dict[str, Any]) -> None:
        """Continue from a `state`."""

        def under(prefix: str) -> dict[str, Tensor]:
            return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}

        self.model.load_state_dict(under("model."))
        self.best = {name: value.to(self.model.device) for name, value in under("best.").items()}
        adam = self.optimizer.state_dict()
        for position, (name, _) in enumerate(self.model.named_parameters()):
            moments = {key: tensors.get(f"adam.{key}.{name}") for key in ("step", "exp_avg", "exp_avg_sq")}
            adam["state"][position] = {key: moment for key, moment in moments.items() if moment is not None}
        self.optimizer.load_state_dict(adam)
        self.generator.set_state(tensors["generator"])
        self.order_state = tensors["order"]
        for name in PLAIN:
            if not isinstance(plain[name], int | float) and not (name == "best_mrr" and plain[name] is None):
                raise TypeError(f"{name} is {plain[name]!r}")
            setattr(self, name, plain[name])

    def _order(self) -> Tensor:
        """The order of the running epoch, drawn again from its remembered state when it is under way."""
        if self.batch == 0:
            self.order_state = self.generator.get_state()
            return torch.randperm(len(self.facts), generator=self.generator)
        replay = torch.Generator()
        replay.set_state(self.order_state)
        return torch.randperm(len(self.facts), generator=replay)

    def _step(self, batch: Facts) -> float:
        """One step down the mean loss of a batch; returns that loss."""
        there, seen = batch.to(self.model.device), self.model.as_modelled(batch)
        true, false = None, []
        for slot, count in self.recipe.negatives.items():
            ids = corrupt(
                seen,
                slot,
                count,
                known=self.known,
                generator=self.generator,
                avoid_known=self.recipe.avoid_known,
            )
            # the true id comes along as the first candidate: one query serves the fact and its corruptions
            candidates = torch.cat([batch.column(slot)[:, None], ids], dim=1)
            scores = self.model.score_against(there, slot, candidates)
            true = scores[:, 0] if true is None else true
            false.append(scores[:, 1:])
        # only the logistic loss knows false facts; for the others there are none
        extra = {"truth": there.value} if there.value is not None and self.recipe.loss == "logistic" else {}
        losses = self.objective(true, torch.cat(false, dim=1), **extra)
        loss = (losses if there.weight is None else losses * there.weight).mean()
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        value = loss.item()
        if not math.isfinite(value):
            raise UserError(
                f"the loss became {value} in epoch {self.epoch + 1}; "
                f"lower the learning rate (now {self.recipe.learning_rate:g}) or raise l2"
            )
        return value

    def _end_epoch(self) -> Epoch:
        self.epoch += 1
        loss, self.batch, self.loss_sum = self.loss_sum / len(self.facts), 0, 0.0
        mrr, best = None, False
        if self.validate and (self.epoch % self.recipe.validate_every == 0 or self.epoch == self.recipe.epochs):
            mrr = self.validate()
            best = self.best_mrr is None or mrr > self.best_mrr
            self.stale = 0 if best else self.stale + 1
            if best:
                self.best_mrr, self.best_epoch = mrr, self.epoch
                self.best = {name: value.clone() for name, value in self.model.state_dict().items()}
        return Epoch(self.epoch, loss, mrr, best)
