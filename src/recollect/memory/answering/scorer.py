"""What a memory ranks answers by: Σ_m a_m θ_m + b log λ, its models and the history of the store, weighted by slot."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from recollect.engine import parallel_for
from recollect.errors import UserError
from recollect.evaluation.ranking import Scorer
from recollect.graph.fact_index import FactIndex
from recollect.graph.facts import SLOTS, Facts
from recollect.history.cells import CellRates
from recollect.history.history import History
from recollect.models.tensor_model import TensorModel

PARALLEL_WORK = 2**20  # multiply-adds per fact: enough for a block to be worth a thread
STEPS = 20  # of Newton's method, at most
PRIOR_STRENGTH = 1.0  # of the weights that a fit starts from, in units of the curvature of the log-likelihood
NEW_TIME = 0.5  # factor of a model's weight for entities at times that it was not trained on
# at 30 such days of ICEWS14 MRR 0.646 instead of 0.636, where history alone has 0.637, and 0.647 with a model that is
# trained on them too; predicates (0.715 against 0.712) and times (0.408 against 0.380) are better at full weight
UNFITTED = (0.4, 0.6)  # Σ a and b of a slot without fitted weights: typical of ICEWS14


@dataclass(frozen=True, eq=False)
class MemoryScorer:
    """score = Σ_m a_m θ_m + b log λ; a scorer for ranking like the models and the history that it adds up.

    A model alone is θ, history alone is log λ. All models have one form, episodic or semantic.
    """

    trained: tuple[TensorModel, ...]  # the models as they were trained
    history: History | None
    weights: Mapping[str, tuple[float, ...]]  # slot -> (a_1, …, a_M), then b if there is a history
    cells: CellRates | None = None  # what is likely to hold at a time, of a scorer with history
    trained_times: tuple[int, int] | None = None  # first and last that the weights were fitted for; None: all
    grow: Callable[[], tuple[TensorModel, ...]] | None = None  # returns the models with rows for later ids

    @cached_property
    def models(self) -> tuple[TensorModel, ...]:
        """The models; rows for ids that came after training are solved when they are first read."""
        return self.trained if self.grow is None else self.grow()

    def __str__(self) -> str:
        parts = [describe_model(model) for model in self.trained]
        return " + ".join(parts + ([] if self.history is None else ["history"]))

    @property
    def parts(self) -> tuple[Scorer, ...]:
        """What is added up, in the order of the weights: the models, then the history."""
        return self.models if self.history is None else (*self.models, self.history)

    @property
    def ranked(self) -> Scorer:
        """The scorer that evaluation ranks by: the model itself where it is alone, since its queries are faster."""
        return self.models[0] if len(self.models) == 1 and self.history is None else self

    @property
    def slots(self) -> str:
        """The slots that can be asked for."""
        return self.trained[0].slots if self.trained else SLOTS

    def normalize(self, facts: Facts) -> Facts:
        """Return facts as the models tell them apart: semantic ones without their times."""
        return self.trained[0].normalize(facts) if self.trained else facts

    def normalize_index(self, index: FactIndex) -> FactIndex:
        """Return the index of the same facts as the models tell them apart."""
        return self.trained[0].normalize_index(index) if self.trained else index

    def score(self, facts: Facts) -> Tensor:
        """Return the score of each fact as an answer to the question for its object: (B,)."""
        return self.score_against(facts, "o", facts.o[:, None])[:, 0]

    @torch.no_grad()
    def score_against(self, facts: Facts, slot: str, candidates: Tensor | None = None) -> Tensor:
        """Return the score of fact b with `slot` replaced by candidate n: (B, N) for all ids or ids (N,) or (B, N)."""
        first, *others = self.parts
        if not others:
            return first.score_against(facts, slot, candidates)
        weights = self.weights.get(slot) or self._unfitted()
        trust = self._trust(facts, slot)
        total = weights[0] * trust * first.score_against(facts, slot, candidates).cpu()
        for part, weight in zip(others, weights[1:], strict=True):
            if weight:
                scores = part.score_against(facts, slot, candidates).cpu()
                total = total + (weight * scores if part is self.history else weight * trust * scores)
        return total

    def _trust(self, facts: Facts, slot: str) -> Tensor | float:
        """Return the factor of the models' weights, (B, 1): NEW_TIME for entities at times after the fit, else 1."""
        if self.trained_times is None or self.history is None or slot not in "so":
            return 1.0
        first, last = self.trained_times
        is_trained = (facts.t >= first) & (facts.t <= last)
        return torch.where(is_trained, 1.0, NEW_TIME)[:, None]

    def _unfitted(self) -> tuple[float, ...]:
        of_models, of_history = UNFITTED
        weights = (of_models / len(self.models),) * len(self.models)
        return weights if self.history is None else (*weights, of_history)


def describe_model(model: TensorModel) -> str:
    """Return a model's name, form and dim in a few words."""
    config = model.config
    form = config.form + (" + static" if config.static else "")
    return f"{type(model).__name__}, {form}, dim {config.dim}"


