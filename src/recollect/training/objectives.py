"""Objectives: what a training step minimises.

An objective says which slots it needs queries of, samples the negatives or candidates of a batch, and computes the
summed loss of a batch. The trainer knows only the interface `Objective`. A new loss is a function in `losses.py` and a
class here, entered in `OBJECTIVES`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from recollect.engine import Combinations, combinations
from recollect.errors import UserError
from recollect.graph.fact_index import FactIndex, draw_other
from recollect.graph.facts import KINDS, ORDER, SLOT_NAMES, Facts, encode, is_sorted, stable_sort
from recollect.models.regularizers import embedding_norms
from recollect.models.tensor_model import TensorModel
from recollect.training.losses import logistic, one_vs_all, ranking

MAX_SHUFFLED = 2**18  # entities that are shuffled to sample some of them; of more, one is drawn from each stratum
MAX_TIME_ELEMENTS = 2**24  # of a larger table of times (64 MiB), only the times of a batch are candidates


@dataclass(frozen=True)
class Dropout:
    """Which elements of each distinct query are kept."""

    kept: Tensor  # (Q, d) bool
    query: Tensor  # (B,): the query of each fact


@dataclass(frozen=True)
class TrainingBatch:
    """Facts of one step with everything that was sampled for them; ids may be renumbered to a subset of rows."""

    facts: Facts  # those of the batch, then, for a reciprocal model, their inverse facts
    count: int  # the first `count` facts are those of the batch
    negatives: Mapping[str, Tensor] = field(default_factory=dict)  # slot -> ids (B, K)
    entities: Tensor | None = None  # (R,): the sorted ids of the only entities that are candidates; None = all
    entity_counts: Tensor | None = None  # (R,): the number of entities that each of them counts as
    dropout: Mapping[str, Dropout] = field(default_factory=dict)  # by slot

    def share(self, chosen: Tensor) -> TrainingBatch:
        """Return the batch of some of its first `count` facts (n,), with what was sampled for them."""
        every = chosen if len(self.facts) == self.count else torch.cat([chosen, self.count + chosen])
        negatives = {slot: ids.index_select(0, every) for slot, ids in self.negatives.items()}
        dropout = {}
        for slot, drawn in self.dropout.items():
            places = every if len(drawn.query) == len(self.facts) else chosen
            dropout[slot] = replace(drawn, query=drawn.query.index_select(0, places))
        return replace(self, facts=self.facts[every], count=len(chosen), negatives=negatives, dropout=dropout)


class Objective(ABC):
    """The loss of a batch, and what it needs from sampling and from the model.

    An objective is a dataclass; its fields are set from the fields of a recipe that have the same names.
    """

    name: ClassVar[str]
    time_levels: ClassVar[tuple[int, ...]] = (1,)  # default of the models that are trained by it
    times_per_batch: ClassVar[tuple[int, ...]] = (64, 32, 16)  # choices of `sampler.choose_block`, most first;
    # with fewer distinct times in a batch, validation MRR suffers
    accepts_false_facts: ClassVar[bool] = False

    negatives: Mapping[str, int]  # ids sampled per fact, by slot

    @classmethod
    def options(cls) -> list[str]:
        """Return the names of the recipe's fields that it uses."""
        return [option.name for option in fields(cls) if option.init]  # type: ignore[arg-type]

    @property
    @abstractmethod
    def slots(self) -> str:
        """Return the slots whose queries it needs."""

    @property
    def is_symmetric(self) -> bool:
        """Return whether subjects can be predicted as objects of inverse facts (`ModelConfig.reciprocal`)."""
        return False

    def check(self, model: TensorModel, facts: Facts) -> None:
        """Raise UserError if this model cannot learn these facts by this objective."""
        if not self.accepts_false_facts and not bool(facts.truth.all()):
            raise UserError(f"the {self.name} loss needs true facts only; use the logistic loss for facts valued False")
        if model.config.reciprocal:
            self._check_reciprocal()
        if unknown := set(self.slots) - set(model.equation.slots):
            names = ", ".join(SLOT_NAMES[slot] for slot in sorted(unknown))
            raise UserError(
                f"the {model.config.form} {type(model).__name__} has no {names} to learn; leave it out of the recipe"
            )

    def _check_reciprocal(self) -> None:
        raise UserError(f"a reciprocal model learns by one-vs-all; got the {self.name} loss")

    def samples_entities(self, model: TensorModel) -> bool:
        """Return whether only some entities, sampled for each batch, are candidates."""
        return False

    def scores_all(self, model: TensorModel, kind: str) -> bool:
        """Return whether every row of a kind's tables is a candidate of each batch."""
        return False

    @abstractmethod
    def sample(self, model: TensorModel, facts: Facts, known: FactIndex, generator: torch.Generator) -> TrainingBatch:
        """Return the facts with negatives or candidates drawn from the generator."""

    @abstractmethod
    def loss(self, model: TensorModel, batch: TrainingBatch, counts: Mapping[str, int] | None) -> Tensor:
        """Return the summed loss of a batch; `counts` are the distinct combinations of slots in a typical batch."""


