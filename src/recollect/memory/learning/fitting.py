"""Fit the weights of a memory's scores and its calibration on facts that its models were not trained on."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from recollect.evaluation.calibration import (
    UNCALIBRATED,
    Calibration,
    Sample,
    calibrate,
    fit_platt,
    highest_probability,
    sample_scored,
)
from recollect.evaluation.ranking import Scorer
from recollect.graph.fact_index import FactIndex
from recollect.graph.facts import KINDS, SLOTS, EpisodicGraph, Facts
from recollect.graph.run_index import index_of
from recollect.graph.runs import Runs, sampled, stored_in
from recollect.graph.seeds import seeded
from recollect.memory.answering.knowledge import CELL, sample_times
from recollect.memory.answering.scorer import MemoryScorer, Scored, fit_weights, reciprocal_gain, score_parts
from recollect.models.tensor_model import TensorModel

FIT_FACTS = {"s": 2048, "p": 2048, "o": 2048, "t": 512}  # at most: scoring all times costs a model most
FIT_ROWS, BLOCK_BYTES = 256, 2**25  # facts scored at a time; fewer if their scores would take more bytes
MIN_FACTS = 16  # at least
FIT_BYTES = {"s": 2**28, "p": 2**28, "o": 2**28, "t": 2**24}  # of scores; larger graphs are fitted to fewer facts
SLOPE_STRENGTH = 10.0  # of a calibration whose slope is 1, in held-out answers: matters to graphs of a few facts
Weights = dict[str, tuple[float, ...]]


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Facts that are not stored, and what is stored."""

    facts: Facts
    answers: FactIndex  # the same facts, or all times of their runs
    stored: FactIndex
    known: FactIndex  # both
    unseen: float = 0.0  # facts that are withheld besides, the test split, for each held-out fact
    present: Mapping[str, Tensor] = field(default_factory=dict)  # slot -> which ids can be answers, if not all: (N,)

    @classmethod
    def of(cls, graph: EpisodicGraph, *, is_fold: bool = False) -> HeldOut:
        """Return the validation split as held-out facts of the train split; of runs, one time each.

        In a fold of a graph that is learned whole, labels without a stored fact are no answers: a memory has none.
        """
        valid = sampled(graph, "valid", seeded(0)).true()
        answers, stored, known = (
            index_of(stored_in(graph, *splits), graph.sizes) for splits in (["valid"], ["train"], ["train", "valid"])
        )
        at_random = len(valid) > 0 and int(valid.t.min()) <= _last_time(graph)
        unseen = graph.counts.get("test", 0) / max(1, graph.counts.get("valid", 0)) if at_random else 0.0
        present = _present(graph) if is_fold else {}
        return cls(valid, answers, stored, known, unseen, present)

    def sample(self, scored: Iterable[tuple[Facts, Tensor]], slot: str, generator: torch.Generator) -> Sample:
        """Return predicted candidates of scored questions, facts and their (B, N) scores, and which are answers."""
        return sample_scored(
            scored, slot, answers=self.answers, stored=self.stored, known=self.known, generator=generator,
            unseen=self.unseen, present=self.present.get(slot),
        )  # fmt: skip


def _present(graph: EpisodicGraph) -> dict[str, Tensor]:
    """Return which entities and predicates have facts in the train split: (N,) bool by slot."""
    train = stored_in(graph, "train")
    facts = train.first if isinstance(train, Runs) else train
    entities = torch.zeros(graph.sizes["entity"], dtype=torch.bool)
    entities[torch.cat([facts.s, facts.o])] = True
    predicates = torch.zeros(graph.sizes["predicate"], dtype=torch.bool)
    predicates[facts.p] = True
    return {"s": entities, "p": predicates, "o": entities}


def _last_time(graph: EpisodicGraph) -> int:
    """Return the last time of the train split; −1 if it is empty."""
    found = stored_in(graph, "train")
    times = found.last if isinstance(found, Runs) else found.t
    return int(times.max()) if len(times) else -1


