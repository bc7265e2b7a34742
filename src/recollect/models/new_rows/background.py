"""Questions of trained facts to which a new entity is no answer: without them its row would score high everywhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from recollect.graph.facts import Facts
from recollect.models.new_rows.features import row_features
from recollect.models.new_rows.open_facts import asked
from recollect.models.new_rows.problem import NonAnswers, Questions, TrainedEntities
from recollect.models.tensor_model import TensorModel

OVERALL = 256  # questions for each slot, of all predicates
OF_PREDICATE = 64  # further ones of each predicate that the entity is an answer to: there it competes most


@dataclass(frozen=True, eq=False)
class _Sample:
    """Sampled questions for one slot, and their predicates."""

    questions: NonAnswers
    predicates: Tensor  # (R,)


class Background:
    """Samples of the questions of trained facts, every n-th of all and of each predicate, computed when needed."""

    def __init__(self, trained: TensorModel, entities: TrainedEntities, facts: Facts) -> None:
        self.trained, self.entities = trained, entities
        self._facts: dict[str, Facts] = {}  # by the slot they are asked for
        for questions, slot in asked(trained, facts):
            self._facts[slot] = Facts.concat([self._facts.get(slot, Facts.of([])), questions])
        self._counts = {
            slot: questions.p.bincount(minlength=trained.id_count("p")) for slot, questions in self._facts.items()
        }
        self._overall: dict[str, _Sample] = {}
        self._by_predicate: dict[tuple[str, int], NonAnswers] = {}

    def of(self, questions: Sequence[Questions], predicates: int) -> list[NonAnswers]:
        """Return the questions to compare an entity by that has these questions, of a model with so many predicates."""
        found = []
        for slot, facts in self._facts.items():
            if not len(facts):
                continue
            answered = [each.facts.p for each in questions if each.slot == each.asked == slot]
            own = self._trained_ids(torch.cat([facts.p[:0], *answered]).unique(), predicates)
            own = own[self._counts[slot][own] > 0]
            found += [self._of_predicate(slot, predicate) for predicate in own.tolist()]
            overall = self._all(slot)
            others = ~torch.isin(overall.predicates, own)
            each = overall.questions
            found.append(NonAnswers(each.features[others], each.log_rest[others], each.count[others]))
        return found

    def _trained_ids(self, asked: Tensor, predicates: int) -> Tensor:
        """Return the ids that predicates, or inverse ones, from `predicates` on, have in the trained model."""
        count = self.trained.sizes["predicate"]
        is_inverse = asked >= predicates
        number = asked - is_inverse * predicates
        return (number + is_inverse * count)[number < count]

    def _all(self, slot: str) -> _Sample:
        if slot not in self._overall:
            facts = self._facts[slot]
            sample = facts[:: max(1, len(facts) // OVERALL)]
            self._overall[slot] = _Sample(self._sampled(sample, slot, len(facts)), sample.p)
        return self._overall[slot]

    def _of_predicate(self, slot: str, predicate: int) -> NonAnswers:
        if (slot, predicate) not in self._by_predicate:
            facts = self._facts[slot]
            facts = facts[facts.p == predicate]
            sample = facts[:: max(1, len(facts) // OF_PREDICATE)]
            self._by_predicate[slot, predicate] = self._sampled(sample, slot, len(facts))
        return self._by_predicate[slot, predicate]

    @torch.no_grad()
    def _sampled(self, sample: Facts, slot: str, count: int) -> NonAnswers:
        """Return a sample that stands for `count` questions."""
        features, offset = row_features(self.trained, sample, slot)
        rest = self.entities.scores(self.trained, sample, slot).logsumexp(1)
        return NonAnswers(features, rest - offset, rest.new_full((len(sample),), count / max(1, len(sample))))
