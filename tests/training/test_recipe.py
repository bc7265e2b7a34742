"""Recipes: the same by name and by value, checked, read from text and from files."""

from __future__ import annotations

import json
import re
from dataclasses import fields, replace
from pathlib import Path

import pytest

from conftest import model_config
from recollect import MODELS, Recipe, TrainingRun, UserError
from recollect.training.recipe import RECIPES, SUITED, USED_BY, check_predict, parse_recipe

MODERN = RECIPES["modern"]


def test_a_recipe_is_the_same_by_name_and_by_value(small_world):
    for name, recipe in RECIPES.items():
        assert parse_recipe(name) == recipe
        runs = [TrainingRun(small_world, model_config("complex", "both", 3), recipe=r) for r in (name, recipe)]
        assert runs[0].recipe == runs[1].recipe == recipe.for_model("complex")


def test_the_default_recipe_is_modern(small_world):
    config = model_config("cont", "episodic", 2)
    assert TrainingRun(small_world, config).recipe == MODERN.for_model("cont")


def test_for_model_fills_only_what_is_unset():
    cont, complex_ = MODERN.for_model("cont"), MODERN.for_model("ComplEx")
    assert (cont.penalty, cont.dropout, cont.predict) == (5e-3, 0.2, {"s": 1.0, "p": 0.25, "o": 1.0})
    assert (complex_.penalty, complex_.dropout, complex_.predict) == (0.01, 0.0, {"s": 1.0, "o": 1.0})
    assert replace(MODERN, dropout=0.4).for_model("complex").dropout == 0.4
    assert RECIPES["paper"].for_model("complex") == RECIPES["paper"] == Recipe()
    assert cont.for_model("complex") == cont
    assert set(SUITED) <= set(MODELS)


def test_an_unset_field_cannot_be_used():
    with pytest.raises(ValueError, match="predict is unset; fill the recipe with for_model first"):
        MODERN.objective()


def test_every_option_has_a_help_text():
    assert all(len(each.metadata["help"]) > 10 for each in fields(Recipe))
    assert set(USED_BY) < {each.name for each in fields(Recipe)}
    assert USED_BY["margin"] == ("ranking",)
    assert USED_BY["negatives"] == ("logistic", "ranking")
    assert USED_BY["dropout"] == ("one-vs-all",)


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("epochs", "20", 20),
        ("learning_rate", "0.5", 0.5),
        ("learning_rate", "none", None),
        ("penalty", "1e-3", 1e-3),
        ("average", "true", True),
        ("average", "False", False),
        ("loss", "ranking", "ranking"),
        ("negatives", "s=2,time=1", {"s": 2, "t": 1}),
        ("predict", "so", {"s": 1.0, "o": 1.0}),
        ("predict", "s=1,t=0.1", {"s": 1.0, "t": 0.1}),
    ],
)
def test_an_option_is_read_from_text(name, text, value):
    assert Recipe.parse_option(name, text) == value
    assert type(Recipe.parse_option(name, text)) is type(value)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("epoch", "20", "unknown recipe option 'epoch'; choose one of loss, margin"),
        ("epochs", "many", "epochs must be a whole number from 1; got many"),
        ("epochs", "none", "epochs must be a whole number from 1; got None"),
        ("dropout", "1", "dropout must be a number below 1; got 1"),
        ("average", "yes", "average must be true or false; got 'yes'"),
        ("negatives", "s", "cannot read negatives 's' in 's'; write slot=count"),
        ("predict", "s=x", "cannot read predict 's=x'; write it like so or s=1,o=1,t=0.1"),
    ],
)
def test_an_option_that_cannot_be_read_is_refused(name, text, message):
    with pytest.raises(UserError, match=message):
        Recipe.parse_option(name, text)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"loss": "hinge"}, "unknown loss 'hinge'; choose one of logistic, ranking, one-vs-all$"),
        ({"epochs": 0}, "epochs must be a whole number from 1; got 0"),
        ({"batch_size": 10.5}, "batch_size must be a whole number from 1"),
        ({"learning_rate": float("nan")}, "learning_rate must be a number above 0; got nan"),
        ({"l2": -1.0}, "l2 must be a number from 0"),
        ({"l2": None}, "l2 must be a number from 0; got None"),
        ({"negatives": {}}, "corrupt nothing"),
        ({"negatives": {"s": 0}}, "corrupt nothing"),
        ({"negatives": {"x": 1}}, "unknown slot 'x'"),
        (
            {"negatives": {"s": 1.5}},
            r"cannot read negatives \{'s': 1.5\}; give slots whole numbers from 0, like s=1,o=1$",
        ),
        ({"negatives": {"s": -1}}, "cannot read negatives"),
        ({"negatives": 3}, "cannot read negatives 3"),
        ({"average": "no"}, "average must be true or false; got 'no'$"),
        ({"learning_rate": True}, "learning_rate must be a number above 0; got True$"),
        ({"dropout": "0.1"}, "dropout must be a number from 0; got '0.1'$"),
        ({"dropout": 1.0}, "dropout must be a number below 1; got 1.0$"),
        ({"epochs": True}, "epochs must be a whole number from 1"),
        ({"candidates": -1}, "candidates must be a whole number from 0, which means all; got -1"),
        ({"candidates": 1.5}, "candidates must be a whole number from 0"),
        ({"predict": {"s": "x"}}, r"cannot read predict \{'s': 'x'\}; write it like so or s=1,o=1,t=0.1$"),
        ({"predict": {"s": -1}}, "weighs its slots by numbers from 0"),
        ({"predict": {"s": float("nan")}}, "weighs its slots by numbers from 0"),
        ({"predict": 1}, "cannot read predict 1"),
        ({"order": "sorted"}, "unknown order 'sorted'; choose one of auto, random, blocks$"),
        ({"optimizer": "sgd"}, "unknown optimizer 'sgd'; choose one of adam, adagrad$"),
        ({"predict": ""}, "one-vs-all predicts at least one slot, like predict=so; none was given$"),
        ({"predict": "sx"}, "unknown slot 'x'; choose among spot or subject, predicate, object, time$"),
    ],
)
def test_a_bad_setting_is_refused(change, message):
    with pytest.raises(UserError, match=message):
        Recipe(**change)


