"""How to learn, as data: named, frozen, and written into every saved memory."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor

from recollect.engine import OPTIMIZERS
from recollect.errors import UserError
from recollect.graph.facts import SLOTS, parse_slot, parse_slots
from recollect.models.time_knots import check_time_levels
from recollect.training.losses import logistic, ranking
from recollect.training.negatives import check_negatives, is_count

ORDERS = ("auto", "random", "blocks")
LOSSES = ("logistic", "ranking", "one-vs-all")
SAMPLED = LOSSES[:2]
# the losses that a setting means something to, where not all
USED_BY: dict[str, tuple[str, ...]] = {
    "margin": ("ranking",),
    "negatives": SAMPLED,
    "avoid_known": SAMPLED,
    **dict.fromkeys(("predict", "candidates", "penalty", "dropout", "label_smoothing"), ("one-vs-all",)),
}


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Losses on sampled corruptions, or against all candidates, with early stopping: the paper's is the default.

    Where the paper gives no value: λ = 1e-3 is the strongest penalty under which every model leaves its
    Xavier start on ICEWS14 (at 1e-2 DistMult and Tree shrink to zero, ComplEx gains); validation every 10
    epochs, not 50 or 100, because ranking is cheap here and the tensor models peak early.

    >>> Recipe(loss="ranking", margin=0.5).negatives
    {'s': 1, 'o': 1}
    """

    loss: str = "logistic"
    margin: float = 1.0  # of the ranking loss
    sigmoid: bool = True  # the ranking loss compares σ(θ) (True) or θ (False)
    negatives: Mapping[str, int] = field(default_factory=lambda: {"s": 1, "o": 1})
    predict: Mapping[str, float] = field(default_factory=lambda: {"s": 1.0, "o": 1.0})  # what one-vs-all weighs
    candidates: int = 0  # entities drawn for every batch that stand for all that it does not name; 0: all of them
    reciprocal: bool = False  # predicates have inverses, and who is asked as whom
    levels: tuple[int, ...] = (1,)  # spacings of the knots that times are made of
    smoothness: float = 0.0  # of Σ ‖a_t − a_{t+1}‖² over neighbouring knots, beside the loss summed over all facts
    penalty: float = 0.0  # of what a score is made of (`TensorModel.weighed`), beside the loss of each fact
    dropout: float = 0.0  # the part of a query's numbers that is left out
    label_smoothing: float = 0.0  # the part of an answer that all candidates share
    average: bool = False  # the mean of the weights after every epoch, each counting as its number, is what is kept
    time_rate: float = 1.0  # of the learning rate, that times take whose rows are cores
    avoid_known: bool = False  # corruptions may not be facts of the training split
    optimizer: str = "adam"
    learning_rate: float = 1e-3
    l2: float = 1e-3  # λ of λ‖P‖², beside the loss summed over all training facts
    batch_size: int = 1024
    order: str = "auto"  # of the facts: random, in blocks of one time, or whichever suits the model
    epochs: int = 500  # at most
    validate_every: int = 10  # epochs between two validations
    patience: int = 5  # validations without a better MRR before training stops

    def __post_init__(self) -> None:
        if self.loss not in LOSSES:
            raise UserError(f"unknown loss {self.loss!r}; choose one of {', '.join(LOSSES)}")
        if self.optimizer not in OPTIMIZERS:
            raise UserError(f"unknown optimizer {self.optimizer!r}; choose one of {', '.join(OPTIMIZERS)}")
        if self.order not in ORDERS:
            raise UserError(f"unknown order {self.order!r}; choose one of {', '.join(ORDERS)}")
        object.__setattr__(self, "negatives", check_negatives(self.negatives))
        object.__setattr__(self, "predict", check_predict(self.predict))
        object.__setattr__(self, "levels", check_time_levels(self.levels))
        for name in ("sigmoid", "reciprocal", "average", "avoid_known"):
            if not isinstance(value := getattr(self, name), bool):
                raise UserError(f"{name} must be true or false; got {value!r}")
        for name in ("batch_size", "epochs", "validate_every", "patience"):
            if not is_count(value := getattr(self, name)) or value < 1:
                raise UserError(f"{name} must be a whole number from 1; got {value}")
        if not is_count(self.candidates):
            raise UserError(f"candidates must be a whole number from 0, which means all; got {self.candidates}")
        s, o = self.predict.get("s"), self.predict.get("o")
        if self.reciprocal and (self.loss != "one-vs-all" or o is None or s != o):
            raise UserError(
                "reciprocal predicates are for one-vs-all that predicts s and o alike; leave them out (--no-reciprocal)"
            )
        positive = ("learning_rate", "time_rate")
        for name in (*positive, "l2", "margin", "smoothness", "penalty", "dropout", "label_smoothing"):
            value = getattr(self, name)
            number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
            if not number or value < 0 or (value == 0 and name in positive):
                raise UserError(f"{name} must be a number {'above 0' if name in positive else 'from 0'}; got {value!r}")
            if name in ("dropout", "label_smoothing") and value >= 1:
                raise UserError(f"{name} must be a number below 1; got {value}")

    def told(self) -> dict[str, Any]:
        """Every setting as JSON would give it back."""
        told: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        return told

    @property
    def drawn(self) -> Mapping[str, int]:
        """The corruptions that are drawn for each fact, by slot."""
        return {} if self.loss == "one-vs-all" else self.negatives

    @property
    def slots(self) -> str:
        """The slots whose queries are needed."""
        return "".join(self.predict if self.loss == "one-vs-all" else self.negatives)

    def objective(self) -> Callable[..., Tensor]:
        """The sampled loss of each fact and its corruptions: (B,), (B, K) -> (B,)."""
        if self.loss == "logistic":
            return logistic
        assert self.loss == "ranking", "one-vs-all draws no corruptions"
        return partial(ranking, margin=self.margin, sigmoid=self.sigmoid)


