"""What a memory ranks answers by: a θ + b log λ, the model and the history of the store, with (a, b) by slot."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from recollect.evaluation.ranking import Scorer
from recollect.graph.fact_index import FactIndex
from recollect.graph.facts import SLOTS, Facts
from recollect.history.cells import CellRates
from recollect.history.history import History
from recollect.models.tensor_model import TensorModel

FIT_FACTS = 2048  # validation facts per slot that (a, b) are fitted to: enough for two numbers
FIT_ROWS = 256  # facts scored at a time
STEPS = 20  # of Newton's method, at most
UNFITTED = (0.4, 0.6)  # (a, b) of a memory without validation facts: typical of ICEWS14


@dataclass(frozen=True, eq=False)
class MemoryScorer:
    """score = a θ + b log λ; a scorer for ranking like the model and the history that it adds up.

    Without history it is θ, without a model it is log λ.
    """

    model: TensorModel | None
    history: History | None
    weights: Mapping[str, tuple[float, float]]  # slot -> (a, b)
    cells: CellRates | None = None  # what is likely to hold at a time, of a scorer with history

    def __str__(self) -> str:
        parts = [] if self.history is None else ["history"]
        if self.model is not None:
            config = self.model.config
            form = config.form + (" + static" if config.static else "")
            parts.insert(0, f"{type(self.model).__name__}, {form}, dim {config.dim}")
        return " + ".join(parts)

    @property
    def ranked(self) -> Scorer:
        """The scorer that evaluation ranks by: the model itself where it is alone, since its queries are faster."""
        return self.model if self.model is not None and self.history is None else self

    @property
    def slots(self) -> str:
        """The slots that can be asked for."""
        return SLOTS if self.model is None else self.model.slots

    def normalize(self, facts: Facts) -> Facts:
        """Return facts as the model tells them apart: a semantic one without their times."""
        return facts if self.model is None else self.model.normalize(facts)

    def normalize_index(self, index: FactIndex) -> FactIndex:
        """Return the index of the same facts as the model tells them apart."""
        return index if self.model is None else self.model.normalize_index(index)

    def score(self, facts: Facts) -> Tensor:
        """Return the score of each fact as an answer to the question for its object: (B,)."""
        return self.score_against(facts, "o", facts.o[:, None])[:, 0]

    @torch.no_grad()
    def score_against(self, facts: Facts, slot: str, candidates: Tensor | None = None) -> Tensor:
        """Return the score of fact b with `slot` replaced by candidate n: (B, N) for all ids or ids (N,) or (B, N)."""
        if self.history is None:
            assert self.model is not None
            return self.model.score_against(facts, slot, candidates)
        by_history = self.history.score_against(facts, slot, candidates)
        if self.model is None:
            return by_history
        a, b = self.weights.get(slot, UNFITTED)
        return a * self.model.score_against(facts, slot, candidates).cpu() + b * by_history


def fit_weights(
    model: TensorModel, history: History, valid: Facts, *, known: FactIndex, generator: torch.Generator
) -> dict[str, tuple[float, float]]:
    """Return the (a, b) of every slot that maximise the likelihood of validation answers among all candidates."""
    valid = valid.true()
    weights = {}
    for slot in model.slots:
        chosen = valid[torch.randperm(len(valid), generator=generator)[:FIT_FACTS]]
        parts = [_features(model, history, part, slot, known) for part in chosen.split(FIT_ROWS)]
        weights[slot] = _fit_softmax(parts)
    return weights


@torch.no_grad()
def _features(
    model: TensorModel, history: History, facts: Facts, slot: str, known: FactIndex
) -> tuple[Tensor, Tensor, Tensor]:
    """Return θ and log λ of all candidates (B, N, 2), which of them count (B, N), and the answers (B,).

    Other known answers do not count.
    """
    features = torch.stack([model.score_against(facts, slot).cpu(), history.score_against(facts, slot)], dim=2)
    own = facts.column(slot)
    rows, ids = known.find(facts, slot)
    counts = torch.ones(features.shape[:2], dtype=torch.bool)
    counts[rows, ids] = False
    counts[torch.arange(len(own)), own] = True
    return features, counts, own


def _fit_softmax(parts: list[tuple[Tensor, Tensor, Tensor]]) -> tuple[float, float]:
    """Return the weights of a conditional logit by Newton's method; a negative one is set to 0 and the other fitted."""
    free, weights = [0, 1], torch.tensor([0.5, 0.5], dtype=torch.float64)
    while free:
        for _ in range(STEPS):
            gradient, hessian = _softmax_derivatives(parts, weights)
            hessian += 1e-3 * torch.eye(2, dtype=torch.float64)
            step = torch.linalg.solve(hessian[free][:, free], gradient[free])
            weights[free] += step.clamp(-0.5, 0.5)
            if step.abs().max() < 1e-3:
                break
        negative = [i for i in free if weights[i] < 0]
        if not negative:
            break
        free.remove(negative[0])
        weights[negative[0]] = 0.0
    return weights[0].item(), weights[1].item()


def _softmax_derivatives(parts: list[tuple[Tensor, Tensor, Tensor]], weights: Tensor) -> tuple[Tensor, Tensor]:
    """Return gradient (2,) and negative Hessian (2, 2) of Σ log softmax(answer)."""
    gradient, hessian = torch.zeros(2, dtype=torch.float64), torch.zeros(2, 2, dtype=torch.float64)
    for features, counts, own in parts:
        scores = (features @ weights.to(features)).masked_fill(~counts, -torch.inf)
        share = scores.softmax(dim=1)
        mean = torch.einsum("bn,bnf->bf", share, features)
        gradient += (features[torch.arange(len(own)), own] - mean).sum(0).double()
        second = torch.einsum("bn,bnf,bng->fg", share, features, features) - mean.T @ mean
        hessian += second.double()
    return gradient, hessian