@dataclass
class NegativeSampling(Objective):
    """Compare each fact with negatives that differ from it in one slot."""

    negatives: Mapping[str, int]
    avoid_known: bool = False

    @property
    def slots(self) -> str:
        return "".join(self.negatives)

    def sample(self, model: TensorModel, facts: Facts, known: FactIndex, generator: torch.Generator) -> TrainingBatch:
        negatives = {}
        for slot, count in self.negatives.items():
            negatives[slot] = sample_negatives(
                facts, slot, count, known=known, generator=generator, avoid_known=self.avoid_known
            )
        if not model.equation.is_diagonal:
            facts, negatives = _sort_by_matrix(model, facts, negatives)
        return TrainingBatch(facts, len(facts), negatives)

    def loss(self, model: TensorModel, batch: TrainingBatch, counts: Mapping[str, int] | None) -> Tensor:
        true, false = model.score_with_negatives(batch.facts, batch.negatives, counts)
        facts = batch.facts.to(model.device)
        return (self.fact_losses(true, false, facts) * _weights(facts, true.dtype)).sum()

    @abstractmethod
    def fact_losses(self, true: Tensor, false: Tensor, facts: Facts) -> Tensor:
        """Return the loss of each fact from θ of facts (B,) and of their negatives (B, K): (B,)."""


def sample_negatives(
    facts: Facts, slot: str, count: int, *, known: FactIndex, generator: torch.Generator, avoid_known: bool = False
) -> Tensor:
    """Return ids (B, count) that replace `slot` of each fact, never its own id.

    With `avoid_known`, no id completes a known fact.
    """
    if known.size(slot) < 2:
        raise UserError(f"cannot corrupt the {SLOT_NAMES[slot]}: this graph has only one; set its negatives to 0")
    if avoid_known:
        return known.draw_unknown(facts, slot, count, generator)
    fraction = torch.rand(len(facts), count, dtype=torch.float64, generator=generator)
    return draw_other(facts, slot, known.size(slot), fraction)


def _weights(facts: Facts, dtype: torch.dtype) -> Tensor:
    """Return the weight of each fact, 1 by default: (B,)."""
    if facts.weight is None:
        return torch.ones(len(facts), dtype=dtype, device=facts.ids.device)
    return facts.weight.to(dtype)


def _sort_by_matrix(
    model: TensorModel, facts: Facts, negatives: Mapping[str, Tensor]
) -> tuple[Facts, dict[str, Tensor]]:
    """Return facts sorted by (time, predicate), so that those which share a matrix are adjacent; negatives alike."""
    slots = "".join(slot for slot in "tp" if slot in model.equation.slots)
    codes = encode(facts, model.sizes, slots)
    if is_sorted(codes):
        return facts, dict(negatives)
    _, order = stable_sort(codes)
    return facts[order], {slot: ids.index_select(0, order) for slot, ids in negatives.items()}


class LogisticLoss(NegativeSampling):
    """Σ log(1 + exp(−yθ)): the paper's loss; facts valued False are learned as y = −1."""

    name = "logistic"
    accepts_false_facts = True

    def fact_losses(self, true: Tensor, false: Tensor, facts: Facts) -> Tensor:
        return logistic(true, false, facts.value)