def only_model(scorer: MemoryScorer) -> TensorModel:
    """Return the model of a scorer that has one; raise UserError for none or several."""
    if not scorer.models:
        raise UserError("this memory is history alone and has no model; learn one with model='complex' or another")
    if len(scorer.models) > 1:
        names = " + ".join(type(model).__name__ for model in scorer.models)
        raise UserError(
            f"this memory adds up the models {names}, and one is needed; take one of memory.models, "
            "or learn a memory of one model"
        )
    return scorer.models[0]


# -- weights ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Scored:
    """Scores of all candidates of some facts' questions by each part of a scorer."""

    facts: Facts  # B facts
    features: Tensor  # (F, B, N)

    def total(self, weights: Sequence[float]) -> Tensor:
        """Return the weighted sum of the scores of all parts: (B, N)."""
        return torch.tensordot(torch.tensor(weights, dtype=self.features.dtype), self.features, dims=1)


@torch.no_grad()
def score_parts(parts: Sequence[Scorer], facts: Facts, slot: str, rows: int) -> list[Scored]:
    """Return the scores of all candidates of a slot by each of F scorers, in blocks of at most `rows` facts."""
    blocks = list(facts.split(rows))
    scored: dict[int, Scored] = {}

    def score(first: int, last: int) -> None:
        for number in range(first, last):
            scores = [part.score_against(blocks[number], slot).cpu() for part in parts]
            scored[number] = Scored(blocks[number], torch.stack(scores))

    parallel_for(score, len(blocks), len(facts) * PARALLEL_WORK)
    return [scored[number] for number in range(len(blocks))]


def fit_weights(scored: Sequence[Scored], slot: str, *, known: FactIndex, start: Sequence[float]) -> tuple[float, ...]:
    """Return the weights of a conditional logit by Newton's method: those that make the facts' answers likeliest.

    Other known answers are no candidates. Few facts leave the weights close to `start`. Weights are at least 0: the
    most negative one is set to 0 and the others are fitted again, until none is negative.
    """
    counts = [_counted(each.facts, slot, known) for each in scored]
    prior = torch.tensor(start, dtype=torch.float64)
    free, weights = list(range(len(prior))), prior.clone()
    while free:
        for _ in range(STEPS):
            gradient, hessian = _softmax_derivatives(scored, counts, slot, weights)
            gradient -= PRIOR_STRENGTH * (weights - prior)
            hessian += PRIOR_STRENGTH * torch.eye(len(prior), dtype=torch.float64)
            step = torch.linalg.solve(hessian[free][:, free], gradient[free])
            weights[free] += step.clamp(-0.5, 0.5)
            if step.abs().max() < 1e-3:
                break
        lowest = min(free, key=lambda i: weights[i].item())
        if weights[lowest] >= 0:
            break
        free.remove(lowest)
        weights[lowest] = 0.0
    return tuple(weights.tolist())


def reciprocal_gain(scored: Sequence[Scored], slot: str, weights: Sequence[float], *, known: FactIndex) -> Tensor:
    """Return the reciprocal filtered ranks of facts by the weighted sum, less those by the last part alone: (n,)."""
    gains = []
    for each in scored:
        counted, own = _counted(each.facts, slot, known), each.facts.column(slot)[:, None]
        ranks = []
        for scores in (each.total(weights), each.features[-1]):
            true = scores.gather(1, own)
            others = scores.masked_fill(~counted, -torch.inf)
            ties = (others == true).sum(dim=1) - 1
            ranks.append(1 + (others > true).sum(dim=1) + ties / 2)
        gains.append(1 / ranks[0] - 1 / ranks[1])
    return torch.cat(gains)


def _counted(facts: Facts, slot: str, known: FactIndex) -> Tensor:
    """Return which candidates count: all but other known answers, (B, N) bool."""
    return ~known.mask(facts, slot).scatter(1, facts.column(slot)[:, None], False)


def _softmax_derivatives(
    scored: Sequence[Scored], counts: Sequence[Tensor], slot: str, weights: Tensor
) -> tuple[Tensor, Tensor]:
    """Return gradient (F,) and negative Hessian (F, F) of Σ log softmax(answer)."""
    width = len(weights)
    gradient, hessian = torch.zeros(width, dtype=torch.float64), torch.zeros(width, width, dtype=torch.float64)
    for each, counted in zip(scored, counts, strict=True):
        own = each.facts.column(slot)
        share = each.total(weights.tolist()).masked_fill(~counted, -torch.inf).softmax(dim=1)
        weighted = [share * feature for feature in each.features]
        mean = torch.stack([part.sum(dim=1) for part in weighted]).double()  # (F, B)
        gradient += (each.features[:, torch.arange(len(own)), own].double() - mean).sum(dim=1)
        second = torch.stack([part.flatten() for part in weighted]) @ each.features.flatten(1).T
        hessian += second.double() - mean @ mean.T
    return gradient, hessian
