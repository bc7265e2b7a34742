"""Derive a semantic model from an episodic one with a given time row: the paper's projection."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from recollect.errors import UserError
from recollect.graph.facts import KINDS
from recollect.graph.seeds import seeded
from recollect.models.config import ModelConfig
from recollect.models.parameters import STATIC
from recollect.models.tensor_model import TensorModel
from recollect.models.zoo import MODELS, build_model


def check_projectable(model: TensorModel) -> None:
    """Raise UserError unless θ is linear in one time embedding."""
    if model.config.form != "episodic" or model.config.static or len(model.equation.occurrences("t")) > 1:
        form = "static" if model.config.static else model.config.form
        equations = {name: kind.episodic for name, kind in MODELS.items() if kind.episodic is not None}
        linear = [name for name, equation in equations.items() if len(equation.occurrences("t")) == 1]
        raise UserError(
            f"the {form} {type(model).__name__} is not linear in one time, so it has no projection; "
            f"models that have one: {', '.join(linear)}"
        )


def plain_model(model: TensorModel) -> TensorModel:
    """Return the model without inverse predicates, time knots and static equation; θ of its own equation stays."""
    config = replace(model.config, static=False, reciprocal=False, time_levels=(1,))
    if config == model.config:
        return model
    weights = {name: value for name, value in model.state_dict().items() if not name.startswith(STATIC)}
    for slot in model.slots:
        weights[KINDS[slot]] = model.rows(slot).detach()
    return _with_weights(model, config, weights)


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
        weights["predicate"] = model.lower(lifted)
    name = next(name for name, kind in MODELS.items() if kind is target)
    config = replace(model.config, model=name, form="semantic", time_dim=None)
    if model.semantic_counterpart is not None:
        config = replace(config, predicate_dim=None)
    return _with_weights(model, config, weights)


def _with_weights(like: TensorModel, config: ModelConfig, weights: Mapping[str, Tensor]) -> TensorModel:
    """Return the model of a config with the given weights, and with the sizes and the device of `like`."""
    model = build_model(config, like.sizes, device=like.device, generator=seeded(0))
    model.load_state_dict(weights)
    return model