def test_predict_is_read_from_letters_words_and_weights():
    assert check_predict("object,subject") == {"s": 1.0, "o": 1.0}
    assert check_predict({"time": 0.5, "s": 0}) == {"t": 0.5}


def test_a_recipe_is_read_from_a_file(tmp_path):
    file = tmp_path / "found.json"
    wanted = replace(MODERN, penalty=0.123)
    for content in ({"recipe": wanted.to_dict(), "best": 1}, wanted.to_dict()):
        file.write_text(json.dumps(content))
        assert parse_recipe(str(file)) == wanted
    file.write_text('{"speed": 3}')
    with pytest.raises(UserError, match="not the settings of a recipe"):
        parse_recipe(str(file))
    with pytest.raises(UserError, match="unknown recipe 'best'; choose one of paper, modern, or give a .json file"):
        parse_recipe("best")


def test_a_recipe_file_of_version_0_1_is_read(tmp_path):
    file = tmp_path / "old.json"
    file.write_text(json.dumps({"recipe": Recipe(epochs=7).to_dict() | {"reciprocal": True, "levels": [1, 5, 25]}}))
    assert parse_recipe(str(file)) == Recipe(epochs=7)


def test_the_code_of_the_recipes_page_runs():
    page = Path(__file__).parents[2] / "docs" / "recipes.md"
    (code,) = re.findall(r"^```python\n(.*?)^```$", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    exec(compile(code, page.name, "exec"), {})


def test_the_table_of_the_recipes_page_is_the_code():
    page = (Path(__file__).parents[2] / "docs" / "recipes.md").read_text(encoding="utf-8")
    models = ("cont", "tucker", "tree", "complex", "hole")
    for option in ("penalty", "smoothness", "dropout", "label_smoothing", "learning_rate"):
        (cells,) = re.findall(rf"^\| `{option}` \|(.*)\|$", page, flags=re.MULTILINE)
        found = [float(cell) for cell in cells.split("|")]
        assert found == [getattr(MODERN.for_model(model), option) for model in models]
