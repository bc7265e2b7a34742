"""Choose the options of a model that the user left open, from the data, the free memory and the recipe."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from recollect.graph.facts import EpisodicGraph
from recollect.graph.free_memory import free_memory
from recollect.graph.runs import has_runs, split_runs
from recollect.models.config import ModelConfig
from recollect.models.equation import Equation
from recollect.models.parameters import equations_of
from recollect.models.zoo import parameter_count, parse_model
from recollect.training.recipe import Recipe
from recollect.training.run import training_bytes

DIMS = ("dim", "predicate_dim", "time_dim")
HISTORY = "history"  # the model name of a memory that has no model
SEED_STEP = 1000  # between the seeds of the models of a sum, so that sums of neighbouring seeds share none
MEMORY_SHARE = 0.25  # of the free memory, for the weights and their copies while training
MIN_MODEL_FACTS = 2000  # with fewer, models added nothing to the history of parts of ICEWS14 and two other graphs
MIN_FACTS_PER_TIME = 2.0  # with fewer, most core tensors of times would be learned from a single fact
SPARSE_FACTS_PER_TIME = 1.0  # with fewer, most times have no fact, and a model would learn their rows from nothing
TENSOR_DIMS = ((40_000, 100, 12), (10_000, 60, 10), (2_000, 40, 8), (500, 16, 6), (0, 8, 4))
# (minimum of training facts, dim, predicate dim) of ConT, Tucker, Tree and RESCAL, largest first
DIAGONAL_DIMS = ((40_000, 200, 200), (10_000, 100, 100), (2_000, 60, 60), (500, 32, 32), (0, 16, 16))
# the same of DistMult, HolE and ComplEx, whose predicates have the dim of their entities


def parse_models(text: str) -> list[str]:
    """Return the names of the models that a text adds up; the history of a graph is no model.

    >>> parse_models("cont+complex"), parse_models("History"), parse_models("history+cont")
    (['cont', 'complex'], [], ['cont'])
    """
    names = [name.strip() for name in text.split("+")]
    return [name for name in names if name.lower() != HISTORY]


def resolve_configs(
    graph: EpisodicGraph,
    recipe: Recipe,
    *,
    model: str = "auto",
    history: bool = True,
    stored: Sequence[ModelConfig] = (),
    **options: Any,
) -> tuple[list[ModelConfig], str]:
    """Return the configs of all models of a sum like "cont+complex", as `resolve_config` does each, and one sentence.

    The model "history" has none, and neither has "auto" where models add nothing to the history. `stored` are the
    models of an interrupted run, whose choices are kept: a choice depends on the memory that is free, which may differ
    when the run is resumed.
    """
    resolved = []
    for number, name in enumerate(parse_models(model)):
        given = {"model": name, **options}
        if number < len(stored):
            given |= {field: getattr(stored[number], field) for field in _left_open(given)}
        resolved.append(resolve_config(graph, recipe, **given))
    if model.lower() == "auto" and history and not stored:
        reason = _why_history(graph, options)
        if reason:
            return [], reason
    reasons = [reason for _, reason in resolved if reason]
    if resolved and has_runs(graph):
        reasons.append(f"{_in_words(graph)}, which are trained on one by one")
    return [config for config, _ in resolved], "; ".join(reasons)


def _why_history(graph: EpisodicGraph, options: Mapping[str, Any]) -> str:
    """Return why history alone is chosen; "" if a model is, as it is where `dim` or a semantic form is given.

    History reads intervals as they are, while models need a fact for every time, and some facts at every time. Of
    triples without time it reads little.
    """
    if options.get("dim") is not None or options.get("form") == "semantic" or len(graph.times) < 2:
        return ""
    if has_runs(graph):
        return f"{HISTORY}: {_in_words(graph)}, which it reads as they are"
    return why_history_alone(graph.counts["train"], len(graph.times))


def why_history_alone(facts: int, times: int) -> str:
    """Return why history alone is chosen for so many facts at so many times; "" if a model is tried too."""
    if facts < MIN_MODEL_FACTS:
        return f"{HISTORY}: {facts:,} facts are few; from {MIN_MODEL_FACTS:,} on, a model is tried too"
    if facts < SPARSE_FACTS_PER_TIME * times:
        return f"{HISTORY}: {facts:,} facts at {times:,} times, most of which a model could not learn"
    return ""


def _in_words(graph: EpisodicGraph) -> str:
    runs = sum(map(len, split_runs(graph).values()))
    return f"{runs:,} intervals of {sum(graph.counts.values()):,} facts at {graph.times.grain} grain"


def _left_open(options: Mapping[str, Any]) -> list[str]:
    """Return the options that are to be chosen: dims only if none of them is given."""
    dims_given = any(options.get(name) is not None for name in DIMS)
    return [name for name, value in options.items() if value in (None, "auto") and not (name in DIMS and dims_given)]


def resolve_config(graph: EpisodicGraph, recipe: Recipe, **options: Any) -> tuple[ModelConfig, str]:
    """Return the config to train a graph, and one sentence, as `config_for_sizes` chooses them for the free memory."""
    return config_for_sizes(graph.sizes, graph.counts["train"], recipe, free_memory(), **options)


def config_for_sizes(
    sizes: Mapping[str, int],
    facts: int,
    recipe: Recipe,
    free: int,
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

    `sizes` counts entities, predicates and times, `facts` those of training, `free` the bytes of memory. The model
    "auto" is ConT with a static part, in the largest dims that suit the number of facts and fit in a quarter of the
    free memory; where even the smallest do not fit, or times have too few facts, it is ComplEx with a static part.
    `dim=None` is chosen alike for a named model. `reciprocal` and `time_levels` follow the recipe's objective.
    """
    auto = model.lower() == "auto"
    name = _choose_model(sizes, facts, form) if auto else model
    objective = recipe.for_model(name).objective()
    if static is None:
        static = auto and form == "episodic"
    if reciprocal is None:
        reciprocal = objective.is_symmetric
    if time_levels is None:
        time_levels = objective.time_levels if form == "episodic" else (1,)
    config = ModelConfig(
        model=name,
        dim=1 if dim is None else dim,
        predicate_dim=predicate_dim,
        time_dim=time_dim,
        form=form,
        static=static,
        reciprocal=reciprocal,
        time_levels=time_levels,
        dtype=dtype,
    )
    if dim is not None:
        if auto and predicate_dim is None and name == "cont":
            config = replace(config, predicate_dim=min(dim, TENSOR_DIMS[0][2]))
        return config, _reason(sizes, facts, config, free) if auto else ""
    allowed = MEMORY_SHARE * free
    config = _with_largest_dims(sizes, facts, config, allowed)
    if auto and name == "cont" and training_bytes(config, sizes) > allowed:
        config = replace(config, model="complex", predicate_dim=predicate_dim)
        config = _with_largest_dims(sizes, facts, config, allowed)
    return config, _reason(sizes, facts, config, free)


