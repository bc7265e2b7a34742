"""Embedding tables with rows for more ids: where the trained rows go, what new ones hold before they are solved for.

A *row key* (kind, number, inverse) names a row independently of how many ids there are: `number` is the id of an entity
or predicate, or of a time counted from the first trained one; `inverse` marks the row of an inverse predicate.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from recollect.graph.facts import KINDS
from recollect.models.tensor_model import TensorModel
from recollect.models.time_knots import TimeKnots
from recollect.models.zoo import build_model


class RowKey(NamedTuple):
    """A row of the tables of a kind."""

    kind: str
    number: int
    inverse: bool = False


def without_knots(model: TensorModel) -> TensorModel:
    """Return the model with a row for every time, interpolated from its knots; θ stays, up to rounding."""
    if model.knots is None:
        return model
    weights = {name: value.detach() for name, value in model.named_parameters()}
    weights["time"] = model.rows("t").detach()
    plain = build_model(replace(model.config, time_levels=(1,)), model.sizes, device="meta")
    plain.load_state_dict(weights, assign=True)
    return plain


@dataclass(frozen=True, eq=False)
class Layout:
    """The sizes of a trained model and of one that has more ids; `earlier` times come before the trained ones."""

    trained: Mapping[str, int]
    sizes: Mapping[str, int]
    earlier: int = 0

    def id(self, key: RowKey) -> int:
        """Return the id of a row as facts that are asked have it: an inverse predicate's is p + P."""
        if key.kind == "time":
            return self.time(key.number)
        return key.number + (self.sizes["predicate"] if key.inverse else 0)

    def time(self, number: int) -> int:
        """Return the id of a time that is counted from the first trained one."""
        return number + self.earlier

    def new_ids(self, kind: str) -> Tensor:
        """Return the ids of a kind that the trained model has no rows for."""
        ids = torch.arange(self.sizes[kind])
        first = self.earlier if kind == "time" else 0
        return ids[(ids < first) | (ids >= first + self.trained[kind])]

    def keys(self, model: TensorModel, kind: str, ids: Tensor) -> list[RowKey]:
        """Return the keys of all rows of some ids: two of a predicate in a reciprocal model, none without the slot."""
        if kind not in {KINDS[slot] for slot in model.slots}:
            return []
        first = self.earlier if kind == "time" else 0
        inverses = (False, True) if kind == "predicate" and model.config.reciprocal else (False,)
        return [RowKey(kind, int(number) - first, inverse) for number in ids for inverse in inverses]


def extended(trained: TensorModel, layout: Layout) -> TensorModel:
    """Return a model with rows for all ids of a layout; trained rows are copied, new ones hold zeros.

    Tables of kinds that have no new ids are shared with `trained`; all others are new.

    New knots of coarse time levels are copies of the last knot, so that a new time continues from the last trained one.
    Without a level of spacing 1, or with earlier times, the result has a row for every time.
    """
    grows = {kind: layout.sizes[kind] > layout.trained[kind] for kind in ("entity", "predicate", "time")}
    if grows["time"] and (layout.earlier or 1 not in trained.config.time_levels):
        trained = without_knots(trained)
    tables: dict[str, Tensor] = {}
    knots = None
    for kind, is_larger in grows.items():
        if not is_larger:
            continue
        for name in trained.table_names(kind):
            table: Tensor = getattr(trained, name).detach()
            if kind == "predicate" and trained.config.reciprocal:
                halves = [_padded(half, 0, layout.sizes[kind]) for half in table.split(layout.trained[kind])]
                tables[name] = torch.cat(halves)
            elif kind == "time" and trained.knots is not None:
                tables[name], knots = _extended_knots(table, trained.config.time_levels, layout)
            else:
                tables[name] = _padded(table, layout.earlier if kind == "time" else 0, layout.sizes[kind])
    return _resized(trained, tables, knots, layout.sizes)


def _resized(
    model: TensorModel, tables: Mapping[str, Tensor], knots: TimeKnots | None, sizes: Mapping[str, int]
) -> TensorModel:
    """Return the model with other tables and the sizes of their ids."""
    resized = model.with_rows(tables, knots)
    resized.sizes = dict(sizes)  # a reciprocal model has two rows per predicate
    return resized


def _padded(table: Tensor, before: int, count: int) -> Tensor:
    """Return the rows of a table after `before` rows of zeros, and zeros up to `count` rows."""
    padded = table.new_zeros(count, *table.shape[1:])
    padded[before : before + len(table)] = table
    return padded


def _extended_knots(table: Tensor, spacings: Iterable[int], layout: Layout) -> tuple[Tensor, TimeKnots]:
    """Return the knots of more times: trained knots, then copies of the last of each level; zeros at spacing 1."""
    old_times, times, parts, first = layout.trained["time"], layout.sizes["time"], [], 0
    for spacing in spacings:
        old = TimeKnots.of(old_times, (spacing,)).count
        new = TimeKnots.of(times, (spacing,)).count - old
        level = table[first : first + old]
        added = level[-1:].expand(new, *level.shape[1:])
        parts += [level, torch.zeros_like(added) if spacing == 1 else added]
        first += old
    return torch.cat(parts), TimeKnots.of(times, tuple(spacings))


def read_row(model: TensorModel, key: RowKey, layout: Layout) -> Tensor:
    """Return the row of a key, that of all tables of its kind one after the other: (d,)."""
    row = layout.id(key)
    if key.kind == "time" and model.knots is not None:
        return model.knots.rows(model.time.detach(), torch.tensor([row])).flatten()
    return torch.cat([getattr(model, name).detach()[row].flatten() for name in model.table_names(key.kind)])


@torch.no_grad()
def set_rows_(model: TensorModel, rows: Mapping[RowKey, Tensor], layout: Layout) -> None:
    """Set these rows in the model's tables."""
    for key, row in rows.items():
        for name in model.table_names(key.kind):
            table = getattr(model, name).detach()
            size = table[0].numel()
            value, row = row[:size].view(table.shape[1:]), row[size:]
            if key.kind == "time" and model.knots is not None:
                _set_time_(table, model, layout.id(key), value)
            else:
                table[layout.id(key)] = value


def with_rows_of(model: TensorModel, rows: Mapping[RowKey, Tensor], layout: Layout) -> TensorModel:
    """Return the model with these rows; tables without any of them are shared with `model`."""
    kinds = {key.kind for key in rows}
    tables = {name: getattr(model, name).detach().clone() for kind in kinds for name in model.table_names(kind)}
    changed = _resized(model, tables, None, layout.sizes)
    set_rows_(changed, rows, layout)
    return changed


def _set_time_(table: Tensor, model: TensorModel, time: int, value: Tensor) -> None:
    """Set the knot that only this time has, at spacing 1, so that the interpolated row of the time is `value`."""
    knots = model.knots
    assert knots is not None
    first = 0
    for spacing in model.config.time_levels:
        if spacing == 1:
            break
        first += TimeKnots.of(knots.times, (spacing,)).count
    own = first + time
    table[own] = 0
    table[own] = value - knots.rows(table, torch.tensor([time]))[0]
