"""What holds at a time: exactly, from the runs of the store, and what is likely though it was never stored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from recollect.engine import one_thread
from recollect.evaluation.calibration import CELL, Calibration, Sample
from recollect.graph.fact_index import FactIndex
from recollect.graph.facts import EpisodicGraph, Facts
from recollect.graph.run_index import RunIndex
from recollect.graph.runs import Runs, maximal_runs
from recollect.history.bins import Ints
from recollect.history.cells import CellRates
from recollect.history.edges import Floats
from recollect.memory.answering.answers import NO_ANSWERS, Answers, best_triples
from recollect.memory.answering.held_out import HeldOut
from recollect.memory.answering.projection import Progress, SemanticStates
from recollect.memory.answering.scorer import MemoryScorer, only_model
from recollect.models.semantic import plain_model
from recollect.models.tensor_model import TensorModel

BEST_CELLS, OTHER_CELLS = 2048, 2048  # per time: the likeliest cells, and random ones that stand for all others
MIN_RATE = 1e-5  # facts per cell; below it evidence says nothing, and log λ would bend the calibration
BLOCK_PAIRS = 2**16  # pairs of entities whose cells are rated at a time


class Knowledge:
    """What a memory knows as of any time."""

    def __init__(self, scorer: MemoryScorer, graph: EpisodicGraph, calibration: Calibration, stored: FactIndex) -> None:
        self.scorer, self.graph, self.calibration, self.stored = scorer, graph, calibration, stored

    @cached_property
    def runs(self) -> Runs:
        """The runs of the stored facts."""
        if isinstance(self.stored, RunIndex):
            return self.stored.runs
        return maximal_runs(self.stored.facts, self.stored.sizes)

    @cached_property
    def _states(self) -> SemanticStates:
        return SemanticStates(self._model, self.graph)

    def semantic_at(self, time: int, progress: Progress | None = None) -> tuple[TensorModel, Calibration]:
        """Return the semantic model that the model projects to as of a time, and the calibration of its scores."""
        return self._states.at(time, progress)

    def ask(
        self, time: int, given: Mapping[str, int], top: int, include: str, progress: Progress | None = None
    ) -> Answers:
        """Return at most `top` facts with the given ids that hold at a time: stored ones, then predicted ones.

        What is stored has no score (NaN).
        """
        top = max(0, top)
        with one_thread():
            every = stored_triples(self.runs, time, given)
        held = every[: 0 if include == "predicted" else top]
        wanted = 0 if include == "stored" else top - len(held)
        found, scores, probabilities = Facts.of([]), torch.empty(0), torch.empty(0, dtype=torch.float64)
        if include != "stored" and self.scorer.history is not None:
            assert self.scorer.cells is not None
            with one_thread():
                found, scores = likely_cells(self.scorer.cells, self.stored, time, given, wanted)
            probabilities = self.calibration.probability(scores, CELL)
        elif include != "stored":
            model, calibration = self._semantic_model(time, progress)
            found, scores = best_triples(model, given, top + len(every))
            is_new = ~self.stored.contains(found.with_slot("t", time))
            found, scores = found[is_new][:wanted], scores[is_new][:wanted]
            probabilities = calibration.probability(scores, CELL)
        sure = torch.ones(len(held), dtype=torch.float64)
        return Answers(
            torch.zeros(len(held) + len(found), dtype=torch.int64),
            Facts.concat([held, found]),
            torch.cat([sure * torch.nan, scores.double()]),
            torch.cat([sure, probabilities]),
            torch.arange(len(held) + len(found)) < len(held),
        )

    def stored_answers(self, questions: Facts, slot: str, top: int) -> Answers:
        """Return at most `top` stored answers of each question, those that began last first, without scores."""
        parts = [NO_ANSWERS]
        for row, (*ids, time) in enumerate(questions.ids.tolist()):
            given = {other: number for other, number in zip("spo", ids, strict=True) if other != slot}
            held = stored_triples(self.runs, time, given)[: max(0, top)]
            sure = torch.ones(len(held), dtype=torch.float64)
            parts.append(Answers(torch.full((len(held),), row), held, sure * torch.nan, sure, sure.bool()))
        return Answers.concat(parts)

    def _semantic_model(self, time: int, progress: Progress | None) -> tuple[TensorModel, Calibration]:
        """Return the model of what holds at a time: its projection, or itself if it is semantic already."""
        if "t" in self.scorer.slots:
            return self.semantic_at(time, progress)
        if CELL in self.calibration.fits or self.calibration.among_predicted:
            return plain_model(self._model), self.calibration
        of_objects = self.calibration.fits.get("o", (1.0, 0.0))  # of a memory that an earlier version saved
        return plain_model(self._model), Calibration({CELL: of_objects})

    @property
    def _model(self) -> TensorModel:
        """The one model, whose projection is asked; raise UserError if there are several."""
        return only_model(self.scorer)


def stored_triples(runs: Runs, time: int, given: Mapping[str, int]) -> Facts:
    """Return the stored facts that hold at a time and have the given ids, those that began last first."""
    holds = runs.holds(time)
    for slot, wanted in given.items():
        holds &= runs.first.column(slot) == wanted
    found = runs.first[holds]
    return found[found.t.argsort(descending=True, stable=True)].with_slot("t", time)


def likely_cells(
    cells: CellRates, stored: FactIndex, time: int, given: Mapping[str, int], top: int
) -> tuple[Facts, Tensor]:
    """Return the `top` cells at a time with the highest λ that are not stored, and log λ: n facts, (n,)."""
    if top <= 0:
        return Facts.of([]), torch.empty(0, dtype=torch.float64)
    pairs = cells.pairs(given.get("s"), given.get("o"))
    predicates = np.array([given["p"]]) if "p" in given else np.arange(stored.size("p"))
    found, rates = _best_cells(cells, time, pairs, predicates, top + stored.count_at(time))
    facts = cells.facts(pairs[found // len(predicates)], predicates[found % len(predicates)], time)
    is_new = ~stored.contains(facts)
    return facts[is_new][:top], _scores(rates)[is_new][:top]


def _best_cells(cells: CellRates, time: int, pairs: Ints, predicates: Ints, count: int) -> tuple[Ints, Floats]:
    """Return the `count` cells with the highest λ, numbered by pair, then by predicate, and λ; the highest first."""
    parts = [(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.float32))]
    for start in range(0, len(pairs), BLOCK_PAIRS):  # which bounds memory
        rates = cells.at(time, pairs[start : start + BLOCK_PAIRS], predicates).ravel()
        best = _largest(rates, min(len(rates), count))
        parts.append((start * len(predicates) + best, rates[best]))
    found, rates = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    best = _largest(rates, min(len(rates), count))
    return found[best], rates[best]


def _scores(rates: Floats) -> Tensor:
    """Return log λ: (n,) float64."""
    return torch.from_numpy(np.log(np.maximum(rates, MIN_RATE))).double()


def sample_times(cells: CellRates, held_out: HeldOut, generator: torch.Generator) -> Sample:
    """Return log λ of cells that are not stored, at times of a graph, and whether they are held-out facts."""
    stored, answers = held_out.stored, held_out.answers
    sample = Sample.concat(
        sample_cells(cells, time, time, stored=stored, answers=answers, generator=generator).weighted(weight)
        for time, weight in held_out.times(generator)
    )
    return replace(sample, count=torch.full_like(sample.weight, 1 + held_out.unseen))


def sample_cells(
    cells: CellRates,
    asked: int,
    time: int,
    *,
    stored: FactIndex,
    answers: FactIndex,
    generator: torch.Generator,
) -> Sample:
    """Return log λ at the time `asked` of cells that are not stored, and whether they are answers at `time`."""
    pairs, predicates = cells.pairs(), np.arange(stored.size("p"))
    size = len(pairs) * len(predicates)
    best, of_best = _best_cells(cells, asked, pairs, predicates, min(size, BEST_CELLS))
    others = np.setdiff1d(torch.randint(size, (OTHER_CELLS,), generator=generator).numpy(), best)
    of_others = cells.at(asked, pairs[others // len(predicates)])[np.arange(len(others)), others % len(predicates)]
    chosen = np.concatenate([best, others])
    facts = cells.facts(pairs[chosen // len(predicates)], predicates[chosen % len(predicates)], time)
    weight = torch.ones(len(chosen), dtype=torch.float64)
    weight[len(best) :] = (size - len(best)) / max(1, len(others))
    is_new = ~stored.contains(facts)
    scores = _scores(np.concatenate([of_best, of_others]))
    return Sample(scores[is_new], answers.contains(facts)[is_new], weight[is_new])


def _largest(values: np.ndarray, count: int) -> Ints:
    """Return the positions of the `count` largest values, the largest first; of equal ones the lower comes first."""
    chosen = np.argpartition(-values, count - 1)[:count] if 0 < count < len(values) else np.arange(len(values))[:count]
    return chosen[np.lexsort((chosen, -values[chosen]))]
