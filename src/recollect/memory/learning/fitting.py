"""Fit the weights of a memory's scores and its calibration on facts that its models were not trained on."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from recollect.evaluation.calibration import CELL, Calibration, Sample, fit_platt, highest_probability
from recollect.evaluation.ranking import Scorer
from recollect.graph.facts import KINDS, SLOTS, EpisodicGraph, Facts, distinct
from recollect.graph.runs import split_runs
from recollect.graph.seeds import seeded
from recollect.memory.answering.held_out import HeldOut
from recollect.memory.answering.knowledge import sample_times
from recollect.memory.answering.projection import sample_state
from recollect.memory.answering.scorer import MemoryScorer, Scored, fit_weights, reciprocal_gain, score_parts
from recollect.models.semantic import plain_model

FIT_FACTS = {"s": 2048, "p": 2048, "o": 2048, "t": 512}  # at most: scoring all times costs a model most
FIT_ROWS, BLOCK_BYTES = 256, 2**25  # facts scored at a time; fewer if their scores would take more bytes
MIN_FACTS = 16  # at least
FIT_BYTES = {"s": 2**28, "p": 2**28, "o": 2**28, "t": 2**24}  # of scores; larger graphs are fitted to fewer facts
SLOPE_STRENGTH = 10.0  # of a calibration whose slope is 1, in held-out answers: matters to graphs of a few facts
Weights = dict[str, tuple[float, ...]]


@dataclass(frozen=True, eq=False)
class Fold:
    """What held-out facts say about a scorer."""

    weights: Weights
    samples: Mapping[str, Sample]  # slot, or CELL -> predicted candidates, and whether they are held-out answers
    runs: int  # that are held out: the answers of one are evidence of one
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
    """Fit the weights of a scorer's parts to held-out facts, and score their candidates."""
    held_out, generator = held_out.normalized(scorer), seeded(seed)
    weights: Weights = {}
    samples, gains = {}, [torch.empty(0)]
    for slot in scorer.slots:
        if held_out.stored.size(slot) > 1:
            fitted, samples[slot], gain = _fit_slot(scorer, held_out, slot, generator)
            gains.append(gain)
            if len(scorer.parts) > 1:
                weights[slot] = fitted
    samples.update(_sample_of_cells(scorer, held_out, generator))
    return Fold(weights, samples, held_out.run_count, torch.cat(gains))


def _fit_slot(
    scorer: MemoryScorer, held_out: HeldOut, slot: str, generator: torch.Generator
) -> tuple[tuple[float, ...], Sample, Tensor]:
    """Return the weights of a scorer's parts for a slot, scored candidates, and the gain of `Fold` for s and o."""
    parts, history = scorer.parts, scorer.history
    scored = _score(parts, held_out.facts, slot, held_out.stored.size(slot), generator)
    weights: tuple[float, ...] = (1.0,)
    gain = torch.empty(0)
    if len(parts) > 1:
        start = (1 / len(parts),) * len(parts) if history is None else (0.0,) * len(scorer.models) + (1.0,)
        weights = fit_weights(scored, slot, known=held_out.known, start=start)
        if history is not None and slot in "so":
            gain = reciprocal_gain(scored, slot, weights, known=held_out.known)
    totals = ((each.facts, each.total(weights)) for each in scored)
    return weights, held_out.sample(totals, slot, generator), gain


def _sample_of_cells(scorer: MemoryScorer, held_out: HeldOut, generator: torch.Generator) -> dict[str, Sample]:
    """Return scored cells of a scorer that says itself what holds, by the key CELL; nothing for an episodic model."""
    if scorer.cells is not None:
        return {CELL: sample_times(scorer.cells, held_out, generator)}
    if len(scorer.models) > 1 or "t" in scorer.slots:
        return {}
    model = plain_model(scorer.models[0])
    triples = Facts.concat([held_out.stored.facts, held_out.answers.facts])
    return {CELL: sample_state(model, triples, 0, held_out, generator=generator)}


def calibration_of(folds: Sequence[Fold], graph: EpisodicGraph, slots: str = SLOTS) -> Calibration:
    """Return the calibration of predicted answers and cells by the held-out facts of all folds.

    A slot with one id says how dense the graph is in the given `slots`; a semantic memory has no times. No probability
    is higher than the number of held-out answers supports.
    """
    fits: dict[str, tuple[float, ...]] = {
        slot: (0.0, _density(graph, slots)) for slot in slots if graph.sizes[KINDS[slot]] < 2
    }
    highest = dict.fromkeys((*SLOTS, CELL), highest_probability(0))
    for slot in (*SLOTS, CELL):
        samples = [fold.samples[slot] for fold in folds if slot in fold.samples]
        if samples:
            pooled = Sample.concat(samples)
            fits[slot] = fit_platt(pooled, strength=SLOPE_STRENGTH)
            highest[slot] = highest_probability(min(int(pooled.truth.sum()), sum(fold.runs for fold in folds)))
    return Calibration(fits, among_predicted=True, highest=highest)


def _density(graph: EpisodicGraph, slots: str) -> float:
    """Return the logarithm of the share of the cells of some slots that are stored."""
    stored = graph.counts["train"]
    if "t" not in slots:
        stored = len(distinct(split_runs(graph)["train"].first.with_slot("t", 0), graph.sizes))
    return math.log(max(1, stored) / (1 + math.prod(graph.sizes[KINDS[slot]] for slot in slots)))


def _score(parts: Sequence[Scorer], facts: Facts, slot: str, size: int, generator: torch.Generator) -> list[Scored]:
    """Return the scores of all `size` candidates of a random sample of facts by each scorer."""
    most = max(MIN_FACTS, FIT_BYTES[slot] // (4 * len(parts) * size))
    chosen = facts[torch.randperm(len(facts), generator=generator)[: min(most, FIT_FACTS[slot])]]
    neighbours = (chosen.t * (int(facts.p.max()) + 1) + chosen.p).argsort()  # facts of a time share work
    return score_parts(parts, chosen[neighbours], slot, max(1, min(FIT_ROWS, BLOCK_BYTES // (8 * size))))
