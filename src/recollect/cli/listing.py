"""List the models with their equations, and the recipes with their settings."""

from __future__ import annotations

from dataclasses import fields
from typing import Annotated, Any

import typer

from recollect.cli import options as opt
from recollect.cli.rendering import print_rows
from recollect.cli.settings import MODEL_SETTINGS

RECIPES_HELP = """How models are trained: named recipes and their settings.

\b
recollect recipes list
recollect recipes show modern
recollect recipes show modern --model cont
Next: recollect train events.csv --set dropout=0.1
"""
recipes_app = typer.Typer(help=RECIPES_HELP, no_args_is_help=True, rich_markup_mode=None)


def models(as_json: opt.Json = False) -> None:
    """List the models with their equations.

    \b
    recollect models
    Next: recollect train world --model cont
    """
    from recollect.models.config import FORMS
    from recollect.models.zoo import MODELS

    rows = [
        {
            "model": name,
            "equation": (model.__doc__ or "").strip().rstrip("."),
            "forms": " ".join(form for form in FORMS if model.has_form(form)),
        }
        for name, model in MODELS.items()
    ]
    print_rows(rows, as_json)


@recipes_app.command("list")
def recipes_list(as_json: opt.Json = False) -> None:
    """List the recipes with loss, optimizer and epochs.

    \b
    recollect recipes list
    Next: recollect recipes show modern
    """
    from recollect.training.recipe import RECIPES

    rows = [
        {"recipe": name, "loss": recipe.loss, "optimizer": recipe.optimizer, "epochs": recipe.epochs}
        for name, recipe in RECIPES.items()
    ]
    print_rows(rows, as_json)


@recipes_app.command("show")
def recipes_show(
    name: Annotated[str, typer.Argument(help="A recipe, or a .json file that a search wrote.")] = "modern",
    model: Annotated[str | None, typer.Option(help="Show the values for this model; else some are open.")] = None,
    as_json: opt.Json = False,
) -> None:
    """List the settings that `train --set` takes, with values.

    \b
    recollect recipes show
    recollect recipes show paper
    recollect recipes show modern --model cont
    Next: recollect train world --set dropout=0.1
    """
    from recollect.models.zoo import parse_model
    from recollect.training.recipe import Recipe, parse_recipe

    if model is not None:
        parse_model(model)
    recipe = parse_recipe(name) if model is None else parse_recipe(name).for_model(model)
    rows = [
        _setting(field.name, getattr(recipe, field.name), field.metadata.get("help", "")) for field in fields(Recipe)
    ]
    rows += [_setting(setting, default, text) for setting, (default, text) in MODEL_SETTINGS.items()]
    if not as_json:
        rows = [row | {"value": as_text(row["value"])} for row in rows]
    print_rows(rows, as_json)


def _setting(name: str, value: Any, text: str) -> dict[str, Any]:
    return {"setting": name, "value": value, "help": text}


def as_text(value: Any) -> str:
    """Return a value as --set takes it; what the model decides is "by model".

    >>> as_text({"s": 1.0, "p": 0.25}), as_text(True), as_text((1, 5)), as_text(None)
    ('s=1,p=0.25', 'true', '1,5', 'by model')
    """
    match value:
        case None:
            return "by model"
        case bool():
            return str(value).lower()
        case int() | float():
            return f"{value:g}"
        case dict():
            return ",".join(f"{slot}={as_text(each)}" for slot, each in value.items())
        case tuple() | list():
            return ",".join(map(as_text, value))
    return str(value)