def check_predict(predict: Mapping[str, float] | str) -> dict[str, float]:
    """Slots and their weights, in the order s p o t, from letters, words or text like s=1,o=1,t=0.1.

    >>> check_predict("so"), check_predict("s=1,o=1,time=0.1")
    ({'s': 1.0, 'o': 1.0}, {'s': 1.0, 'o': 1.0, 't': 0.1})
    """
    if isinstance(predict, str):
        if "=" in predict:
            words = (word.partition("=") for word in predict.replace(" ", "").split(","))
            try:
                predict = {slot: float(weight) for slot, _, weight in words}
            except ValueError:
                raise UserError(f"cannot read predict {predict!r}; write it like so or s=1,o=1,t=0.1") from None
        else:
            predict = dict.fromkeys(parse_slots(predict), 1.0)
    if not isinstance(predict, Mapping) or not all(isinstance(weight, int | float) for weight in predict.values()):
        raise UserError(f"cannot read predict {predict!r}; write it like so or s=1,o=1,t=0.1")
    told = {parse_slot(slot): float(weight) for slot, weight in predict.items()}
    if any(not (math.isfinite(weight) and weight >= 0) for weight in told.values()):
        raise UserError(f"one-vs-all weighs its slots by numbers from 0; got {predict}")
    if not any(told.values()):
        raise UserError("one-vs-all predicts at least one slot, like predict=so; none was given")
    return {slot: told[slot] for slot in SLOTS if told.get(slot)}


RECIPES: dict[str, Recipe] = {
    "paper": Recipe(),
    "modern": Recipe(
        loss="one-vs-all",
        predict={"s": 1.0, "p": 0.25, "o": 1.0},
        candidates=1024,
        reciprocal=True,
        levels=(1, 5, 25),
        smoothness=3.0,
        penalty=5e-3,
        dropout=0.2,
        label_smoothing=0.1,
        average=True,
        optimizer="adagrad",
        learning_rate=0.1,
        time_rate=0.2,
        l2=0.0,
        batch_size=512,
        epochs=40,
        validate_every=4,
        patience=2,
    ),
}
# what a sum over one axis wants otherwise: it has fewer numbers to hold back
SUM = {
    "predict": {"s": 1.0, "o": 1.0},
    "smoothness": 1.0,
    "penalty": 1e-2,
    "dropout": 0.0,
    "label_smoothing": 0.0,
    "learning_rate": 0.2,
}
SUITED: dict[str, dict[str, dict[str, Any]]] = {
    "modern": {
        **dict.fromkeys(("distmult", "complex"), SUM),
        "hole": SUM | {"learning_rate": 0.06, "smoothness": 3.0},  # a step of a row is a step of all its spectrum
        "tucker": {"smoothness": 10.0},
        "tree": {"penalty": 1e-3, "dropout": 0.0, "label_smoothing": 0.0},  # a product of seven shrinks by itself
    }
}


def parse_recipe(name: str, model: str = "") -> Recipe:
    """The recipe of that name, as it suits a model, or of a JSON file with settings, such as a search has found.

    >>> parse_recipe("modern", "cont").dropout, parse_recipe("modern", "complex").dropout
    (0.2, 0.0)
    """
    if name in RECIPES:
        return replace(RECIPES[name], **SUITED.get(name, {}).get(model.lower(), {}))
    if not name.endswith(".json"):
        raise UserError(f"unknown recipe {name!r}; choose one of {', '.join(RECIPES)}, or give a .json file")
    try:
        told = json.loads(Path(name).read_text(encoding="utf-8"))
        return Recipe(**told.get("recipe", told))
    except (ValueError, TypeError, AttributeError) as error:
        raise UserError(f"{name}: not the settings of a recipe ({error}); give a file that a search wrote") from error
