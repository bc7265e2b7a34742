"""From episodic to semantic memory: what holds now, or held as of any time, by summing over times.

θ is linear in a time's row a_t, so with a_s, a_p, a_o fixed the rows that recall given facts are ridge regressions,

    min_a  Σ_i (θ_i(a_t) − y_it)² + unseen Σ_spo θ_spo(a_t)² + ridge ‖a_t‖²    for every time t,

over the triples i that ever occur, with y = 1 where one has a fact at t and 0 elsewhere, and over all cells, which
are to be 0 unless something is known. The fit ties θ to 0 and 1, and then sums over times count: starts until τ less
the ends before τ (an end is the last time at which a fact holds) are 1 for what holds at τ and 0 for what does not.

The sum over all cells costs as much as a few thousand triples: φ is linear in each table's row, so a table X may be
replaced by any rows R with RᵀR = XᵀX, of which there are no more than a row has numbers. Short rows are solved for
directly, ConT's cores by conjugate gradients, all times at once. Every φ is scored by the model's own equation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from recollect.errors import UserError
from recollect.evaluation.calibration import Sample
from recollect.graph.fact_index import FactIndex
from recollect.graph.facts import KINDS, SLOTS, Facts, distinct, encode
from recollect.models.semantic import check_projectable, plain_model, semantic_model
from recollect.models.tensor_model import TensorModel

RIDGE = 1e-2  # in units of the mean square of a triple's features: the same whatever the scale of a model's vectors
UNSEEN = 1e-2  # what a cell of no known triple weighs beside one of a known triple
DIRECT = 2048  # numbers in a time row up to which its equations are solved directly
SAMPLE = 2**20  # cells by which probabilities are fitted
STEPS = 60  # of conjugate gradients, at most
NEAR = 1e-2  # the residual, beside that of no weights at all, at which they stop
BYTES = 256 * 2**20  # of scores of all triples at a time


@dataclass(frozen=True, eq=False)
class Projection:
    """A model with time rows of starts and of ends; `at` a time it is a semantic model.

    Without rows of ends it is the paper's Start projection, which forgets nothing.
    """

    model: TensorModel
    starts: Tensor  # (times, …) like the model's time table
    ends: Tensor | None

    @cached_property
    def _sums(self) -> Tensor:
        """Row τ: Σ_{t ≤ τ} starts − Σ_{t < τ} ends."""
        sums = self.starts.double().cumsum(0)
        if self.ends is not None:
            sums[1:] -= self.ends.double().cumsum(0)[:-1]
        return sums.to(self.starts.dtype)

    def row(self, time: int = -1) -> Tensor:
        """The time row whose scores are those of what holds at `time`, by default the last."""
        return self._sums[time]

    def at(self, time: int = -1) -> TensorModel:
        """The semantic model of what holds at a time."""
        return semantic_model(self.model, self.row(time))

    def scores(self, triples: Facts) -> Tensor:
        """θ of every triple as of every time: (n, times)."""
        return scores_over_time(self.model, self._sums, triples)


def project(
    model: TensorModel,
    starts: Facts,
    ends: Facts,
    *,
    ridge: float = RIDGE,
    unseen: float = UNSEEN,
    progress: Callable[[float], None] | None = None,
) -> Projection:
    """The projection whose rows of starts and ends are solved for in closed form; entities and predicates stay.

    Of the form `both` the episodic equation is projected: what the static part says does not start or end.
    """
    model = plain_model(model)
    check_projectable(model)
    solved = []
    for i, facts in enumerate((starts, ends)):
        told = None if progress is None else lambda share, i=i: progress((i + share) / 2)
        solved.append(solve_times(model, facts, starts, ridge=ridge, unseen=unseen, progress=told))
    return Projection(model, *solved)


@torch.no_grad()
def solve_times(
    model: TensorModel,
    facts: Facts,
    triples: Facts,
    *,
    ridge: float = RIDGE,
    unseen: float = UNSEEN,
    progress: Callable[[float], None] | None = None,
) -> Tensor:
    """The time table by which `facts` score 1, and all other cells of `triples` and theirs 0, by ridge regression.

    Any other cell should score 0 too, and counts `unseen` times as much. A time without facts gets a row of zeros,
    which is its solution.
    """
    table = model.time.detach()
    if not len(facts):
        if progress is not None:
            progress(1.0)
        return torch.zeros_like(table)
    triples = distinct(Facts(torch.cat([triples.ids, facts.ids])).with_slot("t", 0), model.sizes)
    row_of = torch.searchsorted(encode(triples, model.sizes, "spo"), encode(facts, model.sizes, "spo"))
    ridge *= _mean_square(model, triples)
    wider, others = _with_all_cells(model, unseen)
    direct = table[0].numel() <= DIRECT
    if direct:
        factor, failed = torch.linalg.cholesky_ex(
            _gram(wider, triples) + _gram(wider, others) + ridge * _identity(table)
        )
    if not math.isfinite(ridge) or (direct and bool(failed)):
        raise UserError(
            "the model's weights are too large, or too few, to solve for its times; "
            "train again with a lower learning rate, or project with a larger ridge"
        )
    solved = torch.zeros_like(table)
    times = facts.t.unique()
    size = max(1, BYTES // (table.itemsize * (len(triples) + (0 if direct else len(others)))))
    for done, some in enumerate(chunks := times.split(size)):
        place = torch.full((len(table),), -1)
        place[some] = torch.arange(len(some))
        here = place[facts.t] >= 0
        wanted = torch.zeros(len(triples), len(some), dtype=table.dtype, device=table.device)
        wanted[row_of[here].to(table.device), place[facts.t[here]].to(table.device)] = 1
        right = _back(wider, triples, wanted)
        if direct:
            rows = torch.cholesky_solve(right.flatten(1).T.to(factor), factor).T.to(table).view_as(right)
        else:
            told = None if progress is None else lambda share, done=done: progress((done + share) / len(chunks))
            rows = _conjugate_gradients(wider, Facts.concat([triples, others]), right, ridge, told)
        solved[some.to(table.device)] = rows
    if progress is not None:
        progress(1.0)
    return solved


def _with_all_cells(model: TensorModel, weight: float) -> tuple[TensorModel, Facts]:
    """The model with more entities and predicates, and triples of those: Σ φφᵀ over them is `weight` Σ φφᵀ over all."""
    tables = {kind: getattr(model, kind).detach() for kind in ("entity", "predicate")}
    roots = {kind: _root(table) for kind, table in tables.items()}
    roots["entity"] *= weight**0.25  # it comes in twice, and squared
    wider = model.with_rows({kind: torch.cat([table, roots[kind]]) for kind, table in tables.items()})
    if weight == 0:
        return wider, Facts.of([])
    entities, predicates = (torch.arange(len(tables[kind]), wider.sizes[kind]) for kind in tables)
    return wider, Facts(torch.cartesian_prod(entities, predicates, entities, torch.tensor([0])))


def _root(table: Tensor) -> Tensor:
    """Rows R with RᵀR = XᵀX, no more of them than a row of X has numbers."""
    _, singular, right = torch.linalg.svd(table.flatten(1), full_matrices=False)
    return (singular[:, None] * right).view(-1, *table.shape[1:])


def _gram(model: TensorModel, triples: Facts) -> Tensor:
    """Σ φφᵀ over triples, in double precision: (d, d) for time rows of d numbers."""
    width = model.time[0].numel()
    unit = torch.eye(width, dtype=model.dtype, device=model.device).view(-1, *model.time.shape[1:])
    gram = torch.zeros(width, width, dtype=torch.float64, device=model.device)
    for piece in triples.split(max(1, BYTES // (8 * width))):
        features = scores_over_time(model, unit, piece).double()
        gram.addmm_(features.T, features)
    return gram


def _identity(table: Tensor) -> Tensor:
    return torch.eye(table[0].numel(), dtype=torch.float64, device=table.device)


def _conjugate_gradients(
    model: TensorModel, triples: Facts, right: Tensor, ridge: float, progress: Callable[[float], None] | None
) -> Tensor:
    """Rows a with (ΦᵀΦ + ridge) a = right, every row a system of its own; Φ are the triples' features."""
    rows, residual, direction = torch.zeros_like(right), right.clone(), right.clone()
    square = _squares(residual)
    enough = NEAR**2 * square.sum()
    for step in range(STEPS):
        if square.sum() <= enough:
            break
        image = scores_over_time(model, direction, triples)
        length = square / (image.square().sum(0) + ridge * _squares(direction)).clamp(min=1e-30)
        rows += _each(length, right) * direction
        residual -= _each(length, right) * (_back(model, triples, image) + ridge * direction)
        new = _squares(residual)
        direction = residual + _each(new / square.clamp(min=1e-30), right) * direction
        square = new
        if progress is not None:
            progress((step + 1) / STEPS)
    return rows


