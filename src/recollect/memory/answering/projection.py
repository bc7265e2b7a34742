"""Project episodic to semantic memory: what holds now, or held as of any time, by sums over times.

θ is linear in the row a_t of a time. With entities and predicates fixed, the rows that recall given facts are ridge
regressions,

    min_a  Σ_i (θ_i(a_t) − y_it)² + unseen Σ_spo θ_spo(a_t)² + ridge ‖a_t‖²    for every time t,

over the triples i that ever occur, with y = 1 where a triple has a fact at t and 0 elsewhere, and over all cells spo,
whose target is 0. The fit ties θ to 0 and 1, so sums over times count facts: starts until τ less the ends before τ (an
end is the last time at which a fact holds) are 1 for what holds at τ and 0 for what does not.

Notation: θ_i(a) = φ_i · a, and Φ is the matrix of the features φ_i of all triples. The sum over all cells costs only as
much as a few thousand triples: φ is linear in each embedding, so a table X may be replaced by any rows R with
RᵀR = XᵀX, and a row of X with d elements needs at most d of them. Rows with up to DIRECT elements are solved for by a
Cholesky factorisation, larger ones (ConT's cores) by conjugate gradients, all times at once. Φ a is computed by the
model's own equation, Φᵀ w by its gradient.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from threading import Lock

import torch
from torch import Tensor

from recollect.engine import one_thread, parallel_for
from recollect.errors import UserError
from recollect.evaluation.calibration import CELL, Calibration, Sample, fit_platt, highest_probability
from recollect.graph import episodes
from recollect.graph.fact_index import FactIndex
from recollect.graph.facts import KINDS, EpisodicGraph, Facts, distinct, encode
from recollect.graph.seeds import seeded
from recollect.memory.answering.held_out import FIT_TIMES, HeldOut
from recollect.models.semantic import check_projectable, plain_model, semantic_model
from recollect.models.tensor_model import TensorModel

RIDGE = 1e-2  # in units of the mean ‖φ‖² of a triple: independent of the scale of a model's embeddings
UNSEEN = 1e-2  # weight of any cell, relative to a triple that occurs
DIRECT = 2048  # elements of a time row up to which its equations are solved directly
LOWEST = 0.25  # share of the answers that a calibration leaves out, with all cells that score lower
SAMPLE = 2**18  # random cells that a calibration is fitted to
MOST_TRIPLES = 2**19  # triples that occur, over all times of a calibration: some seconds of Newton's method
STEPS = 60  # of conjugate gradients, at most
RESIDUAL = 1e-2  # relative to that of zero rows, at which conjugate gradients stop
BYTES = 256 * 2**20  # scores of all triples at some times
STATES = 16  # semantic models that a memory holds at once: each has tables of its own

Progress = Callable[[float], None]  # receives the share that is done


@dataclass(frozen=True, eq=False)
class Projection:
    """A model with time rows of starts and of ends; `at` a time it is a semantic model.

    Without rows of ends it is the paper's Start projection, in which nothing ends.
    """

    model: TensorModel
    starts: Tensor  # (times, …) like the model's time table
    ends: Tensor | None

    @cached_property
    def _sums(self) -> Tensor:
        """Row τ is Σ_{t ≤ τ} starts − Σ_{t < τ} ends."""
        sums = self.starts.double().cumsum(0)
        if self.ends is not None:
            sums[1:] -= self.ends.double().cumsum(0)[:-1]
        return sums.to(self.starts.dtype)

    def row(self, time: int = -1) -> Tensor:
        """Return the time row that scores what holds at `time`, by default the last."""
        return self._sums[time]

    def at(self, time: int = -1) -> TensorModel:
        """Return the semantic model of what holds at a time."""
        return semantic_model(self.model, self.row(time))

    def scores(self, triples: Facts) -> Tensor:
        """Return θ of every triple as of every time: (n, times)."""
        return scores_over_time(self.model, self._sums, triples)


def project(
    model: TensorModel,
    starts: Facts,
    ends: Facts,
    *,
    ridge: float = RIDGE,
    unseen: float = UNSEEN,
    progress: Progress | None = None,
) -> Projection:
    """Return the projection whose time rows recall the given starts and ends; entities and predicates stay.

    The static equation of a model is left out: what it says does not start or end.
    """
    model = plain_model(model)
    check_projectable(model)
    options = {"ridge": ridge, "unseen": unseen}
    start_rows = solve_times(model, starts, starts, **options, progress=_part_of(progress, 0, 2))
    end_rows = solve_times(model, ends, starts, **options, progress=_part_of(progress, 1, 2))
    return Projection(model, start_rows, end_rows)


@torch.no_grad()
def solve_times(
    model: TensorModel,
    facts: Facts,
    triples: Facts,
    *,
    ridge: float = RIDGE,
    unseen: float = UNSEEN,
    progress: Progress | None = None,
) -> Tensor:
    """Return the time table by which `facts` score 1 and their triples, and `triples`, score 0 at all other times.

    Every cell of the tensor is a further equation with target 0 and weight `unseen`. A time without facts has a row of
    zeros, which is its solution.
    """
    solved = torch.zeros_like(model.time)
    if len(facts):
        occurring = distinct(Facts(torch.cat([triples.ids, facts.ids])).with_slot("t", 0), model.sizes)
        ridge *= _mean_square(model, occurring)
        with one_thread():
            _solve_(solved, _with_all_cells(model, unseen), facts, occurring, ridge, progress)
    if progress is not None:
        progress(1.0)
    return solved


def _solve_(
    solved: Tensor,
    with_all: tuple[TensorModel, Facts],
    facts: Facts,
    triples: Facts,
    ridge: float,
    progress: Progress | None,
) -> None:
    """Write the rows of all times that have facts into the time table `solved`, a chunk of times after another."""
    model, cells = with_all
    is_direct = solved[0].numel() <= DIRECT
    factor = None
    if is_direct:
        equations = _gram(model, triples) + _gram(model, cells)
        equations.diagonal().add_(ridge)
        factor, failed = torch.linalg.cholesky_ex(equations)
    if not math.isfinite(ridge) or (is_direct and bool(failed)):
        raise UserError(
            "the model's weights are too large, or too few, to solve for its times; "
            "train again with a lower learning rate, or project with a larger ridge"
        )
    triple_of = torch.searchsorted(encode(triples, model.sizes, "spo"), encode(facts, model.sizes, "spo"))
    equations_per_time = len(triples) + (0 if is_direct else len(cells))
    chunks = facts.t.unique().split(max(1, BYTES // (solved.itemsize * equations_per_time)))
    for i, times in enumerate(chunks):
        place = torch.full((len(solved),), -1)
        place[times] = torch.arange(len(times))
        is_here = place[facts.t] >= 0
        target = torch.zeros(len(triples), len(times), dtype=solved.dtype, device=solved.device)
        target[triple_of[is_here].to(solved.device), place[facts.t[is_here]].to(solved.device)] = 1
        right = _transposed_product(model, triples, target)
        if factor is not None:
            rows = torch.cholesky_solve(right.flatten(1).T.to(factor), factor).T.to(solved).view_as(right)
        else:
            every = Facts.concat([triples, cells])
            rows = _conjugate_gradients(model, every, right, ridge, _part_of(progress, i, len(chunks)))
        solved[times.to(solved.device)] = rows


def _part_of(progress: Progress | None, part: int, parts: int) -> Progress | None:
    """Return a progress function for one of several equal parts."""
    return None if progress is None else lambda share: progress((part + share) / parts)


def _with_all_cells(model: TensorModel, weight: float) -> tuple[TensorModel, Facts]:
    """Return the model with added entities and predicates, and triples of these whose Σ φφᵀ is `weight` Σ φφᵀ of all.

    The sum on the right is over all cells of the original model.
    """
    tables = {kind: getattr(model, kind).detach() for kind in ("entity", "predicate")}
    roots = {kind: _root(table) for kind, table in tables.items()}
    roots["entity"] *= weight**0.25  # φφᵀ has the embeddings of two entities, each twice
    larger = model.with_rows({kind: torch.cat([table, roots[kind]]) for kind, table in tables.items()})
    if weight == 0:
        return larger, Facts.of([])
    entities = torch.arange(len(tables["entity"]), larger.sizes["entity"])
    predicates = torch.arange(len(tables["predicate"]), larger.sizes["predicate"])
    return larger, Facts(torch.cartesian_prod(entities, predicates, entities, torch.tensor([0])))


def _root(table: Tensor) -> Tensor:
    """Return rows R with RᵀR = XᵀX: (N, …) -> (at most as many as a row of X has elements, …)."""
    _, singular, right = torch.linalg.svd(table.flatten(1), full_matrices=False)
    return (singular[:, None] * right).view(-1, *table.shape[1:])


def _gram(model: TensorModel, triples: Facts) -> Tensor:
    """Return ΦᵀΦ of triples in float64: (d, d) for time rows of d elements."""
    width = model.time[0].numel()
    unit = torch.eye(width, dtype=model.dtype, device=model.device).view(-1, *model.time.shape[1:])
    gram = torch.zeros(width, width, dtype=torch.float64, device=model.device)
    for block in triples.split(max(1, BYTES // (8 * width))):
        features = scores_over_time(model, unit, block).double()

        def add_rows(start: int, stop: int, features: Tensor = features) -> None:
            gram[start:stop].addmm_(features[:, start:stop].T, features)

        parallel_for(add_rows, width, features.numel() * width)
    return gram


def _conjugate_gradients(
    model: TensorModel, triples: Facts, right: Tensor, ridge: float, progress: Progress | None
) -> Tensor:
    """Return rows a with (ΦᵀΦ + ridge) a = right, each row a linear system of its own: (times, …)."""
    residual = right.flatten(1).clone()
    rows, direction = torch.zeros_like(residual), residual.clone()
    square = residual.square().sum(1)
    enough = RESIDUAL**2 * square.sum()
    for step in range(STEPS):
        if square.sum() <= enough:
            break
        image = scores_over_time(model, direction.view_as(right), triples)
        product = _transposed_product(model, triples, image).flatten(1) + ridge * direction
        curvature = image.square().sum(0) + ridge * direction.square().sum(1)
        length = square / curvature.clamp(min=1e-30)
        rows += length[:, None] * direction
        residual -= length[:, None] * product
        new_square = residual.square().sum(1)
        direction = residual + (new_square / square.clamp(min=1e-30))[:, None] * direction
        square = new_square
        if progress is not None:
            progress((step + 1) / STEPS)
    return rows.view_as(right)


@torch.no_grad()
def scores_over_time(model: TensorModel, rows: Tensor, triples: Facts) -> Tensor:
    """Return Φ a: the score of every triple at times with these rows, (times, …) -> (n, times)."""
    with_rows, facts = model.with_rows({"time": rows}), triples.with_slot("t", 0)
    scores = torch.empty(len(facts), len(rows), dtype=model.dtype, device=model.device)

    def score(start: int, stop: int) -> None:
        scores[start:stop] = with_rows.score_against(facts[start:stop], "t")

    with one_thread():
        parallel_for(score, len(facts), len(facts) * rows.numel())
    return scores


def _transposed_product(model: TensorModel, triples: Facts, weights: Tensor) -> Tensor:
    """Return Φᵀ w, the gradient of Σ w θ by the rows of times: (n, times) -> (times, …)."""
    zeros = model.time.new_zeros(weights.shape[1], *model.time.shape[1:])
    with_rows = model.with_rows({"time": zeros})
    for name, parameter in with_rows.named_parameters():
        parameter.requires_grad_(name == "time")
    parts: dict[int, Tensor] = {}  # start -> the sum over a range of triples

    def differentiate(start: int, stop: int) -> None:
        with torch.enable_grad():
            scores = with_rows.score_against(triples[start:stop], "t")
        (parts[start],) = torch.autograd.grad(scores, with_rows.time, weights[start:stop])

    with one_thread():
        parallel_for(differentiate, len(triples), len(triples) * zeros.numel())
    total = zeros
    for start in sorted(parts):  # in order: the same threads give the same bits
        total = total + parts[start]
    return total


def _mean_square(model: TensorModel, triples: Facts) -> float:
    """Return the mean ‖φ‖² of triples, estimated from random rows: E (a · φ)² = ‖φ‖² for a ~ N(0, 1)."""
    probes = torch.randn(64, *model.time.shape[1:], generator=seeded(0))
    return scores_over_time(model, probes.to(model.time), triples).square().mean().clamp(min=1e-12).item()


@torch.no_grad()
def sample_state(
    model: TensorModel,
    triples: Facts,
    time: int,
    held_out: HeldOut,
    *,
    generator: torch.Generator,
    count: int = SAMPLE,
) -> Sample:
    """Return scores of cells that are not stored at a time, and whether they are answers then.

    They are all `triples`, and all other cells if the tensor has at most `count`, else `count` random ones that
    represent them.
    """
    triples = distinct(Facts(triples.ids).with_slot("t", 0), model.sizes)
    sizes = [model.sizes[KINDS[slot]] for slot in "spo"]
    if math.prod(sizes) <= count:  # the few false cells that score high matter most, and a sample would miss them
        cells = Facts(torch.cartesian_prod(*(torch.arange(size) for size in sizes), torch.tensor([0])).view(-1, 4))
    else:
        s, p, o = (torch.randint(size, (count,), generator=generator) for size in sizes)
        cells = Facts.from_columns(s, p, o, torch.zeros_like(s))
    others = cells[~FactIndex(triples, model.sizes).contains(cells)]
    weight = torch.ones(len(triples) + len(others), dtype=torch.float64)
    weight[len(triples) :] = (math.prod(sizes) - len(triples)) / max(1, len(others))
    every = Facts.concat([triples, others]).with_slot("t", time)
    is_new = ~held_out.stored.contains(every)
    every, weight = every[is_new], weight[is_new]
    scores = torch.empty(len(every), dtype=torch.float64)

    def score(start: int, stop: int) -> None:
        scores[start:stop] = model.score(every[start:stop])

    with one_thread():
        parallel_for(score, len(every), len(every) * model.config.dim)
    return Sample(scores, held_out.answers.contains(every), weight, count=torch.full_like(weight, 1 + held_out.unseen))


class SemanticStates:
    """The semantic models of a graph as of any time and their calibration, computed when first needed."""

    def __init__(self, model: TensorModel, graph: EpisodicGraph) -> None:
        self.model, self.graph = model, graph
        self._projection: Projection | None = None
        self._models: dict[int, TensorModel] = {}  # by time
        self._lock = Lock()

    def at(self, time: int, progress: Progress | None = None) -> tuple[TensorModel, Calibration]:
        """Return the semantic model as of a time and the calibration of its scores.

        The first call solves for the time rows of all starts and ends; `progress` is called with the share done.
        """
        if self._projection is None:
            training = self.graph.with_splits({"train": self.graph.split("train")})
            starts, ends = episodes.starts(training), episodes.ends(training)
            self._projection = project(self.model, starts, ends, progress=progress)
        found = self._models.get(time)
        if found is None:
            found = self._projection.at(time)
            with self._lock:
                if len(self._models) >= STATES:
                    del self._models[next(iter(self._models))]  # the oldest
                self._models[time] = found
        return found, self._calibration

    @cached_property
    def _calibration(self) -> Calibration:
        """The calibration of cells as of any time, fitted to facts that are held out of the stored times.

        Without these it is fitted to stored ones, which are recalled better, and says no more than no answer supports.
        """
        assert self._projection is not None
        held_out, generator, slots = HeldOut.of(self.graph), seeded(0), ("s", "p", "o", CELL)
        runs = 0 if held_out.is_later else held_out.run_count
        if not runs:
            nothing, train = FactIndex(Facts.of([]), self.graph.sizes), self.graph.split("train")
            held_out = replace(held_out, facts=train, answers=held_out.stored, stored=nothing)
        highest = dict.fromkeys(slots, highest_probability(runs))
        if not len(held_out.facts):
            return Calibration({}, highest=highest)
        facts = Facts.concat([self.graph.split("train"), held_out.facts])
        triples = distinct(Facts(facts.ids).with_slot("t", 0), self.graph.sizes)
        times = held_out.times(generator, most=max(1, min(FIT_TIMES, MOST_TRIPLES // len(triples))))
        sample = Sample.concat(
            sample_state(
                self._projection.at(time), triples, time, held_out, generator=generator, count=SAMPLE // len(times)
            ).weighted(weight)
            for time, weight in times
        )
        if sample.truth.any():  # the lowest answers would bend the fit to candidates that nobody looks at
            true = sample.score[sample.truth].sort().values
            sample = sample[sample.score >= true[int(LOWEST * len(true))]]
        return Calibration(dict.fromkeys(slots, fit_platt(sample)), highest=highest)
