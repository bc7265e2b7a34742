"""What --set NAME=VALUE takes: the settings of a recipe, and those of a model that few users change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from recollect.errors import UserError

if TYPE_CHECKING:
    from recollect.models.config import ModelConfig
    from recollect.training.recipe import Recipe

AUTO = "auto"  # chosen from the data and the recipe
# settings of a model: name -> (default, help)
MODEL_SETTINGS = {
    "form": ("episodic", "Equation that is learned: episodic, or semantic (without time)."),
    "static": (AUTO, "Add the semantic equation to the episodic one: true, false."),
    "reciprocal": (AUTO, "Train inverse predicates as well: true, false."),
    "predicate_dim": (AUTO, "Embedding size of predicates, if the model allows another."),
    "time_dim": (AUTO, "Embedding size of times, if the model allows another."),
    "time_levels": (AUTO, "Spacings of the knots that times are interpolated from, like 1,5,25."),
    "dtype": ("float32", "Number type of the weights: float32, float64."),
}


def choose_recipe(
    name: str, settings: Sequence[str] | None, epochs: int | None = None
) -> tuple[Recipe, dict[str, Any]]:
    """Return the recipe with the changes of --set and --epochs, and the settings of the model.

    A setting that the recipe's loss does not use is refused.
    """
    from recollect.training.recipe import USED_BY, parse_recipe

    changes = parse_settings(settings or ())
    if epochs is not None and "epochs" in changes:
        raise UserError("epochs is given by --epochs and by --set; give one of them")
    if epochs is not None:
        changes["epochs"] = epochs
    of_model = {
        each: parse_model_setting(each, changes.pop(each, default)) for each, (default, _) in MODEL_SETTINGS.items()
    }
    recipe = replace(parse_recipe(name), **changes)
    for setting in changes:
        losses = USED_BY.get(setting, (recipe.loss,))
        if recipe.loss not in losses:
            raise UserError(
                f"{setting} means nothing to the {recipe.loss} loss; "
                f"leave it out, or choose --set loss={' or '.join(losses)}"
            )
    return recipe, of_model


def parse_settings(settings: Sequence[str]) -> dict[str, Any]:
    """Return the value of each NAME=VALUE, parsed by the type of the recipe's field; those of a model as text."""
    from recollect.training.recipe import Recipe

    names = [field.name for field in fields(Recipe)]
    values: dict[str, Any] = {}
    for text in settings:
        name, equals, value = text.partition("=")
        name = name.strip().replace("-", "_")
        if not equals:
            raise UserError(f"cannot read --set {text!r}; write name=value, like epochs=20")
        if name not in (*names, *MODEL_SETTINGS):
            known = ", ".join((*names, *MODEL_SETTINGS))
            raise UserError(f"unknown setting {name!r}; `recollect recipes show modern` explains all: {known}")
        values[name] = value.strip() if name in MODEL_SETTINGS else Recipe.parse_option(name, value.strip())
    return values


def parse_model_setting(name: str, text: str) -> Any:
    """Return the value of a setting of a model; None if it is to be chosen.

    >>> parse_model_setting("static", "true"), parse_model_setting("time_dim", "auto")
    (True, None)
    """
    from recollect.models.time_knots import parse_time_levels

    if text == AUTO:
        return None
    match name:
        case "static" | "reciprocal":
            if text not in ("true", "false"):
                raise UserError(f"{name} must be true, false or {AUTO}; got {text!r}")
            return text == "true"
        case "predicate_dim" | "time_dim":
            if not text.isdecimal():
                raise UserError(f"{name} must be a whole number from 1; got {text!r}")
            return int(text)
        case "time_levels":
            return parse_time_levels(text)
    return text


def config_words(config: ModelConfig) -> list[str]:
    """Return the options of `train` that give this config."""
    words = ["--model", config.model, "--dim", str(config.dim)]
    changes = {
        "form": config.form,
        "static": str(config.static).lower(),
        "reciprocal": str(config.reciprocal).lower(),
        "predicate_dim": AUTO if config.predicate_dim in (None, config.dim) else str(config.predicate_dim),
        "time_dim": AUTO if config.time_dim in (None, config.dim) else str(config.time_dim),
        "time_levels": ",".join(map(str, config.time_levels)),
        "dtype": config.dtype,
    }
    for name, text in changes.items():
        words += ["--set", f"{name}={text}"] if text != MODEL_SETTINGS[name][0] else []
    return words