@dataclass
class MarginRankingLoss(NegativeSampling):
    """Σ max(0, γ + σ(θ⁻) − σ(θ⁺))."""

    name = "ranking"

    margin: float = 1.0
    sigmoid: bool = True

    def fact_losses(self, true: Tensor, false: Tensor, facts: Facts) -> Tensor:
        return ranking(true, false, margin=self.margin, sigmoid=self.sigmoid)


@dataclass
class OneVsAll(Objective):
    """Cross entropy of each predicted slot against all candidates, or entities sampled for the batch."""

    name = "one-vs-all"
    time_levels = (1, 5, 25)
    times_per_batch = (*Objective.times_per_batch, 8, 4)  # fewer suffice: every fact is compared with all candidates

    predict: Mapping[str, float]  # slot -> weight
    candidates: int = 0
    penalty: float = 0.0
    dropout: float = 0.0
    label_smoothing: float = 0.0
    negatives: Mapping[str, int] = field(default_factory=dict, init=False)

    @property
    def slots(self) -> str:
        return "".join(self.predict)

    @property
    def is_symmetric(self) -> bool:
        return "o" in self.predict and self.predict.get("s") == self.predict["o"]

    def _check_reciprocal(self) -> None:
        if not self.is_symmetric:
            raise UserError(f"a reciprocal model predicts s and o alike; got {self.predict}")

    def samples_entities(self, model: TensorModel) -> bool:
        return self._predicts("entity") and 0 < 2 * self.candidates < len(model.entity)

    def scores_all(self, model: TensorModel, kind: str) -> bool:
        if kind == "time" and model.time.numel() > MAX_TIME_ELEMENTS:
            return False
        return self._predicts(kind)

    def _predicts(self, kind: str) -> bool:
        return any(KINDS[slot] == kind for slot in self.predict)

    def sample(self, model: TensorModel, facts: Facts, known: FactIndex, generator: torch.Generator) -> TrainingBatch:
        count, ids, counts = len(facts), None, None
        if model.config.reciprocal:
            facts = Facts.concat([facts, model.inverse(facts)])
        if self.samples_entities(model):
            in_batch = torch.cat([facts.s, facts.o])
            ids, counts = sample_entities(len(model.entity), in_batch, self.candidates, generator)
        batch = TrainingBatch(facts, count, entities=ids, entity_counts=counts)
        if not self.dropout:
            return batch
        predicted = {slot: given for slot, given in self._predicted(model, batch) if not model.has_matrix_rows(slot)}
        dropout = {slot: self._draw_dropout(model, given, slot, generator) for slot, given in predicted.items()}
        return replace(batch, dropout=dropout)

    def _predicted(self, model: TensorModel, batch: TrainingBatch) -> Iterator[tuple[str, Facts]]:
        """Yield (slot, facts) for each slot to predict; subjects of a reciprocal model are objects of inverse facts."""
        reciprocal = model.config.reciprocal
        for slot in self.predict:
            if not (reciprocal and slot == "s"):
                yield slot, batch.facts if reciprocal and slot == "o" else batch.facts[: batch.count]

    def _draw_dropout(self, model: TensorModel, facts: Facts, slot: str, generator: torch.Generator) -> Dropout:
        """Return which elements of the distinct queries of a slot are kept."""
        queries = _distinct_queries(model, facts, slot)
        candidate = model.candidates(slot, torch.zeros(1, dtype=torch.int64))
        assert candidate is not None
        shape = len(queries.example), candidate.shape[1]
        kept = torch.rand(shape, generator=generator, dtype=candidate.dtype) >= self.dropout
        return Dropout(kept, queries.index)

    def loss(self, model: TensorModel, batch: TrainingBatch, counts: Mapping[str, int] | None) -> Tensor:
        on_device = replace(batch, facts=batch.facts.to(model.device))
        losses = []
        for slot, facts in self._predicted(model, on_device):
            entity_counts = batch.entity_counts if KINDS[slot] == "entity" else None
            loss = self._slot_loss(model, facts, slot, entity_counts, batch.dropout.get(slot))
            losses.append(self.predict[slot] * loss)
        return torch.stack(losses).sum()

    def _slot_loss(
        self, model: TensorModel, facts: Facts, slot: str, entity_counts: Tensor | None, dropout: Dropout | None
    ) -> Tensor:
        """Return the summed cross entropy of each fact's id of a slot; facts with equal other slots share a query."""
        shared = _distinct_queries(model, facts, slot)
        distinct = facts[shared.example]
        answers, weights = facts.column(slot), _weights(facts, model.dtype)
        if model.has_matrix_rows(slot):
            logits = model.score_against(distinct, slot).index_select(0, shared.index)
            losses = functional.cross_entropy(logits, answers, reduction="none", label_smoothing=self.label_smoothing)
            return (losses * weights).sum()
        contracted = model.batch(distinct)
        queries, candidates = contracted.query(slot), model.candidates(slot)
        assert candidates is not None
        loss = one_vs_all(
            queries if dropout is None else self._drop(queries, dropout, shared.example),
            candidates,
            shared.index,
            answers,
            weights,
            counts=entity_counts,
            smoothing=self.label_smoothing,
        )
        if self.penalty and KINDS[slot] == "entity":
            query_weights = weights.new_zeros(len(queries)).index_add_(0, shared.index, weights)
            query_norms, answer_norms = embedding_norms(contracted, slot, queries, answers)
            loss = loss + self.penalty * ((query_weights * query_norms).sum() + (weights * answer_norms).sum())
        return loss

    def _drop(self, queries: Tensor, dropout: Dropout, example: Tensor) -> Tensor:
        """Return queries with the dropped elements set to 0, the others scaled up to keep the mean.

        `example` (Q,) is a fact of each query.
        """
        kept = dropout.kept.index_select(0, dropout.query[example.cpu()])
        return queries * (kept.to(queries) / (1 - self.dropout))


