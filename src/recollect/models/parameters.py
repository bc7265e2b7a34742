"""Derive the shape of every parameter of a model from its equations, before any memory is allocated."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from recollect.engine import Zeros
from recollect.errors import UserError
from recollect.graph.facts import KINDS
from recollect.models.config import ModelConfig
from recollect.models.equation import Equation
from recollect.models.time_knots import TimeKnots

if TYPE_CHECKING:
    from recollect.models.tensor_model import TensorModel

BLOCK_ELEMENTS = 2**22  # drawn at a time (16 MiB)
STATIC = "static_"  # prefix of the parameters that only the added semantic equation has


def equations_of(model: type[TensorModel], config: ModelConfig) -> dict[str, Equation]:
    """Return the equations whose sum is θ, keyed by the prefix of their own parameters."""
    wanted = {"": config.form} | ({STATIC: "semantic"} if config.static else {})
    found: dict[str, Equation] = {}
    for prefix, form in wanted.items():
        equation = model.episodic if form == "episodic" else model.semantic
        if equation is None:
            other = "semantic" if form == "episodic" else "episodic"
            raise UserError(f"{model.__name__} has no {form} form; it has {other}")
        found[prefix] = equation
    return found


def table_name(equations: Mapping[str, Equation], prefix: str, slot: str) -> str:
    """Return the name of a slot's embedding table.

    All equations share the tables; a semantic equation without a core of its own, or with a diagonal one, owns its
    predicate embeddings.
    """
    own = prefix and slot == "p" and equations[prefix].is_diagonal
    return prefix + KINDS[slot] if own else KINDS[slot]


def parameter_shapes(
    model: type[TensorModel], config: ModelConfig, sizes: Mapping[str, int]
) -> dict[str, tuple[int, ...]]:
    """Return the shape of every parameter by name; `sizes` counts entities, predicates and times."""
    rows = dict(sizes)
    if config.reciprocal:
        rows["predicate"] *= 2
    if config.time_levels != (1,):
        rows["time"] = TimeKnots.of(sizes["time"], config.time_levels).count
    equations = equations_of(model, config)
    shapes: dict[str, tuple[int, ...]] = {}
    for prefix, equation in equations.items():
        dims = config.dims | ({"time": config.dim} if prefix else {})
        length = _axis_lengths(model, equation, dims, config)
        for slot, axes in equation.factors:
            row = [length[axis] for axis in axes] + ([model.components] if model.components > 1 else [])
            shapes[table_name(equations, prefix, slot)] = (rows[KINDS[slot]], *row)
        for number, axes in enumerate(equation.cores):
            shapes[f"{prefix}core{number}"] = tuple(length[axis] for axis in axes)
    return shapes


def _axis_lengths(
    model: type[TensorModel], equation: Equation, dims: Mapping[str, int], config: ModelConfig
) -> dict[str, int]:
    """Return the length of each latent axis: the dim of the kinds whose smallest factors carry it."""
    owners = {axis: _owners(equation, axis) for _, axes in equation.factors for axis in axes}
    used = set().union(*owners.values())
    for kind, dim in dims.items():
        if kind not in used and dim != dims["entity"]:
            raise UserError(f"the {config.form} {model.__name__} has no {kind} dim of its own; got {dict(dims)}")
    lengths: dict[str, int] = {}
    for axis, kinds in owners.items():
        found = {dims[kind] for kind in kinds}
        if len(found) > 1:
            raise UserError(f"{model.__name__} needs one dim for {' and '.join(sorted(kinds))}; got {dict(dims)}")
        lengths[axis] = found.pop()
    return lengths


def _owners(equation: Equation, axis: str) -> set[str]:
    carriers = [(len(axes), KINDS[slot]) for slot, axes in equation.factors if axis in axes]
    smallest = min(carriers)[0]
    return {kind for order, kind in carriers if order == smallest}


def all_finite(tensor: Tensor) -> bool:
    """Return whether there is no NaN and no infinity, by the extremes: several times faster than `isfinite`."""
    return not tensor.numel() or all(math.isfinite(extreme) for extreme in tensor.aminmax())


def initial_parameter(
    shape: tuple[int, ...],
    dtype: torch.dtype,
    device: torch.device | str | None,
    generator: torch.Generator | None,
    zeros: Zeros = torch.zeros,
) -> nn.Parameter:
    """Return U(−b, b) with b = √(6 / (fan_in + fan_out)), a tensor counted as (first axis) × (all others).

    On the device "meta" there are no numbers, only the shape: weights that are loaded need no initial ones. `zeros`
    allocates the tensor.
    """
    if device == "meta":
        return nn.Parameter(torch.empty(shape, dtype=dtype, device=device))
    weight: Tensor = zeros(shape, dtype=dtype)
    matrix = weight.flatten(1) if weight.dim() > 1 else weight[None]
    nn.init.xavier_uniform_(matrix, generator=generator)
    return nn.Parameter(weight.to(device))


def initial_rows(
    shape: tuple[int, ...],
    dtype: torch.dtype,
    rows: Tensor,
    generator: torch.Generator | None,
    zeros: Zeros = torch.zeros,
) -> Tensor:
    """Return some rows, sorted, of what `initial_parameter` draws, (R, …): the whole table is never in memory."""
    width = math.prod(shape[1:])
    bound = math.sqrt(3) * math.sqrt(2 / (shape[0] + width))  # rounded as in torch.nn.init.xavier_uniform_
    found = zeros((len(rows), width), dtype=dtype)
    block = max(1, BLOCK_ELEMENTS // width)
    for start in range(0, shape[0], block):
        drawn = torch.empty(min(block, shape[0] - start), width, dtype=dtype).uniform_(
            -bound, bound, generator=generator
        )
        first, last = torch.searchsorted(rows, torch.tensor([start, start + block])).tolist()
        found[first:last] = drawn[rows[first:last] - start]
    return found.view(len(rows), *shape[1:])
