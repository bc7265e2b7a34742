"""The entries of the leaderboards: which models, dims and recipes are trained on which dataset."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from recollect import RECIPES, ModelConfig, Recipe

TIME_LEVELS = (1, 5, 25)  # spacings, in times, of the knots of the modern recipe
CONFIG_FIELDS = ("predicate_dim", "time_dim", "form", "static", "reciprocal", "time_levels")


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One line of a leaderboard: a model, how it is trained, and with which seeds."""

    config: ModelConfig
    recipe: Recipe
    note: str = ""  # its name elsewhere, or what is special about it
    seeds: tuple[int, ...] = (0, 1, 2)

    @property
    def form(self) -> str:
        """Return episodic, semantic, or both for an episodic model with a static part."""
        return "both" if self.config.static else self.config.form

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as JSON stores them."""
        return {
            "model": self.config.model,
            "dims": self.config.dims,
            "form": self.form,
            "reciprocal": self.config.reciprocal,
            "time_levels": self.config.time_levels,
            "recipe": self.recipe.for_model(self.config.model).to_dict(),
            "note": self.note,
            "seeds": self.seeds,
        }


@dataclass(frozen=True, kw_only=True)
class Leaderboard:
    """A dataset, its entries, and figures that others have published on it."""

    data: str
    entries: tuple[Entry, ...]
    published: tuple[tuple[str, float], ...] = ()  # test MRR, filtered by time
    split: str = "test"  # to evaluate; where entries are compared in order to choose, not the test split
    slots: str = "spot"  # to evaluate


def modern(model: str, dim: int, *, note: str = "", seeds: tuple[int, ...] = (0, 1, 2), **options: Any) -> Entry:
    """Return an entry with the modern recipe; `options` are fields of the model's config or of the recipe."""
    structure = {name: options.pop(name) for name in CONFIG_FIELDS if name in options}
    if structure.get("form") != "semantic":
        structure.setdefault("time_levels", TIME_LEVELS)
    structure.setdefault("reciprocal", True)
    config = ModelConfig(model=model, dim=dim, **structure)
    return Entry(config=config, recipe=replace(RECIPES["modern"], **options), note=note, seeds=seeds)


def _both_recipes(paper: dict[str, Any], modern_options: dict[str, Any]) -> tuple[Entry, ...]:
    """Return every episodic model at the paper's dims, with the paper's recipe and with the modern one."""
    entries = []
    dims = dict.fromkeys(("distmult", "hole", "complex"), 100) | dict.fromkeys(("tree", "tucker", "cont"), 40)
    for model, dim in dims.items():
        config = ModelConfig(model=model, dim=dim)
        entries.append(Entry(config=config, recipe=replace(RECIPES["paper"], **paper), note="paper"))
        entries.append(modern(model, dim, note="modern", predict=EVERY_SLOT, **modern_options))
    return tuple(entries)


# weights of the slots that are predicted, where times are predicted too
ENTITIES = {"s": 1.0, "o": 1.0}
ENTITIES_AND_TIME = {**ENTITIES, "t": 0.1}
EVERY_SLOT = {"s": 1.0, "p": 0.25, "o": 1.0, "t": 0.1}

_CONT = partial(modern, "cont", 100, predicate_dim=12, static=True, candidates=0, epochs=16, patience=9)
_TUCKER = partial(modern, "tucker", static=True, predicate_dim=12, candidates=0, epochs=12, patience=9)
_TREE = partial(modern, "tree", 100, predicate_dim=80, time_dim=30, static=True, epochs=12, patience=9)
_COMPLEX = partial(modern, "complex", epochs=24, patience=9)
_HOLE = partial(modern, "hole", 200, static=True, epochs=16, patience=9)
_DISTMULT = partial(modern, "distmult", 200, static=True, epochs=16, patience=9)
_SEMANTIC = partial(modern, form="semantic", epochs=16, patience=9)
_LONG = partial(modern, static=True, time_levels=(1, 5, 25, 125), validate_every=2)
_ABLATED = partial(modern, "cont", 100, predicate_dim=12, epochs=12, patience=9, seeds=(0,))
_STATIC = partial(_ABLATED, static=True)

