"""Recipes: how to train, as data; named, frozen, and stored with every memory.

Every option is one field of `Recipe`, declared with its help text and its check; the command line, recipe files and
error messages follow from that declaration.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from recollect.engine import OPTIMIZERS
from recollect.errors import UserError
from recollect.graph.facts import SLOTS, parse_slot, parse_slots
from recollect.training.objectives import OBJECTIVES, Objective

ORDERS = ("auto", "random", "blocks")
LOSSES = tuple(OBJECTIVES)
MODEL_OPTIONS = ("reciprocal", "levels")  # fields of version 0.1's recipe that are now options of a model


def _option(default: Any, help: str, check: Callable[[str, Any], Any]) -> Any:
    """Declare a field; `check(name, value)` returns the value or raises UserError."""
    metadata = {"help": help, "check": check}
    if isinstance(default, dict):
        return field(default_factory=lambda: dict(default), metadata=metadata)
    return field(default=default, metadata=metadata)


def _number(
    default: float, help: str, *, positive: bool = False, below: float = math.inf, optional: bool = False
) -> Any:
    """Declare a number from 0, or above 0 if `positive`; None is allowed if `optional`."""

    def check(name: str, value: Any) -> float | None:
        if value is None and optional:
            return None
        if not _is_number(value) or value < 0 or (positive and value == 0):
            raise UserError(f"{name} must be a number {'above 0' if positive else 'from 0'}; got {value!r}")
        if value >= below:
            raise UserError(f"{name} must be a number below {below:g}; got {value}")
        return value

    return _option(default, help, check)


def _count(default: int, help: str, *, minimum: int = 1, note: str = "") -> Any:
    """Declare a whole number."""

    def check(name: str, value: Any) -> int:
        if not _is_count(value) or value < minimum:
            raise UserError(f"{name} must be a whole number from {minimum}{note}; got {value}")
        return int(value)

    return _option(default, help, check)


def _flag(default: bool, help: str) -> Any:
    """Declare a boolean."""

    def check(name: str, value: Any) -> bool:
        if not isinstance(value, bool):
            raise UserError(f"{name} must be true or false; got {value!r}")
        return value

    return _option(default, help, check)


def _choice(default: str, help: str, choices: Sequence[str]) -> Any:
    """Declare one of several names."""

    def check(name: str, value: Any) -> str:
        if value not in choices:
            raise UserError(f"unknown {name} {value!r}; choose one of {', '.join(choices)}")
        return str(value)

    return _option(default, f"{help}: {', '.join(choices)}.", check)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _parse_value(text: str) -> Any:
    """Return the number, boolean or None that a text denotes; any other text as it is.

    >>> [_parse_value(text) for text in ("20", "1e-3", "True", "none", "s=1,o=1")]
    [20, 0.001, True, None, 's=1,o=1']
    """
    words = {"true": True, "false": False, "none": None}
    if text.lower() in words:
        return words[text.lower()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def check_negatives(counts: Mapping[str, int] | str) -> dict[str, int]:
    """Return the number of negatives per fact of each slot that has any, in the order s p o t, which draws follow.

    >>> check_negatives("s=1,o=1"), check_negatives({"object": 3, "time": 2, "p": 0})
    ({'s': 1, 'o': 1}, {'o': 3, 't': 2})
    """
    if isinstance(counts, str):
        counts = _parse_counts(counts)
    if not isinstance(counts, Mapping) or not all(map(_is_count, counts.values())):
        raise UserError(f"cannot read negatives {counts!r}; give slots whole numbers from 0, like s=1,o=1")
    by_slot = {parse_slot(slot): count for slot, count in counts.items()}
    if not any(by_slot.values()):
        raise UserError(f"negatives {dict(counts)} corrupt nothing; give at least one slot a count, like s=1,o=1")
    return {slot: by_slot[slot] for slot in SLOTS if by_slot.get(slot)}


def _parse_counts(text: str) -> dict[str, int]:
    counts: dict[str, int] = {}
    for word in filter(None, text.replace(" ", "").split(",")):
        name, _, count = word.partition("=")
        if not count.isdecimal():
            raise UserError(f"cannot read negatives {word!r} in {text!r}; write slot=count, like s=1,o=1")
        counts[name] = int(count)
    return counts


def check_predict(predict: Mapping[str, float] | str) -> dict[str, float]:
    """Return slots and their weights, in the order s p o t, from letters, words or text like s=1,o=1,t=0.1.

    >>> check_predict("so"), check_predict("s=1,o=1,time=0.1")
    ({'s': 1.0, 'o': 1.0}, {'s': 1.0, 'o': 1.0, 't': 0.1})
    """
    given = predict
    if isinstance(predict, str):
        predict = _parse_weights(predict)
    if not isinstance(predict, Mapping) or not all(isinstance(weight, int | float) for weight in predict.values()):
        raise UserError(f"cannot read predict {given!r}; write it like so or s=1,o=1,t=0.1")
    weights = {parse_slot(slot): float(weight) for slot, weight in predict.items()}
    if any(not (math.isfinite(weight) and weight >= 0) for weight in weights.values()):
        raise UserError(f"one-vs-all weighs its slots by numbers from 0; got {predict}")
    if not any(weights.values()):
        raise UserError("one-vs-all predicts at least one slot, like predict=so; none was given")
    return {slot: weights[slot] for slot in SLOTS if weights.get(slot)}


def _parse_weights(text: str) -> dict[str, Any]:
    if "=" not in text:
        return dict.fromkeys(parse_slots(text), 1.0)
    words = [word.partition("=") for word in text.replace(" ", "").split(",")]
    return {slot: _parse_value(weight) for slot, _, weight in words}


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Loss, regularization, optimizer and schedule of a training; the fields default to the paper's recipe.

    A field that is None has its value chosen by `for_model`. To change a named recipe: `replace(RECIPES["modern"],
    epochs=10)`.

    Where the paper gives no value: l2 = 1e-3 is the strongest penalty under which every model leaves its Xavier start
    on ICEWS14 (at 1e-2 DistMult and Tree shrink to zero, ComplEx gains); validation every 10 epochs, not 50 or 100,
    because ranking is cheap here and the tensor models peak early.

    Examples:
        >>> Recipe(loss="ranking", margin=0.5).negatives
        {'s': 1, 'o': 1}
    """

    loss: str = _choice("logistic", "Loss", LOSSES)
    margin: float = _number(1.0, "Margin γ of the ranking loss.")
    sigmoid: bool = _flag(True, "Let the ranking loss compare σ(θ); false: θ.")
    negatives: Mapping[str, int] = _option(
        {"s": 1, "o": 1},
        "Negatives per fact and slot, like s=1,o=1.",
        lambda name, value: check_negatives(value),
    )
    predict: Mapping[str, float] | None = _option(
        {"s": 1.0, "o": 1.0},
        "Slots that one-vs-all predicts and their weights, like s=1,p=0.25,o=1.",
        lambda name, value: None if value is None else check_predict(value),
    )
    candidates: int = _count(
        0,
        "Entities sampled per batch as candidates, weighted to count for all that are not in the batch; 0: all.",
        minimum=0,
        note=", which means all",
    )
    smoothness: float | None = _number(
        0.0, "Weight of Σ ‖a_k − a_{k+1}‖² over neighbouring time knots, added to the total loss.", optional=True
    )
    penalty: float | None = _number(
        0.0, "Weight of the norms of a fact's embeddings and query (one-vs-all), added to its loss.", optional=True
    )
    dropout: float | None = _number(0.0, "Share of a query's elements that is set to 0.", below=1, optional=True)
    label_smoothing: float | None = _number(
        0.0, "Probability that is spread over all candidates instead of the answer.", below=1, optional=True
    )
    average: bool = _flag(False, "Keep the mean of the weights after each epoch, epoch i counting i times.")
    time_rate: float = _number(
        1.0, "Factor of the learning rate for times whose rows are matrices or larger (ConT).", positive=True
    )
    avoid_known: bool = _flag(False, "Never sample a negative that is a training fact.")
    optimizer: str = _choice("adam", "Optimizer", OPTIMIZERS)
    learning_rate: float | None = _number(1e-3, "Learning rate of the optimizer.", positive=True, optional=True)
    l2: float = _number(1e-3, "λ of λ‖P‖² over all parameters, added to the loss of all training facts.")
    batch_size: int = _count(1024, "Facts per step.")
    order: str = _choice("auto", "Order of facts; blocks share times within a batch", ORDERS)
    epochs: int = _count(500, "Maximum number of epochs.")
    validate_every: int = _count(10, "Epochs between two validations.")
    patience: int = _count(5, "Stop after this many validations without a better MRR.")

    def __post_init__(self) -> None:
        for each in fields(self):
            checked = each.metadata["check"](each.name, getattr(self, each.name))
            object.__setattr__(self, each.name, checked)

    def for_model(self, name: str) -> Recipe:
        """Return the recipe with every unset field filled by the value that suits the model of that name.

        Examples:
            >>> RECIPES["modern"].for_model("cont").dropout, RECIPES["modern"].for_model("complex").dropout
            (0.2, 0.0)
        """
        suited = SUITED.get(name.lower(), TENSOR)
        unset = [each.name for each in fields(self) if getattr(self, each.name) is None]
        return replace(self, **{field_name: suited[field_name] for field_name in unset})

    def filled(self, name: str) -> Any:
        """Return the value of a field; raise ValueError if it is still unset."""
        value = getattr(self, name)
        if value is None:
            raise ValueError(f"{name} is unset; fill the recipe with for_model first")
        return value

    def objective(self) -> Objective:
        """Return the objective with this recipe's settings; the recipe must be filled by `for_model`."""
        kind = OBJECTIVES[self.loss]
        return kind(**{name: self.filled(name) for name in kind.options()})

    def to_dict(self) -> dict[str, Any]:
        """Return every setting as a JSON value; None if unset."""
        return asdict(self)

    @classmethod
    def from_dict(cls, settings: Mapping[str, Any]) -> Recipe:
        """Return the recipe with these settings; `reciprocal` and `levels`, which version 0.1 wrote, are ignored."""
        return cls(**{name: value for name, value in settings.items() if name not in MODEL_OPTIONS})

    @classmethod
    def parse_option(cls, name: str, text: str) -> Any:
        """Return the value of one field from text; "none" leaves the field unset, to be chosen by the model.

        Examples:
            >>> Recipe.parse_option("epochs", "20"), Recipe.parse_option("predict", "s=1,o=1")
            (20, {'s': 1.0, 'o': 1.0})
        """
        declared = {each.name: each for each in fields(cls)}
        if name not in declared:
            raise UserError(f"unknown recipe option {name!r}; choose one of {', '.join(declared)}")
        return declared[name].metadata["check"](name, _parse_value(text))


