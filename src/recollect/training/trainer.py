"""The loop: one optimizer step a batch, one record a step and an epoch; it never prints, parses or writes.

At every record the run can be stopped, its state kept, and later continued bit for bit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from recollect.engine import RowOptimizer, combinations, distinct_counts, gather, one_thread
from recollect.errors import UserError
from recollect.graph.fact_index import FactIndex
from recollect.graph.facts import KINDS, ORDER, SLOT_NAMES, Facts, encode, stable_sort
from recollect.models.regularizers import Smoothness, embedding_norms
from recollect.models.tensor_model import TensorModel
from recollect.models.time_knots import UntouchedKnots, neighbours
from recollect.training.losses import one_vs_all
from recollect.training.negatives import sample_negatives
from recollect.training.recipe import Recipe
from recollect.training.sampler import BLOCKS, FEW, block_order, choose_block, random_order

HUGE = 2**24  # numbers: of a larger table of times, one-vs-all takes those of a batch for all candidates
LAZY = 4  # a table of which a batch touches at most this part (a fourth) is updated row by row
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


class Trainer:
    """A model on its way: iterate for `Step` and `Epoch` records until the recipe says stop."""

    def __init__(
        self,
        model: TensorModel,
        facts: Facts,
        recipe: Recipe,
        *,
        generator: torch.Generator,
        validate: Callable[[], float] | None = None,
        learn: Collection[str] | None = None,
    ) -> None:
        """`learn` names the parameters that change, like {"time"}; all of them if left out."""
        if not len(facts):
            raise UserError("there are no training facts; give a graph with a non-empty train split")
        if recipe.loss != "logistic" and not bool(facts.truth.all()):
            raise UserError(
                f"the {recipe.loss} loss needs true facts only; use the logistic loss for facts valued False"
            )
        if model.config.reciprocal and recipe.loss != "one-vs-all":
            raise UserError(f"a reciprocal model learns by one-vs-all; got the {recipe.loss} loss")
        if model.config.reciprocal and recipe.predict.get("s") != recipe.predict.get("o"):
            raise UserError(f"a reciprocal model predicts s and o alike; got {recipe.predict}")
        if unknown := set(recipe.slots) - set(model.equation.slots):
            names = ", ".join(SLOT_NAMES[slot] for slot in sorted(unknown))
            raise UserError(
                f"the {model.config.form} {type(model).__name__} has no {names} to learn; leave it out of the recipe"
            )
        self.model, self.facts, self.recipe = model, facts, recipe
        self.generator, self.validate = generator, validate
        self.known = FactIndex(model.normalize(facts), model.sizes)
        few = (*BLOCKS, *FEW) if recipe.loss == "one-vs-all" else BLOCKS
        self.block = None
        if recipe.order != "random":
            self.block = choose_block(model, facts, recipe.batch_size, recipe.slots, few)
        if recipe.order == "blocks" and self.block is None:
            self.block = -(-recipe.batch_size // BLOCKS[0])
        if self.block is not None:  # sorted, so that a sorted batch has the facts of one time and predicate together
            self.facts = facts[encode(facts, model.sizes, ORDER).argsort()]
        sample = self.facts[self._draw(torch.Generator().manual_seed(0))[: recipe.batch_size]]
        # of a batch like any other: plans are made with them, and a resumed run makes the same ones
        seen = model.normalize(sample)
        self.counts = distinct_counts(model.equation.terms, {slot: seen.column(slot) for slot in model.slots})
        # the sum over all facts + λ‖P‖², divided by the number of facts: the penalty's gradient is 2λP/n
        if learn is not None and (wrong := set(learn) - dict(model.named_parameters()).keys()):
            names = ", ".join(name for name, _ in model.named_parameters())
            raise UserError(f"{type(model).__name__} has no parameter {sorted(wrong)[0]!r} to learn; it has {names}")
        self.learned = {name: p for name, p in model.named_parameters() if learn is None or name in learn}
        # of the entities that a batch does not name, some that are drawn are its candidates
        self.sampled = self._predicts("entity") and 0 < 2 * recipe.candidates < len(model.entity)
        self.lazy = self._lazy(sample)  # kinds
        self.neighbours = neighbours(model.sizes["time"], model.config.time_levels)
        self.occurring = facts.t.bincount(minlength=model.sizes["time"])  # facts of each time
        self.smoothness = Smoothness(recipe.smoothness, self.occurring, self.neighbours)
        self.bridges = UntouchedKnots.of(self.occurring.nonzero()[:, 0], model.sizes["time"], model.config.time_levels)
        self.optimizer = RowOptimizer(
            recipe.optimizer,
            self.learned,
            lr=recipe.learning_rate,
            decay=2 * recipe.l2 / len(facts),
            lazy=frozenset(table for kind in self.lazy for table in model.table_names(kind)) & self.learned.keys(),
            rates={"time": recipe.time_rate} if model.equation.order("t") > 1 else {},
        )
        self.epoch = 0  # completed
        self.batch = 0  # completed in the running epoch
        self.loss_sum = 0.0  # over the facts of the running epoch
        self.order_state = generator.get_state()  # from which the running epoch's order is drawn
        self.best_mrr: float | None = None
        self.best_epoch = 0
        self.stale = 0  # validations since the best
        self.best: dict[str, Tensor] = {}
        self.mean: dict[str, Tensor] = {}  # of the weights after every epoch

    @property
    def finished(self) -> bool:
        return self.epoch >= self.recipe.epochs or self.stale >= self.recipe.patience

    def __iter__(self) -> Iterator[Step | Epoch]:
        size, n = self.recipe.batch_size, len(self.facts)
        while not self.finished:
            order = self._order()
            while (start := self.batch * size) < n:
                # one-vs-all is a few large products, which PyTorch spreads over its threads itself
                with nullcontext() if self.recipe.loss == "one-vs-all" else one_thread():
                    rows = order[start : start + size]
                    batch = self.facts[rows if self.block is None else torch.from_numpy(np.sort(rows.numpy()))]
                    self.loss_sum += self._step(batch) * len(batch)
                self.batch += 1
                seen = min(n, start + size)
                yield Step(self.epoch, seen, self.loss_sum / seen)
            yield self._end_epoch()

    def finish_(self) -> None:
        """Put the best weights into the model; the last ones, or their mean, when nothing was validated."""
        self.model.load_state_dict(self.best or self.mean, strict=bool(self.best))

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Everything that the next record depends on: tensors and plain values."""
        tensors = {f"model.{name}": value for name, value in self.model.state_dict().items()}
        tensors |= {f"best.{name}": value for name, value in self.best.items()}
        tensors |= {f"mean.{name}": value for name, value in self.mean.items()}
        tensors |= {f"optimizer.{name}": value for name, value in self.optimizer.state().items()}
        tensors |= {"generator": self.generator.get_state(), "order": self.order_state}
        return tensors, {name: getattr(self, name) for name in PLAIN}

    def restore_(self, tensors: dict[str, Tensor], plain: dict[str, Any]) -> None:
        """Continue from a `state`."""

        def under(prefix: str) -> dict[str, Tensor]:
            found = {name: value for name, value in tensors.items() if name.startswith(prefix)}
            return {name.removeprefix(prefix): value.clone() for name, value in found.items()}

        self.model.load_state_dict(under("model."))
        self.best = {name: value.to(self.model.device) for name, value in under("best.").items()}
        self.mean = {name: value.to(self.model.device) for name, value in under("mean.").items()}
        self.optimizer.restore_(under("optimizer."))
        self.generator.set_state(tensors["generator"])
        self.order_state = tensors["order"]
        for name in PLAIN:
            if not isinstance(plain[name], int | float) and not (name == "best_mrr" and plain[name] is None):
                raise TypeError(f"{name} is {plain[name]!r}")
            setattr(self, name, plain[name])

    def _lazy(self, sample: Facts) -> frozenset[str]:
        """The kinds of which such a batch touches so few rows that their tables are updated row by row."""
        lazy, facts = set(), self._both_ways(self.model.normalize(sample))
        for kind in {KINDS[slot] for slot in self.model.equation.slots}:
            ids = self._touched(kind, facts, {})
            if kind == "entity" and self.sampled:
                lazy.add(kind)
                continue
            if self._predicts(kind) and (kind != "time" or self.model.time.numel() <= HUGE):
                continue  # every row is a candidate
            drawn = sum(len(sample) * count for slot, count in self.recipe.drawn.items() if KINDS[slot] == kind)
            if LAZY * (len(ids) + drawn) <= len(getattr(self.model, kind)):
                lazy.add(kind)
        return frozenset(lazy)

    def _predicts(self, kind: str) -> bool:
        return self.recipe.loss == "one-vs-all" and any(KINDS[slot] == kind for slot in self.recipe.predict)

    def _both_ways(self, facts: Facts) -> Facts:
        """Facts, and for a reciprocal model their inverses after them."""
        return Facts.concat([facts, self.model.inverse(facts)]) if self.model.config.reciprocal else facts

    def _order(self) -> Tensor:
        """The order of the running epoch, drawn again from its remembered state when it is under way."""
        if self.batch == 0:
            self.order_state = self.generator.get_state()
            return self._draw(self.generator)
        replay = torch.Generator()
        replay.set_state(self.order_state)
        return self._draw(replay)

    def _draw(self, generator: torch.Generator) -> Tensor:
        if self.block is None:
            return random_order(len(self.facts), generator)
        return block_order(self.facts, self.block, generator)

    def _step(self, batch: Facts) -> float:
        """One step down the mean loss of a batch; returns that loss."""
        seen = self.model.normalize(batch)
        corrupted = {
            slot: sample_negatives(
                seen,
                slot,
                count,
                known=self.known,
                generator=self.generator,
                avoid_known=self.recipe.avoid_known,
            )
            for slot, count in self.recipe.drawn.items()
        }
        if corrupted and self.block is None and not self.model.equation.is_diagonal:
            seen, corrupted = self._in_order(seen, corrupted)
        facts = self._both_ways(seen)
        rows = {kind: self._touched(kind, facts, corrupted) for kind in self.lazy}
        copies = None
        if self.sampled:
            rows["entity"], copies = self._joined_by_others(rows["entity"])
        value, grads = self._gradients(rows, facts, corrupted, copies)
        if self.recipe.smoothness and "time" in grads:
            self.smoothness.add_gradient_(grads["time"], self.model.time, batch.t, self.model.knots, rows.get("time"))
        touched = {name: rows[kind] for kind in rows for name in self.model.table_names(kind)}
        self.optimizer.step({name: (touched.get(name), grads[name]) for name in self.learned})
        if not math.isfinite(value):
            raise UserError(
                f"the loss became {value} in epoch {self.epoch + 1}; "
                f"lower the learning rate (now {self.recipe.learning_rate:g}) or raise l2"
            )
        return value

    def _in_order(self, facts: Facts, corrupted: dict[str, Tensor]) -> tuple[Facts, dict[str, Tensor]]:
        """Facts by time and predicate, so that those which share a matrix lie together; their corruptions with them."""
        slots = "".join(slot for slot in "tp" if slot in self.model.equation.slots)
        _, order = stable_sort(encode(facts, self.model.sizes, slots))
        return facts[order], {slot: ids.index_select(0, order) for slot, ids in corrupted.items()}

    def _joined_by_others(self, named: Tensor) -> tuple[Tensor, Tensor]:
        """Entities that a batch names and others that are drawn, sorted, and how many entities each stands for."""
        copies = torch.zeros(len(self.model.entity))
        others = (copies.index_fill_(0, named, 1) == 0).nonzero()[:, 0]
        drawn = others[torch.randperm(len(others), generator=self.generator)[: self.recipe.candidates]]
        copies[drawn] = len(others) / max(1, len(drawn))
        rows = copies.nonzero()[:, 0]
        return rows, copies[rows]

    def _gradients(
        self, rows: dict[str, Tensor], facts: Facts, corrupted: dict[str, Tensor], copies: Tensor | None = None
    ) -> tuple[float, dict[str, Tensor]]:
        """The mean loss of a batch and its gradient by parameter, of the touched rows only where `rows` tells them.

        `copies` tells how many entities each touched one stands for.
        """
        count = len(facts) // 2 if self.model.config.reciprocal else len(facts)
        part, facts, corrupted = self._part(rows, facts, corrupted)
        loss = self._loss(part, facts, corrupted, count, copies) / count
        loss.backward()
        return loss.item(), {name: leaf.grad for name, leaf in part.named_parameters() if leaf.grad is not None}

    def _part(
        self, rows: dict[str, Tensor], facts: Facts, corrupted: dict[str, Tensor]
    ) -> tuple[TensorModel, Facts, dict[str, Tensor]]:
        """The model with the touched rows only; facts and corruptions by their place among them."""
        model, knots, ids = self.model, None, dict(rows)
        if "time" in rows and model.knots is not None:
            ids["time"] = _times(facts, corrupted)
            knots = model.knots.restrict(ids["time"], rows["time"])
        facts, corrupted = self._renumbered(ids, facts, corrupted)
        taken = {
            name: getattr(model, name).detach().index_select(0, some.to(model.device))
            for kind, some in rows.items()
            for name in model.table_names(kind)
        }
        return model.with_rows(taken, knots), facts, corrupted

    def _loss(
        self, model: TensorModel, facts: Facts, corrupted: dict[str, Tensor], count: int, copies: Tensor | None
    ) -> Tensor:
        """The summed loss of some facts; with inverse ones among them, the first `count` are the facts themselves."""
        there = facts.to(model.device)
        if self.recipe.loss == "one-vs-all":
            losses = []
            for slot, weight in self.recipe.predict.items():
                if not (model.config.reciprocal and slot == "s"):  # who is asked as whom, below
                    both = model.config.reciprocal and slot == "o"
                    asked = there if both else there[:count]
                    losses.append(weight * self._against_all(model, asked, slot, copies if slot in "so" else None))
            return torch.stack(losses).sum()
        true, false = model.score_with_negatives(facts, corrupted, self.counts)
        # only the logistic loss knows false facts; for the others there are none
        extra = {"truth": there.value} if there.value is not None and self.recipe.loss == "logistic" else {}
        each = self.recipe.objective()(true, false, **extra)
        return (each if there.weight is None else each * there.weight).sum()

    def _against_all(self, model: TensorModel, facts: Facts, slot: str, copies: Tensor | None) -> Tensor:
        """Σ cross entropy of each fact's id of a slot against all ids, over the distinct queries of a batch."""
        ids = {other: facts.column(other) for other in model.equation.slots if other != slot}
        queries = combinations(ids, "".join(other for other in ORDER if other in ids))
        asked = facts[queries.first]
        answers, weight = facts.column(slot), facts.weight
        if model.has_matrix_rows(slot):
            logits = model.score_against(asked, slot)
            losses = functional.cross_entropy(
                gather(logits, queries.index), answers, reduction="none", label_smoothing=self.recipe.label_smoothing
            )
            return (losses if weight is None else losses * weight).sum()
        works = model.batch(asked)
        query = works.query(slot)
        loss = one_vs_all(
            self._dropped(query),
            model.candidates(slot),
            queries.index,
            answers,
            weight,
            counts=copies,
            smoothing=self.recipe.label_smoothing,
        )
        if self.recipe.penalty and slot in "so":
            weight = torch.ones_like(answers, dtype=query.dtype) if weight is None else weight.to(query.dtype)
            times = query.new_zeros(len(query)).index_add_(0, queries.index, weight)
            asks, answer = embedding_norms(works, slot, query, answers)
            loss = loss + self.recipe.penalty * ((times * asks).sum() + (weight * answer).sum())
        return loss

    def _dropped(self, query: Tensor) -> Tensor:
        """Queries with some of their numbers left out, the others raised to make up for them."""
        share = self.recipe.dropout
        if not share:
            return query
        kept = torch.rand(query.shape, generator=self.generator, dtype=query.dtype) >= share
        return query * (kept.to(query) / (1 - share))

    def _touched(self, kind: str, batch: Facts, corrupted: dict[str, Tensor]) -> Tensor:
        """The rows of a table that a batch needs, sorted."""
        if kind == "time" and self.model.knots is not None:
            return self.model.knots.touched(_times(batch, corrupted))
        mark = np.zeros(len(getattr(self.model, kind)), dtype=bool)
        for slot in self._slots_of(kind):
            mark[batch.column(slot).numpy()] = True
            if slot in corrupted:
                mark[corrupted[slot].numpy()] = True
        return torch.from_numpy(np.flatnonzero(mark))

    def _renumbered(
        self, rows: dict[str, Tensor], batch: Facts, corrupted: dict[str, Tensor]
    ) -> tuple[Facts, dict[str, Tensor]]:
        """The batch and its corruptions by their place among the touched rows."""
        corrupted = dict(corrupted)
        for kind, ids in rows.items():
            slots = self._slots_of(kind)
            place = np.empty(self.model.id_count(slots[0]), dtype=np.int64)
            place[ids.numpy()] = np.arange(len(ids))
            for slot in slots:
                batch = batch.with_slot(slot, torch.from_numpy(place[batch.column(slot).numpy()]))
                if slot in corrupted:
                    corrupted[slot] = torch.from_numpy(place[corrupted[slot].numpy()])
        return batch, corrupted

    def _slots_of(self, kind: str) -> list[str]:
        return [slot for slot in self.model.equation.slots if KINDS[slot] == kind]

    def _end_epoch(self) -> Epoch:
        self.epoch += 1
        self.optimizer.catch_up_()
        if self.recipe.smoothness and "time" in self.learned:
            self.bridges.interpolate_(self.model.time)
        loss, self.batch, self.loss_sum = self.loss_sum / len(self.facts), 0, 0.0
        if self.recipe.average:
            self._average()
        mrr, best = None, False
        if self.validate and (self.epoch % self.recipe.validate_every == 0 or self.epoch == self.recipe.epochs):
            with self.averaged():
                mrr = self.validate()
                best = self.best_mrr is None or mrr > self.best_mrr
                if best:
                    self.best = {name: value.clone() for name, value in self.model.state_dict().items()}
            self.stale = 0 if best else self.stale + 1
            if best:
                self.best_mrr, self.best_epoch = mrr, self.epoch
        return Epoch(self.epoch, loss, mrr, best)

    @torch.no_grad()
    def _average(self) -> None:
        """Bring the mean Σ i w_i / Σ i of the weights after epochs i up to the one that has ended."""
        share = 2 / (self.epoch + 1)
        for name, parameter in self.learned.items():
            if name in self.mean:
                self.mean[name].lerp_(parameter, share)
            else:
                self.mean[name] = parameter.detach().clone()

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """The model has the mean weights meanwhile, where there are any."""
        last = {name: self.learned[name].data for name in self.mean}
        for name, value in self.mean.items():
            self.learned[name].data = value
        try:
            yield
        finally:
            for name, value in last.items():
                self.learned[name].data = value


def _times(facts: Facts, corrupted: dict[str, Tensor]) -> Tensor:
    """The times of facts and of their corruptions, each once, sorted."""
    return torch.cat([facts.t, *(ids.reshape(-1) for slot, ids in corrupted.items() if slot == "t")]).unique()