ICEWS14 = Leaderboard(
    data="icews14",
    entries=(
        modern("cont", 150, predicate_dim=20, static=True, candidates=0, dropout=0.3, epochs=16, patience=9),
        _CONT(),
        _CONT(note="times predicted too", predict=EVERY_SLOT),
        _TUCKER(100, time_dim=120),
        _TUCKER(60, time_dim=60),  # predicting times too would take hours at the other dim
        _TUCKER(60, time_dim=60, note="times predicted too", predict=EVERY_SLOT),
        _TREE(),
        _TREE(note="times predicted too", predict=EVERY_SLOT),
        _COMPLEX(1000, static=True, note="TNTComplEx", epochs=20),
        _COMPLEX(156, static=True, note="TNTComplEx"),
        _COMPLEX(156, static=True, note="TNTComplEx, times predicted too", predict=ENTITIES_AND_TIME),
        _COMPLEX(156, note="TComplEx"),
        _HOLE(),
        _HOLE(note="times predicted too", predict=ENTITIES_AND_TIME),
        _DISTMULT(),
        _DISTMULT(note="times predicted too", predict=ENTITIES_AND_TIME),
        _SEMANTIC("rescal", 100),
        _SEMANTIC("complex", 156),
    ),
    published=(
        ("ConT, as copied since 2019", 0.185),
        ("TNTComplEx, dim 156", 0.56),
        ("TuckERTNT", 0.604),
        ("TNTComplEx, dim 1560", 0.62),
        ("best of any method", 0.651),
    ),
)
ABLATION_ICEWS14 = Leaderboard(
    data="icews14",
    split="valid",
    entries=(
        _STATIC(note="all of it"),
        _STATIC(note="all candidates", candidates=0),
        _STATIC(note="times predicted too", predict=EVERY_SLOT),
        _STATIC(note="predicates not predicted", predict=ENTITIES),
        _ABLATED(note="no static part"),
        _STATIC(note="last weights, no mean", average=False),
        _STATIC(note="no coarse levels", time_levels=(1,)),
        _STATIC(note="no smoothness", smoothness=0.0),
        _STATIC(note="neither levels nor smoothness", time_levels=(1,), smoothness=0.0),
        _STATIC(note="no dropout", dropout=0.0),
        _STATIC(note="no label smoothing", label_smoothing=0.0),
        _STATIC(note="no penalty", penalty=0.0),
        _STATIC(note="no inverse predicates", reciprocal=False),
        _STATIC(note="times learn like the rest", time_rate=1.0),
        _STATIC(note="Adam at 0.003", optimizer="adam", learning_rate=3e-3, time_rate=1.0),
        _ABLATED(form="semantic", note="no times at all"),
    ),
)
RECIPES_ICEWS = Leaderboard(
    data="icews-countries",
    entries=_both_recipes(
        {"epochs": 200, "validate_every": 4, "patience": 8}, {"epochs": 24, "validate_every": 2, "patience": 2}
    ),
)
RECIPES_GDELT = Leaderboard(
    data="gdelt2012-countries",
    entries=_both_recipes(
        {"batch_size": 4096, "epochs": 40, "validate_every": 2, "patience": 4},
        {"batch_size": 4096, "epochs": 4, "validate_every": 1, "patience": 2},
    ),
)
ICEWS05_15 = Leaderboard(
    data="icews05-15",
    slots="spo",  # ranking the cores of 4,017 days would take minutes more
    entries=(
        _LONG("cont", 100, predicate_dim=12, candidates=0, penalty=3e-3, epochs=12),
        _LONG("complex", 128, note="TNTComplEx", penalty=5e-3, epochs=20),
    ),
    published=(
        ("ConT, as copied since 2019", 0.163),
        ("TNTComplEx", 0.60),
        ("TNTComplEx, ten times the dim", 0.67),
        ("best of any method", 0.698),
    ),
)

LEADERBOARDS: dict[str, Leaderboard] = {
    "icews14": ICEWS14,
    "ablation-icews14": ABLATION_ICEWS14,
    "icews-countries": RECIPES_ICEWS,
    "gdelt2012-countries": RECIPES_GDELT,
    "icews05-15": ICEWS05_15,
}
