"""How to learn, as data: named, frozen, and written into every saved memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

from torch import Tensor

from recollect.errors import UserError
from recollect.losses import logistic, ranking
from recollect.negatives import check_negatives

LOSSES: dict[str, Callable[..., Tensor]] = {"logistic": logistic, "ranking": ranking}


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
        for name in ("learning_rate", "batch_size", "epochs", "validate_every", "patience"):
            if not getattr(self, name) > 0:
                raise UserError(f"{name} must be above 0; got {getattr(self, name)}")
        if not self.l2 >= 0:
            raise UserError(f"l2 must be 0 or more; got {self.l2}")

    def objective(self) -> Callable[..., Tensor]:
        """The loss of each fact and its corruptions: (B,), (B, K) -> (B,)."""
        if self.loss == "ranking":
            return partial(ranking, margin=self.margin, sigmoid=self.sigmoid)
        return LOSSES[self.loss]

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


RECIPES: dict[str, Recipe] = {"paper": Recipe()}
