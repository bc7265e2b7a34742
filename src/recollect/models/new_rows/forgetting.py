"""Take out of the rows of trained ids what they learned from facts that are forgotten.

A trained row is taken as the minimum of the losses of its facts. Without some of them the minimum is, to first order,
at x + H⁻¹ g, g being their gradient at x and H the Hessian of what stays: the facts that are left, the background and
the ridge; no farther than rows are apart. All rows of a forgotten fact are corrected, each with the others as they were
trained.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from recollect.graph.facts import KINDS, Facts, encode
from recollect.models.new_rows.likelihood import downdate
from recollect.models.new_rows.tables import RowKey, read_row
from recollect.models.new_rows.trained import Trained

FACTS = 64  # that are left, at most: they give a curvature only


@torch.no_grad()
def rows_without(
    trained: Trained,
    forgotten: Facts,
    *,
    known: Mapping[RowKey, Tensor] | None = None,
    changed: Facts | None = None,
) -> dict[RowKey, Tensor]:
    """Return the rows of the ids of forgotten facts without these, by key; all facts have the ids of the trained model.

    Rows that are `known` stay if none of the `changed` facts has their id.
    """
    model, layout = trained.model, trained.index.layout
    codes = encode(forgotten, model.sizes)
    rows: dict[RowKey, Tensor] = {}
    for kind in {KINDS[slot] for slot in model.slots}:
        slots = [slot for slot in model.slots if KINDS[slot] == kind]
        if kind == "time" and 1 not in model.config.time_levels:
            continue  # no row belongs to one time
        ids = torch.cat([forgotten.column(slot) for slot in slots]).unique()
        touched = set() if changed is None else {int(i) for slot in slots for i in changed.column(slot)}
        for key in layout.keys(model, kind, ids):
            if known is not None and key in known and key.number not in touched:
                rows[key] = known[key]
                continue
            row = read_row(model, key, layout)
            facts = trained.index.of(key)
            is_lost = torch.isin(encode(facts, model.sizes), codes)
            lost = trained.problem(model, trained.index, key, facts[is_lost], background=False)
            left = trained.problem(model, trained.index, key, facts[~is_lost], most=FACTS)
            if lost is not None:
                limit = trained.deviation(kind) * row.numel() ** 0.5
                rows[key] = downdate(left, lost, row, ridge=trained.ridge(kind), limit=limit)
    return rows
