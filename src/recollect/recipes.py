"""How to learn, as data: named, frozen, and written into every saved memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from torch import Tensor

from recollect.errors import UserError
from recollect.losses import logistic, ranking
from recollect.negatives import check_negatives

LOSSES = ("logistic", "ranking")


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Adam on sampled corruptions with early stopping: the paper's recipe is the default.

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
    avoid_known: bool = False  # corruptions may not be facts of the training split
    learning_rate: float = 1e-3
    l2: float = 1e-3  # λ of λ‖P‖², beside the loss summed over all training facts
    batch_size: int = 1024
    epochs: int = 500  # at most
    validate_every: int = 10  # epochs between two validations
    patience: int = 5  # validations without a better MRR before training stops

    def __post_init__(self) -> None:
        if self.loss not in LOSSES:
            raise UserError(f"unknown loss {self.loss!r}; choose one of {', '.join(LOSSES)}")
        object.__setattr__(self, "negatives", check_negatives(self.negatives))
        for name in ("batch_size", "epochs", "validate_every", "patience"):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 1:
                raise UserError(f"{name} must be a whole number from 1; got {value}")
        for name, positive in (("learning_rate", True), ("l2", False), ("margin", False)):
            value = getattr(self, name)
            if not (math.isfinite(value) and (value > 0 or (value == 0 and not positive))):
                raise UserError(f"{name} must be a number {'above 0' if positive else 'from 0'}; got {value}")

    def objective(self) -> Callable[..., Tensor]:
        """The loss of each fact and its corruptions: (B,), (B, K) -> (B,)."""
        if self.loss == "logistic":
            return logistic
        return partial(ranking, margin=self.margin, sigmoid=self.sigmoid)


RECIPES: dict[str, Recipe] = {"paper": Recipe()}


def parse_recipe(name: str) -> Recipe:
    """The recipe of that name."""
    if name not in RECIPES:
        raise UserError(f"unknown recipe {name!r}; choose one of {', '.join(RECIPES)}")
    return RECIPES[name]
