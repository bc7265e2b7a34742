"""How to learn, as data: named, frozen, and written into every saved memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from torch import Tensor

from recollect.errors import UserError
from recollect.facts import parse_slots
from recollect.losses import logistic, ranking
from recollect.negatives import check_negatives
from recollect.optimizers import OPTIMIZERS

ORDERS = ("auto", "random", "blocks")
LOSSES = ("logistic", "ranking", "one-vs-all")


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
    predict: str = "so"  # the slots that one-vs-all predicts
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
        object.__setattr__(self, "predict", parse_slots(self.predict))
        if not self.predict:
            raise UserError("one-vs-all predicts at least one slot, like predict=so; none was given")
        for name in ("batch_size", "epochs", "validate_every", "patience"):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 1:
                raise UserError(f"{name} must be a whole number from 1; got {value}")
        for name, positive in (("learning_rate", True), ("l2", False), ("margin", False)):
            value = getattr(self, name)
            if not (math.isfinite(value) and (value > 0 or (value == 0 and not positive))):
                raise UserError(f"{name} must be a number {'above 0' if positive else 'from 0'}; got {value}")

    @property
    def drawn(self) -> Mapping[str, int]:
        """The corruptions that are drawn for each fact, by slot."""
        return {} if self.loss == "one-vs-all" else self.negatives

    @property
    def slots(self) -> str:
        """The slots whose queries are needed."""
        return self.predict if self.loss == "one-vs-all" else "".join(self.negatives)

    def objective(self) -> Callable[..., Tensor]:
        """The sampled loss of each fact and its corruptions: (B,), (B, K) -> (B,)."""
        if self.loss == "logistic":
            return logistic
        return partial(ranking, margin=self.margin, sigmoid=self.sigmoid)


RECIPES: dict[str, Recipe] = {"paper": Recipe()}


def parse_recipe(name: str) -> Recipe:
    """The recipe of that name."""
    if name not in RECIPES:
        raise UserError(f"unknown recipe {name!r}; choose one of {', '.join(RECIPES)}")
    return RECIPES[name]
