"""Resolve the options of a model: what the user left open is chosen from the data, the memory and the recipe."""

from __future__ import annotations

from dataclasses import dataclass

import psutil

from recollect.graph.facts import EpisodicGraph
from recollect.models.config import ModelConfig
from recollect.models.equation import Equation
from recollect.models.zoo import parameter_count, parse_model
from recollect.training.recipe import Recipe
from recollect.training.run import training_bytes

MEMORY_SHARE = 0.25  # of the free memory, for the weights and their copies while training
MIN_FACTS_PER_TIME = 2.0  # with fewer, most cores of times would be learned from a single fact
TENSOR_DIMS = ((40_000, 100, 12), (10_000, 60, 10), (2_000, 40, 8), (500, 16, 6), (0, 8, 4))
# (training facts from, dim, predicate dim) of ConT, Tucker, Tree and RESCAL, largest first
DIAGONAL_DIMS = ((40_000, 200, 200), (10_000, 100, 100), (2_000, 60, 60), (500, 32, 32), (0, 16, 16))
# the same of DistMult, HolE and ComplEx, whose predicates have the dim of their entities


@dataclass(frozen=True)
class _Options:
    """The options of a model that do not depend on the choice of model and dims."""

    form: str
    static: bool
    reciprocal: bool
    time_levels: tuple[int, ...]
    dtype: str

    def config(self, model: str, dim: int, predicate_dim: int | None, time_dim: int | None) -> ModelConfig:
        return ModelConfig(model=model, dim=dim, predicate_dim=predicate_dim, time_dim=time_dim, **vars(self))


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
    """Return the config to train, and one sentence that says what was chosen and why; "" if nothing was left open.

    The model "auto" is ConT with a static part, in the largest dims that suit the number of facts and fit in a quarter
    of the free memory; where even the smallest do not fit, or times have too few facts, it is ComplEx with a static
    part. `dim=None` is chosen alike for a named model. `reciprocal` and `time_levels` follow the recipe's objective.
    """
    auto = model.lower() == "auto"
    name = _choose_model(graph, form) if auto else model
    objective = recipe.for_model(name).objective()
    options = _Options(
        form=form,
        static=(auto and form == "episodic") if static is None else static,
        reciprocal=objective.is_symmetric if reciprocal is None else reciprocal,
        time_levels=(objective.time_levels if form == "episodic" else (1,)) if time_levels is None else time_levels,
        dtype=dtype,
    )
    if dim is not None:
        if auto and predicate_dim is None and name == "cont":
            predicate_dim = min(dim, TENSOR_DIMS[0][2])
        config = options.config(name, dim, predicate_dim, time_dim)
        return config, _reason(graph, config) if auto else ""
    fitting = _largest_fitting(graph, options, name, predicate_dim, time_dim)
    if auto and name == "cont" and not _fits(graph, fitting):
        fitting = _largest_fitting(graph, options, "complex", predicate_dim, time_dim)
    return fitting, _reason(graph, fitting)


def _choose_model(graph: EpisodicGraph, form: str) -> str:
    """Return cont, or complex where times have too few facts to learn a core tensor each."""
    facts_per_time = len(graph.split("train")) / max(1, graph.sizes["time"])
    return "cont" if form == "semantic" or facts_per_time >= MIN_FACTS_PER_TIME else "complex"


def _largest_fitting(
    graph: EpisodicGraph, options: _Options, model: str, predicate_dim: int | None, time_dim: int | None
) -> ModelConfig:
    """Return the model with the largest dims that suit the number of facts and fit; the smallest if none fits."""
    facts = len(graph.split("train"))
    equation = _equation(model, options.form)
    for least, dim, small_dim in DIAGONAL_DIMS if equation.is_diagonal else TENSOR_DIMS:
        chosen = small_dim if predicate_dim is None and _has_free_predicates(equation) else predicate_dim
        config = options.config(model, dim, chosen, time_dim)
        if facts >= least and _fits(graph, config):
            break
    return config


def _equation(model: str, form: str) -> Equation:
    """Return the equation of a form; the one there is if the model lacks it, which building the model will refuse."""
    kind = parse_model(model)
    wanted, other = (kind.semantic, kind.episodic) if form == "semantic" else (kind.episodic, kind.semantic)
    equation = wanted or other
    assert equation is not None
    return equation


def _has_free_predicates(equation: Equation) -> bool:
    """Return whether predicates are vectors whose only axis is their own, as in ConT and Tucker."""
    axes = equation.axes("p")
    return len(axes) == 1 and axes not in equation.axes("s") + equation.axes("o")


def _fits(graph: EpisodicGraph, config: ModelConfig) -> bool:
    return training_bytes(config, graph.sizes) <= MEMORY_SHARE * psutil.virtual_memory().available


def _reason(graph: EpisodicGraph, config: ModelConfig) -> str:
    """Return one sentence: the model, its size, and the numbers that it was chosen by."""
    sizes, dims = graph.sizes, config.dims
    words = [parse_model(config.model).__name__, f"dim {config.dim}"]
    words += [f"{kind} dim {dims[kind]}" for kind in ("predicate", "time") if dims[kind] != config.dim]
    if config.static:
        words.append("static")
    return (
        f"{', '.join(words)}: {len(graph.split('train')):,} training facts at {sizes['time']:,} times, "
        f"{parameter_count(config, sizes):,} parameters, {_gigabytes(training_bytes(config, sizes))} to train, "
        f"{MEMORY_SHARE:.0%} of the free memory being "
        f"{_gigabytes(MEMORY_SHARE * psutil.virtual_memory().available)}"
    )


def _gigabytes(count: float) -> str:
    return f"{count / 2**30:.2g} GB"
