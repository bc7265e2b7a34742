"""Fit the weights of a memory's scores and its calibration on facts that its models were not trained on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from recollect.evaluation.calibration import UNCALIBRATED, Calibration, calibrate, fit_platt, sample_scored
from recollect.evaluation.ranking import Scorer
from recollect.graph.fact_index import FactIndex
from recollect.graph.facts import EpisodicGraph, Facts
from recollect.graph.run_index import index_of
from recollect.graph.runs import sampled, stored_in
from recollect.graph.seeds import seeded
from recollect.memory.knowledge import CELL, fit_cells
from recollect.memory.scorer import MemoryScorer, Scored, fit_weights, score_parts
from recollect.models.tensor_model import TensorModel

FIT_FACTS = {"s": 2048, "p": 2048, "o": 2048, "t": 512}  # at most: scoring all times costs a model most
FIT_ROWS = 256  # facts scored at a time
FIT_BYTES = 2**29  # of scores of a slot; larger graphs are fitted to fewer facts
Weights = dict[str, tuple[float, ...]]


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Facts that are not stored, and what is stored."""

    facts: Facts
    answers: FactIndex  # the same facts, or all times of their runs
    stored: FactIndex
    known: FactIndex  # both

    @classmethod
    def of(cls, graph: EpisodicGraph) -> HeldOut:
        """Return the validation split as held-out facts of the train split; of runs, one time each."""
        valid = sampled(graph, "valid", seeded(0)).true()
        answers, stored, known = (
            index_of(stored_in(graph, *splits), graph.sizes) for splits in (["valid"], ["train"], ["train", "valid"])
        )
        return cls(valid, answers, stored, known)


def fit_with_history(scorer: MemoryScorer, held_out: HeldOut, seed: int) -> tuple[Weights, Calibration]:
    """Return the weights of every slot, and the calibration of predicted answers and of cells."""
    if not len(held_out.facts):
        return {}, Calibration({}, among_predicted=True)
    generator = seeded(seed)
    weights: Weights = {}
    fits = {}
    for slot in scorer.slots:
        if held_out.stored.size(slot) < 2:
            continue
        scored = _score(scorer.parts, held_out.facts, slot, held_out.stored.size(slot), generator)
        if scorer.models:
            weights[slot] = fit_weights(scored, slot, known=held_out.known)
        sample = sample_scored(
            ((each.facts, each.total(weights.get(slot, (1.0,)))) for each in scored),
            slot,
            answers=held_out.answers,
            stored=held_out.stored,
            known=held_out.known,
            generator=generator,
        )
        fits[slot] = fit_platt(sample)
    assert scorer.cells is not None
    fits[CELL] = fit_cells(scorer.cells, held_out.stored, held_out.facts, held_out.answers, generator)
    return weights, Calibration(fits, among_predicted=True)


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
            weights[slot] = fit_weights(scored, slot, known=known)
    scorer = MemoryScorer(tuple(models), None, weights).ranked
    return weights, calibrate(scorer, facts, known=known, slots=model.slots, generator=generator)


def _score(parts: Sequence[Scorer], facts: Facts, slot: str, size: int, generator: torch.Generator) -> list[Scored]:
    """Return the scores of all `size` candidates of a random sample of facts by each scorer."""
    most = max(FIT_ROWS, FIT_BYTES // (4 * len(parts) * size))
    chosen = facts[torch.randperm(len(facts), generator=generator)[: min(most, FIT_FACTS[slot])]]
    neighbours = (chosen.t * (int(facts.p.max()) + 1) + chosen.p).argsort()  # facts of a time share work
    return score_parts(parts, chosen[neighbours], slot, FIT_ROWS)
