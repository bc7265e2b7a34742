"""Row selection: a step copies, differentiates and updates only the embedding rows that its batch touches.

A table of which a batch touches few rows is *lazy*: the step trains a small model of those rows only, with ids
renumbered, and the optimizer updates those rows of the table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from recollect.graph.facts import KINDS, Facts
from recollect.models.tensor_model import TensorModel
from recollect.training.objectives import Objective, TrainingBatch

LAZY_SHARE = 4  # a table is lazy if a batch touches at most 1/4 of its rows
SPARSE_SHARE = 512  # rows per touched row from which no array as long as the table is made


class RowSelection:
    """The lazy tables of a model, and the rows of them that a batch touches."""

    def __init__(self, model: TensorModel, objective: Objective, sample: Facts) -> None:
        """Choose the lazy tables by a typical batch."""
        self.model = model
        self.kinds = lazy_kinds(model, objective, sample)  # entity, predicate, time

    @property
    def tables(self) -> frozenset[str]:
        """Return the names of the lazy tables."""
        return frozenset(name for kind in self.kinds for name in self.model.table_names(kind))

    def select(self, batch: TrainingBatch) -> dict[str, Tensor]:
        """Return the sorted rows of each lazy kind that the batch touches."""
        return {kind: self.select_kind(kind, batch) for kind in self.kinds}

    def select_kind(self, kind: str, batch: TrainingBatch) -> Tensor:
        """Return the sorted rows of a kind that the batch touches."""
        if kind == "entity" and batch.entities is not None:
            return batch.entities
        return touched_rows(self.model, kind, batch.facts, batch.negatives)

    def gather(self, rows: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return copies of the selected rows of each kind's tables, by the name of the table."""
        tables = {}
        for kind, selected in rows.items():
            for name in self.model.table_names(kind):
                tables[name] = getattr(self.model, name).detach().index_select(0, selected.to(self.model.device))
        return tables

    def restrict(
        self, rows: Mapping[str, Tensor], batch: TrainingBatch, tables: Mapping[str, Tensor]
    ) -> tuple[TensorModel, TrainingBatch]:
        """Return a model with new leaves, of the selected rows only, and the batch with ids renumbered to them.

        `tables` are the selected rows, as `gather` returns them.
        """
        model, knots = self.model, None
        ids = dict(rows)
        if "time" in rows and model.knots is not None:
            ids["time"] = _times(batch.facts, batch.negatives)
            knots = model.knots.restrict(ids["time"], rows["time"])
        return model.with_rows(tables, knots), _renumber(model, ids, batch)


def lazy_kinds(model: TensorModel, objective: Objective, sample: Facts) -> frozenset[str]:
    """Return the kinds (entity, predicate, time) whose tables are lazy, given a typical batch of facts."""
    facts = model.normalize(sample)
    if model.config.reciprocal:
        facts = Facts.concat([facts, model.inverse(facts)])
    lazy = set()
    for kind in {KINDS[slot] for slot in model.equation.slots}:
        if kind == "entity" and objective.samples_entities(model):
            lazy.add(kind)
            continue
        if objective.scores_all(model, kind):
            continue
        negatives = sum(len(sample) * count for slot, count in objective.negatives.items() if KINDS[slot] == kind)
        touched = len(touched_rows(model, kind, facts, {})) + negatives
        if LAZY_SHARE * touched <= len(getattr(model, kind)):
            lazy.add(kind)
    return frozenset(lazy)


def touched_rows(model: TensorModel, kind: str, facts: Facts, negatives: Mapping[str, Tensor]) -> Tensor:
    """Return the sorted rows of a kind's tables that facts and negatives need; of times, their knots."""
    if kind == "time" and model.knots is not None:
        return model.knots.touched(_times(facts, negatives))
    slots = _slots_of(model, kind)
    ids = [facts.column(slot).numpy() for slot in slots]
    ids += [negatives[slot].numpy().reshape(-1) for slot in slots if slot in negatives]
    rows = len(getattr(model, kind))
    if _is_sparse(sum(map(len, ids)), rows):
        return torch.from_numpy(np.unique(np.concatenate(ids)))
    touched = np.zeros(rows, dtype=bool)
    for column in ids:
        touched[column] = True
    return torch.from_numpy(np.flatnonzero(touched))


def _renumber(model: TensorModel, ids: Mapping[str, Tensor], batch: TrainingBatch) -> TrainingBatch:
    """Return the batch with each id replaced by its position among the ids of its kind."""
    facts, negatives = batch.facts, dict(batch.negatives)
    for kind, selected in ids.items():
        slots = _slots_of(model, kind)
        position = _positions(selected.numpy(), model.id_count(slots[0]))
        for slot in slots:
            facts = facts.with_slot(slot, torch.from_numpy(position(facts.column(slot).numpy())))
            if slot in negatives:
                negatives[slot] = torch.from_numpy(position(negatives[slot].numpy()))
    return replace(batch, facts=facts, negatives=negatives)


def _positions(selected: NDArray[np.int64], count: int) -> Callable[[NDArray[np.int64]], NDArray[np.int64]]:
    """Return a function from ids in [0, count) to their positions among the sorted ids `selected` (R,)."""
    if _is_sparse(len(selected), count):
        return lambda ids: np.searchsorted(selected, ids)
    position = np.empty(count, dtype=np.int64)
    position[selected] = np.arange(len(selected))
    return lambda ids: position[ids]


def _is_sparse(ids: int, rows: int) -> bool:
    """Return whether sorting ids costs less than an array as long as the table."""
    return SPARSE_SHARE * ids < rows


def _slots_of(model: TensorModel, kind: str) -> list[str]:
    return [slot for slot in model.equation.slots if KINDS[slot] == kind]


def _times(facts: Facts, negatives: Mapping[str, Tensor]) -> Tensor:
    """Return the distinct times of facts and of their negatives, sorted."""
    sampled = [negatives["t"].reshape(-1)] if "t" in negatives else []
    return torch.cat([facts.t, *sampled]).unique()