def _distinct_queries(model: TensorModel, facts: Facts, slot: str) -> Combinations:
    """Return the distinct ids of the slots other than the predicted one."""
    ids = {other: facts.column(other) for other in model.equation.slots if other != slot}
    return combinations(ids, "".join(other for other in ORDER if other in ids))


def sample_entities(count: int, in_batch: Tensor, sampled: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return candidates (R,), sorted, and the number of entities (R,) that each counts as.

    The candidates are the ids `in_batch` (m,), which count as 1, and up to `sampled` of the other `count` ids, which
    share the number of those not in the batch: an importance-weighted estimate of the full softmax.
    """
    if count > MAX_SHUFFLED:
        return _sample_by_strata(count, in_batch.unique(), sampled, generator)
    counts = torch.zeros(count)
    others = (counts.index_fill_(0, in_batch, 1) == 0).nonzero()[:, 0]
    drawn = others[torch.randperm(len(others), generator=generator)[:sampled]]
    counts[drawn] = len(others) / max(1, len(drawn))
    ids = counts.nonzero()[:, 0]
    return ids, counts[ids]


def _sample_by_strata(count: int, in_batch: Tensor, sampled: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return what `sample_entities` does, in time and memory that do not depend on `count`; `in_batch` is sorted.

    The ids that are not in the batch are cut into `sampled` equal strata, and one is drawn from each. The r-th of them
    is r + #{j : b_j − j ≤ r}, b_j being the ids of the batch. One at the border of two strata may be drawn by both; it
    then counts twice.
    """
    others = count - len(in_batch)
    width = others / sampled
    position = torch.arange(sampled) + torch.rand(sampled, dtype=torch.float64, generator=generator)
    nth, times = (position * width).long().clamp_(max=others - 1).unique(return_counts=True)
    drawn = nth + torch.searchsorted(in_batch - torch.arange(len(in_batch)), nth, right=True)
    ids, order = torch.cat([in_batch, drawn]).sort()
    return ids, torch.cat([torch.ones(len(in_batch)), times * width])[order].float()


OBJECTIVES: dict[str, type[Objective]] = {
    objective.name: objective for objective in (LogisticLoss, MarginRankingLoss, OneVsAll)
}
