"""Adapters to training/ and memory/ whose interfaces are being renamed; to be removed at the merge."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import recollect.training.recipe as recipes
from recollect.errors import UserError
from recollect.graph.facts import EpisodicGraph
from recollect.memory.memory import Memory
from recollect.models.config import ModelConfig
from recollect.training.recipe import Recipe
from recollect.training.run import TrainingRun


def parse_recipe(name: str, changes: Mapping[str, Any]) -> Recipe:
    """Return `replace(recipes.parse_recipe(name), **changes)`."""
    return replace(recipes.parse_recipe(name), **changes)


def suit(recipe: Recipe, name: str, model: str) -> Recipe:
    """Return `recipe`: TrainingRun applies `for_model` itself."""
    if hasattr(Recipe, "for_model"):
        return recipe
    plain = recipes.parse_recipe(name)
    names = [field.name for field in fields(Recipe)]
    changes = {each: getattr(recipe, each) for each in names if getattr(recipe, each) != getattr(plain, each)}
    return replace(recipes.parse_recipe(name, model), **changes)


def for_model(name: str, model: str) -> Recipe:
    """Return `recipes.parse_recipe(name).for_model(model)`."""
    if hasattr(Recipe, "for_model"):
        return getattr(recipes.parse_recipe(name), "for_model")(model)  # noqa: B009
    return recipes.parse_recipe(name, model)


def parse_option(name: str, text: str) -> Any:
    """Return `Recipe.parse_option(name, text)`."""
    if hasattr(Recipe, "parse_option"):
        return getattr(Recipe, "parse_option")(name, text)  # noqa: B009
    from recollect.models.time_knots import parse_time_levels
    from recollect.training.negatives import parse_negatives

    (kind,) = [str(field.type) for field in fields(Recipe) if field.name == name]
    special = {"negatives": parse_negatives, "predict": recipes.check_predict, "levels": parse_time_levels}
    if name in special:
        return special[name](text)
    if kind == "bool":
        if text not in ("true", "false"):
            raise UserError(f"{name} must be true or false; got {text!r}")
        return text == "true"
    try:
        return {"int": int, "float": float}.get(kind, str)(text)
    except ValueError:
        wanted = "a whole number" if kind == "int" else "a number"
        raise UserError(f"{name} must be {wanted}; got {text!r}") from None


def unused_settings(recipe: Recipe, changes: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """Return the changed settings that the recipe's loss does not use, with the losses that use them."""
    used_by: Mapping[str, tuple[str, ...]] = getattr(recipes, "USED_BY", {})
    return {name: used_by[name] for name in changes if name in used_by and recipe.loss not in used_by[name]}


def trainer_of(run: TrainingRun) -> Any:
    """Return `run.trainer`."""
    return getattr(run, "trainer", None) or getattr(run, "training")  # noqa: B009


def save_checkpoint(run: TrainingRun, path: Path) -> None:
    """Call `run.save_checkpoint(path)`."""
    (getattr(run, "save_checkpoint", None) or getattr(run, "keep"))(path)  # noqa: B009


def load_checkpoint_(run: TrainingRun, path: Path) -> None:
    """Call `run.load_checkpoint_(path)`."""
    (getattr(run, "load_checkpoint_", None) or getattr(run, "resume_"))(path)  # noqa: B009


def memory_from_run(run: TrainingRun) -> Memory:
    """Return `Memory.from_run(run)`."""
    return (getattr(Memory, "from_run", None) or getattr(Memory, "of"))(run)  # noqa: B009


def evaluation_dict(evaluation: Any) -> dict[str, Any]:
    """Return `evaluation.to_dict()`."""
    return evaluation if isinstance(evaluation, dict) else evaluation.to_dict()


def start_search(graph: EpisodicGraph, config: ModelConfig, recipe: Recipe, name: str, folder: Path, seed: int) -> Any:
    """Return `Search(graph, config, recipe=recipe, folder=folder, seed=seed)`."""
    from recollect.training.search import Search

    build: Any = Search
    if "config" in {field.name for field in fields(Search)}:
        return build(graph, config, recipe=recipe, folder=folder, seed=seed)
    form = "both" if config.static else config.form
    chosen = suit(recipe, name, config.model)
    return build(graph, model=config.model, dim=config.dims, recipe=chosen, folder=folder, form=form, seed=seed)