def _choose_model(sizes: Mapping[str, int], facts: int, form: str) -> str:
    """Return cont, or complex where times have too few facts to learn a core tensor each."""
    facts_per_time = facts / max(1, sizes["time"])
    return "cont" if form == "semantic" or facts_per_time >= MIN_FACTS_PER_TIME else "complex"


def _with_largest_dims(sizes: Mapping[str, int], facts: int, config: ModelConfig, allowed: float) -> ModelConfig:
    """Return the config with the largest dims that suit the number of facts and fit; the smallest if none fits."""
    equation = equations_of(parse_model(config.model), config)[""]
    choose_predicate_dim = config.predicate_dim is None and _has_predicate_axis(equation)
    for min_facts, dim, predicate_dim in DIAGONAL_DIMS if equation.is_diagonal else TENSOR_DIMS:
        config = replace(config, dim=dim)
        if choose_predicate_dim:
            config = replace(config, predicate_dim=predicate_dim)
        if facts >= min_facts and training_bytes(config, sizes) <= allowed:
            break
    return config


def _has_predicate_axis(equation: Equation) -> bool:
    """Return whether predicates are vectors along an axis that entities lack, as in ConT and Tucker."""
    axes = equation.axes("p")
    return len(axes) == 1 and axes not in equation.axes("s") + equation.axes("o")


def _reason(sizes: Mapping[str, int], facts: int, config: ModelConfig, free: int) -> str:
    """Return one sentence: the model, its size, and the numbers that it was chosen by."""
    dims = config.dims
    words = [parse_model(config.model).__name__, f"dim {config.dim}"]
    words += [f"{kind} dim {dims[kind]}" for kind in ("predicate", "time") if dims[kind] != config.dim]
    if config.static:
        words.append("static")
    needed, allowed = training_bytes(config, sizes), MEMORY_SHARE * free
    return (
        f"{', '.join(words)}: {facts:,} training facts at {sizes['time']:,} times, "
        f"{parameter_count(config, sizes):,} parameters, {needed / 2**30:.2g} GiB to train, "
        f"{MEMORY_SHARE:.0%} of the free memory being {allowed / 2**30:.2g} GiB"
    )
