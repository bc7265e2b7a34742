"""The training loop of one process among several: equal to the loop of a single process, up to rounding.

Every process draws the same order, the same batch and the same negatives or candidates from the same generator, keeps
its share of the batch's facts, and exchanges rows and gradients where its tables are not whole.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

import torch
from torch import Tensor, nn

from recollect.engine import Tables, distinct_counts
from recollect.errors import UserError
from recollect.graph.facts import Facts
from recollect.models.config import ModelConfig
from recollect.models.parameters import STATIC, initial_parameter, initial_rows
from recollect.models.tensor_model import TensorModel
from recollect.models.zoo import build_model
from recollect.training.distributed.placements import (
    Placement,
    Replicated,
    RowSharded,
    SharedBatch,
    TimeSharded,
    shardable_by_time,
)
from recollect.training.distributed.processes import Processes
from recollect.training.distributed.smoothness import ShardSmoothness
from recollect.training.objectives import TrainingBatch
from recollect.training.recipe import Recipe
from recollect.training.trainer import Trainer

GATHER_BYTES = 2**25  # of the rows that are sent to the first process at a time


class DistributedTrainer(Trainer):
    """Train a model together with other processes; every process iterates it and gets the same records."""

    def __init__(
        self,
        model: TensorModel,
        facts: Facts,
        recipe: Recipe,
        *,
        processes: Processes,
        generator: torch.Generator,
        validate: Callable[[], float] | None = None,
        shard: bool = False,
        tables: Tables | None = None,
    ) -> None:
        """`model` is an `empty_model`, whose weights are drawn here; `shard` shards entities and predicates by row.

        `tables` allocates what this process holds.
        """
        self.processes, self.shard = processes, shard
        self.placements: dict[str, Placement] = {}
        self.local: dict[str, nn.Parameter] = {}  # the rows that this process holds of every parameter
        self.is_gathered = False  # whether the first process has the whole tables
        super().__init__(model, facts, recipe, generator=generator, validate=validate, tables=tables)
        time = self.placements.get("time")
        if isinstance(time, TimeSharded):
            weight = self.recipe.filled("smoothness")
            self.smoothness = ShardSmoothness(model, facts, weight, time, self.local["time"])
        typical = self.sampler.typical_batch()[: -(-self.recipe.batch_size // processes.count)]
        columns = {slot: model.normalize(typical).column(slot) for slot in model.slots}
        self.counts = distinct_counts(model.equation.terms, columns)

    def _trained(self, learn: Collection[str] | None) -> dict[str, nn.Parameter]:
        """Place the tables, and draw the weights that a single process would draw."""
        self.placements = self._place()
        for name, empty in list(self.model.named_parameters()):
            placement, shape = self.placement(name), tuple(empty.shape)
            if placement is None or placement.is_whole:
                parameter = initial_parameter(shape, empty.dtype, empty.device, self.generator, self.tables.zeros)
                self.model.register_parameter(name, parameter)
            else:
                rows = initial_rows(shape, empty.dtype, placement.held, self.generator, self.tables.zeros)
                parameter = nn.Parameter(rows.to(empty.device))
            self.local[name] = parameter
        return dict(self.local)

    def _place(self) -> dict[str, Placement]:
        """Return where the rows of every kind of tables are."""
        kinds = [kind for kind in ("entity", "predicate", "time") if hasattr(self.model, kind)]
        placements: dict[str, Placement] = {kind: Replicated(kind, self.rows, self.processes) for kind in kinds}
        if shardable_by_time(self.model, self.objective.slots, self.processes):
            is_smooth = self.recipe.filled("smoothness") > 0
            placements["time"] = TimeSharded(self.rows, self.sampler.facts, self.processes, is_smooth=is_smooth)
        if self.shard:
            lazy = [kind for kind in ("entity", "predicate") if kind in self.rows.kinds]
            if not lazy:
                raise UserError(
                    "a batch needs more than a quarter of the entities and of the predicates, so nothing is gained by "
                    "sharding; leave out --shard, lower the batch size, or sample fewer candidates or negatives"
                )
            placements |= {kind: RowSharded(kind, self.rows, self.processes) for kind in lazy}
        return placements

    def placement(self, name: str) -> Placement | None:
        """Return where the rows of a parameter are; None for core tensors, which every process holds."""
        return self.placements.get(name.removeprefix(STATIC))

    @property
    def sharded(self) -> dict[str, Placement]:
        """Return the placements of the tables that are not whole in every process, by the name of the table."""
        found = {name: self.placement(name) for name in self.local}
        return {name: each for name, each in found.items() if each is not None and not each.is_whole}

    # -- one step -----------------------------------------------------------------------------------------------------

    def _step(self, facts: Facts) -> float:
        whole = self.objective.sample(self.model, self.model.normalize(facts), self.known, self.generator)
        batch = self._share(whole)
        rows, part, own = self.restrict(batch)
        loss, grads = self._share_gradients(part, own, whole.count)
        is_local = isinstance(self.placements.get("time"), TimeSharded)
        if is_local:
            self.smoothness.add_gradient_(grads, facts.t, rows["time"])
        loss, updates = self._exchange(loss, rows, grads)
        self._check_finite(loss)
        if not is_local:
            summed = {name: grad for name, (_, grad) in updates.items()}
            self.smoothness.add_gradient_(summed, facts.t, rows.get("time"))
        self.optimizer.step(updates)
        return loss

    def _share(self, whole: TrainingBatch) -> SharedBatch:
        """Return the batch with the share of every process: facts of its times, else consecutive facts."""
        time = self.placements.get("time")
        if isinstance(time, TimeSharded):
            chosen = time.shares(whole.facts.t[: whole.count])
        else:
            chosen = list(torch.arange(whole.count).tensor_split(self.processes.count))
        return SharedBatch(whole, [whole.share(facts) for facts in chosen], self.processes.rank)

    def restrict(self, batch: SharedBatch) -> tuple[dict[str, Tensor], TensorModel, TrainingBatch]:
        """Return the rows that this process's share needs, a model of these rows, and the share renumbered to them."""
        selected = {kind: placement.select(batch) for kind, placement in self.placements.items()}
        rows = {kind: chosen for kind, chosen in selected.items() if chosen is not None}
        sharded = {kind: each for kind, each in self.placements.items() if isinstance(each, RowSharded)}
        self._prefetch({kind: placement.touched for kind, placement in sharded.items()})
        gathered = {}
        for kind, chosen in rows.items():
            for name in self.model.table_names(kind):
                gathered[name] = self.placements[kind].gather(self.local[name].detach(), chosen)
        return rows, *self.rows.restrict(rows, batch.own, gathered)

    def _share_gradients(self, part: TensorModel, own: TrainingBatch, count: int) -> tuple[float, dict[str, Tensor]]:
        """Return this share's part of the mean loss of a batch of `count` facts, and its gradients."""
        value = 0.0
        if own.count:
            loss = self.objective.loss(part, own, self.counts) / count
            loss.backward()
            value = loss.item()
        leaves = dict(part.named_parameters())
        grads = {name: torch.zeros_like(leaf) if leaf.grad is None else leaf.grad for name, leaf in leaves.items()}
        return value, grads

    def _exchange(
        self, loss: float, rows: Mapping[str, Tensor], grads: Mapping[str, Tensor]
    ) -> tuple[float, dict[str, tuple[Tensor | None, Tensor]]]:
        """Return the loss of the whole batch, and for every table the held rows to update and their gradient."""
        parts, purposes = [next(iter(grads.values())).new_tensor([loss])], ["loss"]
        for name, grad in grads.items():
            placement = self.placement(name)
            selected = rows.get(name.removeprefix(STATIC))
            parts.append(grad if placement is None else placement.summed_part(selected, grad))
            purposes.append(f"{name} gradients")
        total, *sums = self.processes.sum_(parts, purposes)
        updates: dict[str, tuple[Tensor | None, Tensor]] = {}
        for (name, grad), summed in zip(grads.items(), sums, strict=True):
            placement = self.placement(name)
            selected = rows.get(name.removeprefix(STATIC))
            updates[name] = (None, summed) if placement is None else placement.update(selected, grad, summed)
        return total.item(), updates

    # -- weights ------------------------------------------------------------------------------------------------------

    @property
    def weights(self) -> dict[str, Tensor]:
        return {name: table.detach() for name, table in self.local.items()}

    @torch.no_grad()
    def load_weights_(self, weights: Mapping[str, Tensor]) -> None:
        for name, value in weights.items():
            self.local[name].copy_(value)

    def finish_(self) -> None:
        """Load the weights of the best validation and put the whole model together in the first process."""
        super().finish_()
        if self.is_gathered:
            return
        for name, placement in self.sharded.items():
            whole = self._gather_whole(name, placement, self.local[name].detach())
            self.model.register_parameter(name, nn.Parameter(whole))
        self.is_gathered = True

    def _gather_whole(self, name: str, placement: Placement, table: Tensor) -> Tensor:
        """Return a whole table in the first process, block by block; elsewhere one row in the place of all."""
        shape = getattr(self.model, name).shape
        whole = table[:1].expand(shape)
        if self.processes.is_first:
            whole = self.tables.zeros(shape, dtype=table.dtype, device=table.device)
        if self.processes.is_first:
            whole[placement.held] = table
        block = max(1, GATHER_BYTES // table[:1].nbytes)
        for source in range(1, self.processes.count):
            owned = placement.owned_by(source)
            for ids in owned.split(block):
                mine = self.processes.rank == source
                rows = table[placement.local(ids)] if mine else table.new_empty(len(ids), *shape[1:])
                self.processes.send_to_first(rows, source, f"{name} rows at the end")
                if self.processes.is_first:
                    whole[ids] = rows
        return whole


def empty_model(config: ModelConfig, sizes: Mapping[str, int], device: torch.device | str = "cpu") -> TensorModel:
    """Return a model whose parameters have their shapes and no memory: one row in the place of all."""
    model = build_model(config, sizes, device="meta")
    for name, parameter in list(model.named_parameters()):
        row = torch.zeros(1, *parameter.shape[1:], dtype=parameter.dtype, device=device)
        model.register_parameter(name, nn.Parameter(row.expand(parameter.shape)))
    return model
