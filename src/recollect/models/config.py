"""The options of a model: they fix its equations and the shapes of its parameters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from recollect.errors import UserError
from recollect.models.time_knots import check_time_levels

FORMS = ("episodic", "semantic")
DTYPES = {"float32": torch.float32, "float64": torch.float64}


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """A model by name, its embedding sizes, and the variants of its equation.

    Examples:
        >>> config = ModelConfig(model="tucker", dim=40, time_dim=10)
        >>> config.dims
        {'entity': 40, 'predicate': 40, 'time': 10}
    """

    model: str
    dim: int  # embedding size of entities (the paper's rank r̃)
    predicate_dim: int | None = None  # None = dim
    time_dim: int | None = None  # None = dim
    form: str = "episodic"  # episodic (s p o t) or semantic (s p o)
    static: bool = False  # add the semantic equation to the episodic one; ComplEx becomes TNTComplEx
    reciprocal: bool = False  # train inverse predicates and predict subjects as objects of the inverse
    time_levels: tuple[int, ...] = (1,)  # spacings of the knots that times are interpolated from
    dtype: str = "float32"

    def __post_init__(self) -> None:
        if self.form not in FORMS:
            raise UserError(f"unknown form {self.form!r}; choose one of {', '.join(FORMS)}")
        if self.static and self.form != "episodic":
            raise UserError("static=True adds the semantic equation to an episodic model; leave it out, or the form")
        if self.dtype not in DTYPES:
            raise UserError(f"unknown dtype {self.dtype!r}; choose one of {', '.join(DTYPES)}")
        for name, dim in self.dims.items():
            if not isinstance(dim, int) or isinstance(dim, bool) or dim < 1:
                raise UserError(f"a dim is a whole number from 1; got {dim!r} for {name}")
        object.__setattr__(self, "time_levels", check_time_levels(self.time_levels))

    @property
    def dims(self) -> dict[str, int]:
        """Return the embedding size of each kind."""
        return {
            "entity": self.dim,
            "predicate": self.dim if self.predicate_dim is None else self.predicate_dim,
            "time": self.dim if self.time_dim is None else self.time_dim,
        }

    @property
    def torch_dtype(self) -> torch.dtype:
        return DTYPES[self.dtype]

    def to_dict(self) -> dict[str, Any]:
        """Return the options as a bundle of format 1 stores them; `from_dict` reads them back."""
        stored: dict[str, Any] = {
            "model": self.model,
            "form": "both" if self.static else self.form,
            "ranks": self.dims,
            "dtype": self.dtype,
        }
        if self.reciprocal:
            stored["reciprocal"] = True
        if self.time_levels != (1,):
            stored["levels"] = list(self.time_levels)
        return stored

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> ModelConfig:
        """Return the options of a stored description; unknown keys are ignored."""
        dims = stored["ranks"]
        static = stored["form"] == "both"
        return cls(
            model=stored["model"],
            dim=dims["entity"],
            predicate_dim=dims["predicate"],
            time_dim=dims["time"],
            form="episodic" if static else stored["form"],
            static=static,
            reciprocal=stored.get("reciprocal", False),
            time_levels=tuple(stored.get("levels", (1,))),
            dtype=stored["dtype"],
        )
