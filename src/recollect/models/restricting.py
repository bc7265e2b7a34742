"""A model without rows that later ids have: its first predicates, and some consecutive times."""

from __future__ import annotations

from torch import Tensor

from recollect.models.new_rows.tables import without_knots
from recollect.models.tensor_model import TensorModel


def restrict_model(model: TensorModel, predicates: int, first: int, last: int) -> TensorModel:
    """Return the model of its first predicates and of the times from `first` to `last`, both included; θ stays.

    Fewer times have a row each, interpolated from the knots.
    """
    tables: dict[str, Tensor] = {}
    before, times = model.sizes, last - first + 1
    if predicates < before["predicate"]:
        for name in model.table_names("predicate"):
            table: Tensor = getattr(model, name).detach()
            count = before["predicate"]
            directions = table.view(-1, count, *table.shape[1:])  # a reciprocal model has two rows of each
            tables[name] = directions[:, :predicates].flatten(0, 1)
    if times < before["time"]:
        model = without_knots(model)
        tables |= {name: getattr(model, name).detach()[first : last + 1] for name in model.table_names("time")}
    if not tables:
        return model
    restricted = model.with_rows(tables)
    restricted.sizes = before | {"predicate": predicates, "time": times}
    return restricted
