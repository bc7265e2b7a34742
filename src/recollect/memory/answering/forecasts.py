"""Answer about times after the last stored one, by kernels that read the past only.

A question about h steps after the last stored time is asked as if it were about the first of them: what the store says
of the step after its last, with past lags. In between nothing is stored, which is no sign that nothing happens: a fact
that held to the end is likelier to go on than one that ended h steps ago. The horizon lowers the probability,

    p = σ((a + d log h) x + b + c log h)

with x the logit of an answer's share among all candidates, or log λ of a cell. Cells have two kernels, fitted to facts
one step and `far_steps` ahead; others are interpolated.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from recollect.engine import one_thread
from recollect.evaluation.calibration import (
    CELL,
    PREDICTED_ROWS,
    Calibration,
    Sample,
    fit_platt,
    highest_probability,
    sample_scored,
)
from recollect.graph.fact_index import FactIndex
from recollect.graph.facts import KINDS, EpisodicGraph, Facts
from recollect.graph.run_index import index_of
from recollect.graph.runs import Runs, sampled, stored_in
from recollect.graph.seeds import seeded
from recollect.history.bins import layout_of
from recollect.history.cells import CellRates
from recollect.history.edges import Floats
from recollect.history.evidence import Evidence
from recollect.history.history import History
from recollect.history.new_predicates import with_new_class, with_new_weights
from recollect.history.state import kernel_shape, weights_shape
from recollect.memory.answering.answers import Answers
from recollect.memory.answering.knowledge import likely_cells, sample_cells

FORECASTS = "forecasts"  # the file of the kernels in a bundle, and the key of their calibration
SLOTS = "spo"  # that can be asked for at a time that is given
FAR = 8  # steps ahead of the second kernel of cells, on an axis that is long enough
FAR_SHARE = 16  # of intervals it is this part of the axis ahead, if that is more
HORIZONS = (1, 2, 4, 8, 16, 32)  # that the calibration is fitted to; of intervals, farther ones too
FIT_QUESTIONS, FIT_TIMES = 384, 12  # per horizon: questions of each slot, and times whose cells are sampled
MAX_RUNS = 100_000  # of a graph of intervals that is forecast: a fit to more takes minutes


@dataclass(frozen=True, eq=False)
class Forecaster:
    """Scores and probabilities of facts at times after the last stored one; a scorer for the slots s p o."""

    stored: History  # of the memory, whose facts are read
    kernels: Mapping[str, Floats]  # of o and p, past lags only
    weights: Mapping[str, Floats]
    near: Floats  # kernel of cells, fitted to facts one step ahead
    far: Floats  # and to facts `far_steps` ahead
    calibration: Calibration  # slot or CELL -> (a, b, c, d), with log h for z
    _cells: dict[int, CellRates] = field(default_factory=dict, init=False)

    @cached_property
    def last(self) -> int:
        """The last stored time; −1 if nothing is stored."""
        facts = self.stored.facts
        times = facts.last if isinstance(facts, Runs) else facts.t
        return int(times.max()) if len(times) else -1

    @cached_property
    def history(self) -> History:
        """The kernels that read the past only, over the stored facts."""
        return self.stored.with_kernels(self.kernels, self.weights)

    def with_history(self, stored: History) -> Forecaster:
        """Return the same kernels over another store, which may have predicates that came after the fit."""
        if len(self.near) == stored.class_count:
            return replace(self, stored=stored)
        kernels = {slot: with_new_class(kernel) for slot, kernel in self.kernels.items()}
        near, far = with_new_class(self.near), with_new_class(self.far)
        return replace(self, stored=stored, kernels=kernels, weights=with_new_weights(self.weights), near=near, far=far)

    def score(self, facts: Facts) -> Tensor:
        """Return the score of each fact as an answer to the question for its object: (B,)."""
        return self.score_against(facts, "o", facts.o[:, None])[:, 0]

    def score_against(self, facts: Facts, slot: str, candidates: Tensor | None = None) -> Tensor:
        """Return log λ of fact b with `slot` replaced by candidate n, at the step after the last stored: (B, N)."""
        return self.history.score_against(facts.with_slot("t", self.last + 1), slot, candidates)

    def calibration_at(self, time: int) -> Calibration:
        """Return the calibration of answers at a time after the last stored one."""
        return self.calibration.at(math.log(time - self.last))

    def cells_at(self, horizon: int) -> CellRates:
        """Return the rates of cells h steps ahead, to be asked for the step after the last stored one."""
        far = far_steps(self.stored.sizes["time"], isinstance(self.stored.facts, Runs))
        horizon = min(horizon, far)
        if horizon not in self._cells:
            share = math.log(horizon) / math.log(far) if far > 1 else 0.0
            kernel = (1 - np.float32(share)) * self.near + np.float32(share) * self.far
            self._cells[horizon] = CellRates(self.history, kernel)
        return self._cells[horizon]

    def ask(self, time: int, given: Mapping[str, int], top: int, stored: FactIndex | None = None) -> Answers:
        """Return the `top` likeliest facts with the given ids at a time after the last stored one.

        Those that go on without an end in `stored` are left out.
        """
        stored = stored or FactIndex(Facts.of([]), self.stored.sizes)
        facts, scores = likely_cells(self.cells_at(time - self.last), stored, self.last + 1, given, top)
        probabilities = self.calibration_at(time).probability(scores, CELL)
        query = torch.zeros(len(facts), dtype=torch.int64)
        return Answers(query, facts.with_slot("t", time), scores, probabilities, query.bool())

    def evidence(self, fact: Facts, slot: str) -> Evidence:
        """Return what speaks for one fact as the answer of a slot."""
        return self.history.evidence(fact.with_slot("t", self.last + 1), slot)

    def tensors(self) -> dict[str, Tensor]:
        """Return the kernels as float32 tensors, past lags only: (A, C, bins of a side); and weights of popularity."""
        past = slice(1, 1 + self.near.shape[2] // 2)
        found = {f"{slot}.kernel": self.kernels[slot][:, :, past] for slot in "op"}
        found |= {f"{slot}.weights": self.weights[slot] for slot in "op"}
        found |= {"near": self.near[:, :, past], "far": self.far[:, :, past]}
        return {name: torch.tensor(array, dtype=torch.float32) for name, array in found.items()}

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor], history: History, calibration: Calibration) -> Forecaster:
        """Return the forecaster that `tensors` came from, over a store; raise ValueError if they do not fit it."""
        classes = int(history.classes.max(initial=-1)) + 1
        bins = layout_of(1 + 2 * tensors["near"].shape[-1]).count
        kernels = {slot: _read_kernel(tensors, f"{slot}.kernel", kernel_shape(slot, classes, bins)) for slot in "op"}
        weights = {slot: _read(tensors, f"{slot}.weights", weights_shape(slot, classes)) for slot in "op"}
        near, far = (_read_kernel(tensors, name, kernel_shape("p", classes, bins)) for name in ("near", "far"))
        return cls(history, kernels, weights, near, far, calibration)


def far_steps(times: int, has_runs: bool = False) -> int:
    """Return how many steps ahead the second kernel of cells is fitted to, on an axis of so many times."""
    far = min(FAR, max(1, times // 4))
    return max(far, times // FAR_SHARE) if has_runs else far


def horizons(times: int, has_runs: bool = False) -> list[int]:
    """Return the steps ahead that the calibration is fitted to: of intervals, up to a quarter of the axis."""
    found = list(HORIZONS)
    while has_runs and 4 * found[-1] <= times // 4:
        found.append(4 * found[-1])
    return found


def _read_kernel(tensors: Mapping[str, Tensor], name: str, shape: tuple[int, int, int]) -> Floats:
    """Return a kernel with zeros for lag 0 and the future: (A, C, COUNT)."""
    kernel = np.zeros(shape, dtype=np.float32)
    side = shape[2] // 2
    kernel[:, :, 1 : 1 + side] = _read(tensors, name, (*shape[:2], side))
    return kernel


def _read(tensors: Mapping[str, Tensor], name: str, shape: tuple[int, ...]) -> Floats:
    """Return one tensor as an array; raise ValueError unless it has this shape and all are finite and at least 0."""
    tensor = tensors[name]
    if tensor.dtype != torch.float32 or tuple(tensor.shape) != shape:
        raise ValueError(f"tensor {name} is {tuple(tensor.shape)} {tensor.dtype}; wanted {shape} torch.float32")
    if not bool((tensor.isfinite() & (tensor >= 0)).all()):
        raise ValueError(f"tensor {name} has numbers that are negative or not finite")
    return tensor.contiguous().numpy().copy()


def fit_forecaster(
    history: History, graph: EpisodicGraph, *, seed: int = 0, progress: Callable[[float], None] = lambda share: None
) -> Forecaster | None:
    """Fit the kernels to the stored facts, each by what was stored before it, and the calibration.

    The calibration asks for facts of the validation split, or of the train split if there is none: with past lags no
    fact is evidence for itself. More than MAX_RUNS intervals are not forecast.
    """
    is_runs = isinstance(history.facts, Runs)
    if is_runs and len(history.facts) > MAX_RUNS:
        return None
    past = History.fit(history.facts, history.sizes, asked="op", past=True, seed=seed, progress=progress)
    near = CellRates.fit(past, ahead=1, seed=seed).kernel
    ahead = far_steps(history.sizes["time"], is_runs)
    far = CellRates.fit(past, ahead=ahead, seed=seed).kernel if ahead > 1 else near
    uncalibrated = Calibration({}, among_predicted=True)
    forecaster = Forecaster(history, past.kernels, past.weights, near, far, uncalibrated)
    with one_thread():
        return replace(forecaster, calibration=_calibrate(forecaster, graph, seeded(seed)))


def _calibrate(forecaster: Forecaster, graph: EpisodicGraph, generator: torch.Generator) -> Calibration:
    """Return the calibration by questions about past times, each with the facts stored that are h steps older."""
    valid = sampled(graph, "valid", generator).true()
    asked = valid if len(valid) else sampled(graph, "train", generator).true()
    reading, known = forecaster, stored_in(graph, "train", "valid")
    if len(valid) and int(valid.t.min()) > forecaster.last:  # they become known as time goes on
        reading = replace(forecaster, stored=forecaster.history.with_facts(known))
    answers = index_of(known, graph.sizes)
    samples: dict[str, list[Sample]] = {}
    for horizon in horizons(len(graph.times), isinstance(known, Runs)):
        later = asked[asked.t >= horizon]  # something may be stored h steps before them
        if not len(later):
            break
        found = {CELL: _sample_cells(reading, later, horizon, answers, generator)}
        for slot in SLOTS:
            if graph.sizes[KINDS[slot]] > 1:
                found[slot] = _sample_slot(reading, later, slot, horizon, answers, generator)
        for slot, part in found.items():
            context = torch.full_like(part.score, math.log(horizon))
            samples.setdefault(slot, []).append(replace(part, context=context))
    pooled = {slot: Sample.concat(parts) for slot, parts in samples.items()}
    fits = {slot: fit_platt(sample) for slot, sample in pooled.items()}
    highest = {slot: highest_probability(int(sample.truth.sum())) for slot, sample in pooled.items()}
    return Calibration(fits, among_predicted=True, highest=highest)


def _sample_slot(
    forecaster: Forecaster, asked: Facts, slot: str, horizon: int, answers: FactIndex, generator: torch.Generator
) -> Sample:
    """Return the candidates of questions, scored by what was stored h steps before."""
    chosen = asked[torch.randperm(len(asked), generator=generator)[:FIT_QUESTIONS]]

    def scored() -> Iterator[tuple[Facts, Tensor]]:
        for part in chosen.split(PREDICTED_ROWS):
            yield part, forecaster.history.score_against(part.with_slot("t", part.t - horizon + 1), slot)

    nothing = FactIndex(Facts.of([]), answers.sizes)
    return sample_scored(scored(), slot, answers=answers, stored=nothing, known=answers, generator=generator)


def _sample_cells(
    forecaster: Forecaster, asked: Facts, horizon: int, answers: FactIndex, generator: torch.Generator
) -> Sample:
    """Return the cells of some of the asked times, scored by what was stored h steps before."""
    times = asked.t.unique()
    cells, nothing = forecaster.cells_at(horizon), FactIndex(Facts.of([]), answers.sizes)
    times = times[torch.randperm(len(times), generator=generator)[:FIT_TIMES]]
    return Sample.concat(
        sample_cells(cells, time - horizon + 1, time, stored=nothing, answers=answers, generator=generator)
        for time in times.tolist()
    )
