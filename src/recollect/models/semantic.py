"""Derive the semantic model that an episodic one becomes at a fixed time: the paper's projection."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from recollect.errors import UserError
from recollect.models.parameters import STATIC
from recollect.models.tensor_model import TensorModel
from recollect.models.zoo import MODELS


def projectable_models() -> list[str]:
    """Return the names of the models that are linear in one time embedding."""
    return [name for name, model in MODELS.items() if model.episodic and len(model.episodic.occurrences("t")) == 1]


def check_projectable(model: TensorModel) -> None:
    """Raise UserError unless θ is linear in one time embedding."""
    if model.config.form != "episodic" or model.config.static or len(model.equation.occurrences("t")) > 1:
        form = "static" if model.config.static else model.config.form
        raise UserError(
            f"the {form} {type(model).__name__} is not linear in one time, so it has no projection; "
            f"models that have one: {', '.join(projectable_models())}"
        )


def plain_model(model: TensorModel) -> TensorModel:
    """Return the model without inverse predicates, time knots and static equation; θ of its own equation stays."""
    config = replace(model.config, static=False, reciprocal=False, time_levels=(1,))
    if config == model.config:
        return model
    kinds = {"s": "entity", "p": "predicate", "t": "time"}
    weights = {name: value.detach() for name, value in model.named_parameters() if not name.startswith(STATIC)}
    weights |= {kinds[slot]: model.rows(slot).detach() for slot in kinds if slot in model.slots}
    return _with_weights(type(model), model, replace(config), weights)


@torch.no_grad()
def semantic_model(model: TensorModel, row: Tensor) -> TensorModel:
    """Return the semantic model with θ[s,p,o] = θ[s,p,o,t] for a time with this table row.

    θ is linear in the row, so a sum of rows gives the sum of scores. Time is contracted with the core where there is
    one (DistMult, Tucker), else with every predicate (ComplEx, HolE; ConT's predicates become RESCAL's matrices).
    """
    check_projectable(model)
    target = model.semantic_counterpart or type(model)
    source_equation, target_equation = model.equation, target.semantic
    assert target_equation is not None
    # the axis of the episodic equation that each axis of the semantic one corresponds to
    axis = {
        new: old
        for slot in "pso"
        for old, new in zip(source_equation.axes(slot), target_equation.axes(slot), strict=False)
    }
    weights: dict[str, Tensor] = {"entity": model.entity, "predicate": model.predicate}
    factor, time_axes = model.lift("t", row[None])[0], source_equation.axes("t")
    if target_equation.cores:
        kept = "".join(axis[name] for name in target_equation.cores[0])
        weights["core0"] = torch.einsum(f"{time_axes},{source_equation.cores[0]}->{kept}", factor, model.core0)
    else:
        kept = "".join(axis[name] for name in target_equation.axes("p"))
        predicates = model.lift("p", model.predicate)
        lifted = torch.einsum(f"{time_axes},N{source_equation.axes('p')}->N{kept}", factor, predicates)
        weights["predicate"] = model.lower("p", lifted)
    name = next(name for name, kind in MODELS.items() if kind is target)
    config = replace(model.config, model=name, form="semantic", time_dim=None)
    if model.semantic_counterpart is not None:
        config = replace(config, predicate_dim=None)
    return _with_weights(target, model, config, weights)


def _with_weights(
    target: type[TensorModel], like: TensorModel, config: object, weights: dict[str, Tensor]
) -> TensorModel:
    model = target(like.sizes, config, device=like.device, generator=torch.Generator().manual_seed(0))  # type: ignore[arg-type]
    model.load_state_dict({name: value.detach().contiguous() for name, value in weights.items()})
    return model