@dataclass(frozen=True, eq=False)
class Fold:
    """What held-out facts say about a scorer."""

    weights: Weights
    samples: Mapping[str, Sample]  # slot, or CELL -> predicted candidates, and whether they are held-out answers
    gain: Tensor  # (n,): reciprocal ranks of held-out subjects and objects by all parts, less those by history alone

    @property
    def mean_gain(self) -> tuple[float, float]:
        """The mean of the gain and its standard error."""
        count = max(2, len(self.gain))
        return self.gain.mean().item(), (self.gain.std() / count**0.5).item()

    @property
    def is_gain(self) -> bool:
        """Whether models add something measurable: more than the standard error."""
        gain, error = self.mean_gain
        return len(self.gain) > 1 and gain > error


def fit_fold(scorer: MemoryScorer, held_out: HeldOut, seed: int) -> Fold:
    """Fit the weights of a scorer with history to held-out facts, and score their candidates."""
    assert scorer.cells is not None
    generator = seeded(seed)
    weights: Weights = {}
    samples, gains = {}, [torch.empty(0)]
    for slot in scorer.slots:
        if held_out.stored.size(slot) < 2:
            continue
        scored = _score(scorer.parts, held_out.facts, slot, held_out.stored.size(slot), generator)
        if scorer.models:
            weights[slot] = fit_weights(scored, slot, known=held_out.known, start=(0.0,) * len(scorer.models) + (1.0,))
            if slot in "so":
                gains.append(reciprocal_gain(scored, slot, weights[slot], known=held_out.known))
        totals = ((each.facts, each.total(weights.get(slot, (1.0,)))) for each in scored)
        samples[slot] = held_out.sample(totals, slot, generator)
    samples[CELL] = sample_times(scorer.cells, held_out.stored, held_out.facts, held_out.answers, generator)
    return Fold(weights, samples, torch.cat(gains))


def calibration_of(folds: Sequence[Fold], graph: EpisodicGraph) -> Calibration:
    """Return the calibration of predicted answers and cells by the held-out facts of all folds.

    A slot with one id says how dense the graph is. No probability is higher than the number of held-out answers
    supports.
    """
    cells = graph.sizes["entity"] ** 2 * graph.sizes["predicate"] * graph.sizes["time"]
    fits: dict[str, tuple[float, ...]] = {
        slot: (0.0, _density(graph, cells)) for slot in SLOTS if graph.sizes[KINDS[slot]] < 2
    }
    highest = dict.fromkeys((*SLOTS, CELL), highest_probability(0))
    for slot in (*SLOTS, CELL):
        samples = [fold.samples[slot] for fold in folds if slot in fold.samples]
        if samples:
            pooled = Sample.concat(samples)
            fits[slot] = fit_platt(pooled, strength=SLOPE_STRENGTH)
            highest[slot] = highest_probability(int(pooled.truth.sum()))
    return Calibration(fits, among_predicted=True, highest=highest)


def _density(graph: EpisodicGraph, cells: int) -> float:
    """Return the logit of the share of cells that are stored."""
    return math.log(max(1, graph.counts["train"]) / (cells + 1))


def fit_without_history(models: Sequence[TensorModel], held_out: HeldOut, seed: int) -> tuple[Weights, Calibration]:
    """Return the weights of several models by slot, and the calibration of their sum; semantic models know no times."""
    if not len(held_out.facts):
        return {}, UNCALIBRATED
    model, generator = models[0], seeded(seed)
    facts, known = model.normalize(held_out.facts), model.normalize_index(held_out.known)
    weights: Weights = {}
    if len(models) > 1:
        for slot in model.slots:
            scored = _score(models, facts, slot, known.size(slot), generator)
            weights[slot] = fit_weights(scored, slot, known=known, start=(1 / len(models),) * len(models))
    scorer = MemoryScorer(tuple(models), None, weights).ranked
    return weights, calibrate(scorer, facts, known=known, slots=model.slots, generator=generator)


def _score(parts: Sequence[Scorer], facts: Facts, slot: str, size: int, generator: torch.Generator) -> list[Scored]:
    """Return the scores of all `size` candidates of a random sample of facts by each scorer."""
    most = max(MIN_FACTS, FIT_BYTES[slot] // (4 * len(parts) * size))
    chosen = facts[torch.randperm(len(facts), generator=generator)[: min(most, FIT_FACTS[slot])]]
    neighbours = (chosen.t * (int(facts.p.max()) + 1) + chosen.p).argsort()  # facts of a time share work
    return score_parts(parts, chosen[neighbours], slot, max(1, min(FIT_ROWS, BLOCK_BYTES // (8 * size))))