@torch.no_grad()
def scores_over_time(model: TensorModel, rows: Tensor, triples: Facts) -> Tensor:
    """Φ a: the score of every triple at times with these rows, (n, times)."""
    return model.with_rows({"time": rows}).score_against(triples.with_slot("t", 0), "t")


def _back(model: TensorModel, triples: Facts, weights: Tensor) -> Tensor:
    """Φᵀ w: the gradient of Σ w θ by the rows of times."""
    part = model.with_rows({"time": model.time.new_zeros(weights.shape[1], *model.time.shape[1:])})
    for name, parameter in part.named_parameters():
        parameter.requires_grad_(name == "time")
    with torch.enable_grad():
        scores = part.score_against(triples, "t")
    (gradient,) = torch.autograd.grad(scores, part.time, weights)
    return gradient


def _mean_square(model: TensorModel, triples: Facts) -> float:
    """The mean over triples of ‖φ‖², estimated from the scores of random rows: E (a · φ)² = ‖φ‖² for a ~ N(0, 1)."""
    probes = torch.randn(64, *model.time.shape[1:], generator=torch.Generator().manual_seed(0))
    probes = probes.to(model.time)
    return scores_over_time(model, probes, triples).square().mean().clamp(min=1e-12).item()


@torch.no_grad()
def best_triples(model: TensorModel, given: Mapping[str, int], top: int) -> tuple[Facts, Tensor]:
    """The `top` triples with the highest scores among those with the given ids, the best first, and their scores."""
    sizes = {slot: model.sizes[KINDS[slot]] for slot in "spo"}
    top = min(max(0, top), math.prod(size for slot, size in sizes.items() if slot not in given))
    open_slots = [slot for slot in "spo" if slot not in given]
    if not open_slots:
        fact = Facts.from_columns(*(torch.tensor([given.get(slot, 0)]) for slot in SLOTS))
        return fact[:top], model.score(fact)[:top].cpu()
    ranked = max(open_slots, key=lambda slot: sizes[slot])  # is scored whole; the other open slots are gone through
    rows = {slot: torch.tensor([given[slot]]) if slot in given else torch.arange(sizes[slot]) for slot in "spo"}
    rows[ranked] = torch.tensor([0])
    queries = Facts(torch.cartesian_prod(*rows.values(), torch.tensor([0])).view(-1, 4))
    best, scores = Facts.of([]), torch.empty(0, dtype=model.dtype)
    for piece in queries.split(max(1, BYTES // (8 * sizes[ranked]))):
        # the best so far come first: of equal scores the ones with the lower ids stay, whatever the pieces
        found = model.score_against(piece, ranked).cpu().flatten()
        kept = torch.cat([scores, found]).sort(descending=True, stable=True).indices[:top]
        new = kept[kept >= len(scores)] - len(scores)
        made = piece[new // sizes[ranked]].with_slot(ranked, new % sizes[ranked])
        at = torch.where(kept < len(scores), kept, len(scores) + (kept >= len(scores)).cumsum(0) - 1)
        best, scores = Facts.concat([best, made])[at], torch.cat([scores, found])[kept]
    return best, scores


@torch.no_grad()
def sample_state(
    model: TensorModel, facts: Facts, time: int, *, generator: torch.Generator, count: int = SAMPLE
) -> Sample:
    """The scores of what holds at a time and of what does not: every triple that ever occurs, and all others where
    there are no more than `count` cells, else `count` random ones that stand for them."""
    triples = distinct(Facts(facts.ids).with_slot("t", 0), model.sizes)
    holds = FactIndex(facts[facts.t == time].with_slot("t", 0), model.sizes).contains(triples)
    sizes = [model.sizes[KINDS[slot]] for slot in "spo"]
    if math.prod(sizes) <= count:  # the few that score high by mistake count most, and a sample would miss them
        drawn = Facts(torch.cartesian_prod(*(torch.arange(size) for size in sizes), torch.tensor([0])).view(-1, 4))
    else:
        s, p, o = (torch.randint(size, (count,), generator=generator) for size in sizes)
        drawn = Facts.from_columns(s, p, o, torch.zeros_like(s))
    drawn = drawn[~FactIndex(triples, model.sizes).contains(drawn)]
    others = torch.full((len(drawn),), (math.prod(sizes) - len(triples)) / max(1, len(drawn)), dtype=torch.float64)
    return Sample(
        model.score(Facts.concat([triples, drawn])).cpu().double(),
        torch.cat([holds, torch.zeros(len(drawn), dtype=torch.bool)]),
        torch.cat([torch.ones(len(triples), dtype=torch.float64), others]),
    )


def _squares(rows: Tensor) -> Tensor:
    return rows.flatten(1).square().sum(1)


def _each(values: Tensor, rows: Tensor) -> Tensor:
    """One number a row, shaped to multiply rows."""
    return values.view(-1, *[1] * (rows.dim() - 1))