USED_BY: dict[str, tuple[str, ...]] = {}  # for the options that not all losses use: the losses that do
for _loss, _objective in OBJECTIVES.items():
    for _name in _objective.options():
        USED_BY[_name] = (*USED_BY.get(_name, ()), _loss)

# Values of unset fields, chosen on the validation split of ICEWS14 (docs/recipes.md). Models whose θ is a sum over one
# axis have fewer parameters to regularize.
TENSOR: dict[str, Any] = {
    "predict": {"s": 1.0, "p": 0.25, "o": 1.0},
    "smoothness": 3.0,
    "penalty": 5e-3,
    "dropout": 0.2,
    "label_smoothing": 0.1,
    "learning_rate": 0.1,
}
DIAGONAL: dict[str, Any] = {
    "predict": {"s": 1.0, "o": 1.0},
    "smoothness": 1.0,
    "penalty": 1e-2,
    "dropout": 0.0,
    "label_smoothing": 0.0,
    "learning_rate": 0.2,
}
SUITED: dict[str, dict[str, Any]] = {
    "distmult": DIAGONAL,
    "complex": DIAGONAL,
    "hole": DIAGONAL | {"learning_rate": 0.06, "smoothness": 3.0},  # a step of a row moves its whole spectrum
    "tucker": TENSOR | {"smoothness": 10.0},
    "tree": TENSOR | {"penalty": 1e-3, "dropout": 0.0, "label_smoothing": 0.0},  # a product of seven needs less
}

RECIPES: dict[str, Recipe] = {
    "paper": Recipe(),
    "modern": Recipe(
        loss="one-vs-all",
        predict=None,
        candidates=1024,
        smoothness=None,
        penalty=None,
        dropout=None,
        label_smoothing=None,
        average=True,
        optimizer="adagrad",
        learning_rate=None,
        time_rate=0.2,
        l2=0.0,
        batch_size=512,
        epochs=40,
        validate_every=4,
        patience=2,
    ),
}


def parse_recipe(name: str) -> Recipe:
    """Return the recipe of that name, or of a JSON file with settings, such as a search writes.

    >>> parse_recipe("modern") == RECIPES["modern"]
    True
    """
    if name in RECIPES:
        return RECIPES[name]
    if not name.endswith(".json"):
        raise UserError(f"unknown recipe {name!r}; choose one of {', '.join(RECIPES)}, or give a .json file")
    try:
        stored = json.loads(Path(name).read_text(encoding="utf-8"))
        return Recipe.from_dict(stored.get("recipe", stored))
    except (ValueError, TypeError, AttributeError) as error:
        raise UserError(f"{name}: not the settings of a recipe ({error}); give a file that a search wrote") from error
