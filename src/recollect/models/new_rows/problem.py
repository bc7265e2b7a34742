"""Assemble the questions about one row to a convex problem with a bounded number of candidates."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from recollect.graph.facts import KINDS, Facts
from recollect.models.new_rows.features import Implicit, row_features
from recollect.models.new_rows.likelihood import Dense, Design, Likelihood
from recollect.models.scoring import substitute
from recollect.models.tensor_model import TensorModel

FEATURES = 4096  # candidates in all questions that give the id, about
CANDIDATES = (8, 64)  # of one question, at least and at most; half of them are those that score highest
STORED = 2**22  # elements of the features that are stored; more are computed when they are needed


@dataclass(frozen=True, eq=False)
class NonAnswers:
    """Questions of trained facts to which an entity is no answer."""

    features: Tensor  # (R, d): by the row of the entity in the slot asked for
    log_rest: Tensor  # (R,): log Z
    count: Tensor  # (R,): the questions that each stands for


@dataclass(frozen=True, eq=False)
class Questions:
    """Some questions about one id: in all of them it is in the same slot."""

    facts: Facts
    slot: str  # of the id
    asked: str  # equal to `slot` if the id is the answer


def questions_of(row: int, kind: str, asked: Sequence[tuple[Facts, str]], slots: str) -> list[Questions]:
    """Return the questions about the id `row` of a kind among facts that are asked for a slot, by the slot of the id.

    A fact that has the id in two slots is asked about in both; in the other one the row is as the model has it.
    """
    of_kind = [slot for slot in slots if KINDS[slot] == kind]
    found: dict[tuple[str, str], list[Facts]] = {}
    for facts, open_slot in asked:
        for slot in of_kind:
            found.setdefault((slot, open_slot), []).append(facts[facts.column(slot) == row])
    groups = [Questions(Facts.concat(parts), slot, open_slot) for (slot, open_slot), parts in found.items()]
    return [group for group in groups if len(group.facts)]


class TrainedEntities:
    """The trained entities as candidates: the first ids of any model that has more."""

    def __init__(self, trained: TensorModel) -> None:
        self.count = trained.sizes["entity"]
        self._rows = {slot: trained.candidates(slot) for slot in "so"}

    @torch.no_grad()
    def scores(self, model: TensorModel, facts: Facts, slot: str, *, without: Tensor | None = None) -> Tensor:
        """Return θ of each fact with each trained entity in a slot, −∞ for the ids `without`: (B, N)."""
        rows = self._rows[slot]
        if rows is None:
            scores = model.score_against(facts, slot, torch.arange(self.count))
        else:
            scores = model.queries(facts, slot) @ rows.T
        if without is not None:
            answers = (without < self.count).nonzero()[:, 0]
            scores[answers, without[answers]] = -torch.inf
        return scores


def assemble(
    model: TensorModel,
    questions: Sequence[Questions],
    entities: TrainedEntities,
    *,
    weight: float = 1.0,
    background: Sequence[NonAnswers] = (),
) -> tuple[Design, Likelihood]:
    """Return Φ and the losses of the questions about one row, each of which stands for `weight` of its kind."""
    choices = [each for each in questions if each.slot != each.asked]
    answers = [each for each in questions if each.slot == each.asked]
    like = model.entity.detach()
    width = min(max(FEATURES // max(1, sum(len(each.facts) for each in choices)), CANDIDATES[0]), CANDIDATES[1])
    candidates, log_weights = [], []
    for each in choices:
        chosen, log_weight = choose_candidates(model, each.facts, each.asked, entities, width)
        candidates.append((substitute(each.facts, each.asked, chosen), each.slot))
        log_weights.append(log_weight)
    log_weight = torch.cat(log_weights) if log_weights else like.new_zeros(0, 1)
    rests = [
        entities.scores(model, each.facts, each.asked, without=each.facts.column(each.asked)).logsumexp(1)
        for each in answers
    ]
    rest = torch.cat([like.new_zeros(0), *rests, *(each.log_rest for each in background)])
    positive = sum(map(len, rests))
    count = torch.cat([like.new_full((positive,), weight), *(each.count for each in background)])
    design, offset = _design(model, [*candidates, *((each.facts, each.slot) for each in answers)], background)
    is_answer = torch.arange(len(rest)) < positive
    return design, Likelihood(offset, log_weight, like.new_full((len(log_weight),), weight), rest, is_answer, count)


def choose_candidates(
    model: TensorModel, facts: Facts, slot: str, entities: TrainedEntities, width: int
) -> tuple[Tensor, Tensor]:
    """Return candidates of each question, its own answer first, and log weights: (B, 1 + at most width) each.

    Half of them are the trained entities that score highest by the current rows. The others are every n-th trained
    entity, each counted as many times as makes up for those that are left out. All of them if there are few.
    """
    own = facts.column(slot)[:, None]
    scores, count = entities.scores(model, facts, slot, without=own[:, 0]), entities.count
    best = count if count <= width else width // 2
    top = scores.topk(best, dim=1).indices
    spread = torch.arange(0, count, -(-count // (width - best))) if best < count else top.new_empty(0)
    others = torch.cat([top, spread.expand(len(facts), -1)], dim=1)
    repeated = (spread[None, :, None] == top[:, None, :]).any(2)
    is_left_out = torch.cat([torch.zeros_like(top, dtype=torch.bool), repeated], dim=1) | (others == own)
    log_weight = scores.new_zeros(len(facts), others.shape[1])
    log_weight[:, best:] = math.log((count - best) / len(spread)) if best < count else 0.0
    log_weight = log_weight.masked_fill(is_left_out, -torch.inf)
    return torch.cat([own, others], dim=1), torch.cat([log_weight.new_zeros(len(facts), 1), log_weight], dim=1)


def _design(
    model: TensorModel, parts: Sequence[tuple[Facts, str]], background: Sequence[NonAnswers]
) -> tuple[Design, Tensor]:
    """Return Φ of all facts by the rows of their ids in the given slots, then of the background, and the offsets."""
    elements = sum(len(facts) * model.row_size(slot) for facts, slot in parts)
    if elements > STORED and len({slot for _, slot in parts}) == 1 and not background:
        implicit = Implicit.of(model, Facts.concat(facts for facts, _ in parts), parts[0][1])
        return implicit, implicit.offset
    found = [row_features(model, facts, slot) for facts, slot in parts]
    features = torch.cat([*(features for features, _ in found), *(each.features for each in background)])
    silent = [torch.zeros_like(each.log_rest) for each in background]
    return Dense(features), torch.cat([*(offset for _, offset in found), *silent])
