"""Validate a model during training: the filtered MRR of subjects and objects.

Of a graph with more entities than can be ranked after every few epochs, a sample is ranked: the entities of the
validation facts and others, the same ones every time. The MRR is then higher than among all entities, and still says
which weights are better.
"""

from __future__ import annotations

import torch
from torch import Tensor

from recollect.evaluation.metrics import summarise
from recollect.evaluation.ranking import rank
from recollect.graph.fact_index import FactIndex
from recollect.graph.facts import Facts
from recollect.models.tensor_model import TensorModel

MAX_ENTITIES = 2**20  # of more, a sample is ranked
SAMPLED_ENTITIES = 2**17  # and the entities of the validation facts


class Validation:
    """Rank validation facts among all entities, or among a sample of them."""

    def __init__(
        self,
        model: TensorModel,
        facts: Facts,
        known: Facts,
        *,
        most: int = MAX_ENTITIES,
        sampled: int = SAMPLED_ENTITIES,
    ) -> None:
        """`known` are the facts that filtered ranks leave out."""
        self.model, self.facts, sizes = model, facts, model.sizes
        self.entities: Tensor | None = None  # (R,): the entities that are ranked, sorted; None: all
        if sizes["entity"] > most:
            self.entities = _sample(facts, sizes["entity"], sampled)
            is_ranked = _contains(self.entities, known.s) & _contains(self.entities, known.o)
            self.facts, known = (_renumber(part, self.entities) for part in (facts, known[is_ranked]))
            sizes = sizes | {"entity": len(self.entities)}
        self.known = FactIndex(known, sizes)

    def mrr(self) -> float:
        """Return the MRR of the model as it is now."""
        model = self.model
        if self.entities is not None:
            model = model.with_rows({"entity": model.entity.detach().index_select(0, self.entities.to(model.device))})
        rankings = [rank(model, self.facts, slot, known=self.known)["filtered"] for slot in "so"]
        return summarise(rankings)["mrr"]


def _sample(facts: Facts, count: int, sampled: int) -> Tensor:
    """Return the entities of facts and about `sampled` others of all `count`, sorted."""
    generator = torch.Generator().manual_seed(0)
    return torch.cat([facts.s, facts.o, torch.randint(count, (sampled,), generator=generator)]).unique()


def _contains(entities: Tensor, ids: Tensor) -> Tensor:
    """Return whether each id is one of the sorted entities: (n,) bool."""
    position = torch.searchsorted(entities, ids.contiguous()).clamp_(max=len(entities) - 1)
    return entities[position] == ids


def _renumber(facts: Facts, entities: Tensor) -> Facts:
    """Return facts with each entity replaced by its position among the sorted entities."""
    for slot in "so":
        facts = facts.with_slot(slot, torch.searchsorted(entities, facts.column(slot).contiguous()))
    return facts
