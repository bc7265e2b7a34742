"""The sizes at which speed is measured, and graphs of those sizes: real if present, else random with their skew."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import torch
from torch import Tensor

from recollect.errors import UserError
from recollect.graph.facts import KINDS, SLOTS, EpisodicGraph, Facts, distinct
from recollect.graph.seeds import seeded
from recollect.graph.times import TimeAxis
from recollect.graph.vocabulary import Vocabulary
from recollect.io.datasets import dataset, find_dataset
from recollect.io.datasets.download import locate

# kind -> (power, shift): the k-th most frequent id has weight (k + shift)^−power. Fitted to icews-500 and
# gdelt2012-countries: the first of 500 entities is in 6.5 % of all facts, the 100th in 0.2 %; the busiest day has
# a third more facts than the median.
SKEW = {"entity": (1.0, 2.0), "predicate": (1.5, 2.0), "time": (0.05, 0.0)}
OVERSAMPLING = 1.2  # draws per missing fact: some repeat earlier ones


@dataclass(frozen=True, kw_only=True)
class Shape:
    """The sizes of a graph, and the dataset that has them, if there is one."""

    name: str
    entities: int
    predicates: int
    times: int
    facts: int  # in the train split
    test: int  # facts in the test split
    batch_size: int
    dataset: str | None = None

    @property
    def sizes(self) -> dict[str, int]:
        return {"entity": self.entities, "predicate": self.predicates, "time": self.times}

    def tiny(self) -> Shape:
        """Return the same shape with few facts, to try the code that measures it."""
        times = min(self.times, 6)
        return replace(self, entities=40, predicates=5, times=times, facts=300, test=40, batch_size=100, dataset=None)


# the paper's GDELT: 80 % of its 2.56 M facts to train and 10 % to test
GDELT = Shape(name="gdelt", entities=1100, predicates=180, times=366, facts=2_050_000, test=256_000, batch_size=8192)
ICEWS14 = Shape(
    name="icews14",
    entities=7128,
    predicates=230,
    times=365,
    facts=72_826,
    test=8_963,
    batch_size=1024,
    dataset="icews14",
)
FB15K_237 = Shape(
    name="fb15k-237",
    entities=14_541,
    predicates=237,
    times=1,
    facts=272_115,
    test=20_466,
    batch_size=1024,
    dataset="fb15k-237",
)
# few times, so that ConT's cores fit at dim 160 too
GROWTH = Shape(name="growth", entities=1000, predicates=50, times=24, facts=50_000, test=5_000, batch_size=4096)


@lru_cache(maxsize=2)
def graph_of(shape: Shape, seed: int = 0) -> EpisodicGraph:
    """Return the dataset of that shape if its files are present, else random facts of its sizes."""
    if shape.dataset is not None and all(locate(file) for file in find_dataset(shape.dataset).files.values()):
        return dataset(shape.dataset)
    facts = skewed_facts(shape, shape.facts + shape.test, seed=seed)
    return EpisodicGraph(
        entities=_vocabulary("entity", shape.entities),
        predicates=_vocabulary("predicate", shape.predicates),
        times=TimeAxis("ordinal", 0, shape.times),
        splits={"train": facts[: shape.facts], "test": facts[shape.facts :]},
        name=f"random facts of {shape.name}'s sizes",
    )


def skewed_facts(shape: Shape, count: int, *, seed: int = 0) -> Facts:
    """Return distinct facts in random order, with the skew of real events.

    >>> facts = skewed_facts(GROWTH.tiny(), 200)
    >>> len(facts), len(distinct(facts, GROWTH.tiny().sizes))
    (200, 200)
    """
    cells = shape.entities**2 * shape.predicates * shape.times
    if count > cells // 4:
        raise UserError(f"{count:,} facts are too many for {cells:,} cells; wanted at most a quarter of them")
    generator = seeded(seed)
    weights = {kind: _weights(kind, size, generator) for kind, size in shape.sizes.items()}
    facts = Facts.of([])
    while len(facts) < count:
        missing = count - len(facts)
        count_drawn = int(OVERSAMPLING * missing) + 1
        columns = [
            torch.multinomial(weights[KINDS[slot]], count_drawn, replacement=True, generator=generator)
            for slot in SLOTS
        ]
        facts = distinct(Facts.concat([facts, Facts.from_columns(*columns)]), shape.sizes)
    return facts[torch.randperm(len(facts), generator=generator)[:count]]


def _weights(kind: str, size: int, generator: torch.Generator) -> Tensor:
    """Return the weights of the ids of a kind, in random order: (size,)."""
    power, shift = SKEW[kind]
    weights = (torch.arange(1, size + 1, dtype=torch.float64) + shift) ** -power
    return weights[torch.randperm(size, generator=generator)]


def _vocabulary(kind: str, size: int) -> Vocabulary:
    return Vocabulary(kind, tuple(f"{kind} {i:06d}" for i in range(size)))
