"""Score facts, candidates and negatives of a model, in pieces of bounded memory where no gradient is needed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from recollect.engine import Contraction, Matrices, bilinear_scores, diagonal_scores
from recollect.errors import UserError
from recollect.graph.facts import KINDS, SLOT_NAMES, Facts, check_ids
from recollect.models.batch import Batch, real

if TYPE_CHECKING:
    from recollect.models.tensor_model import TensorModel

PIECE_BYTES = 64 * 2**20  # intermediate tensors of a piece of facts that is scored without gradient
CANDIDATE_ELEMENTS = 2**22  # elements of matrix-shaped candidates per piece (16 MB in float32)

ENTITY_ELEMENTS = 2**26  # of a larger table of entities (256 MB), candidates are computed in blocks of a quarter of it


def score(model: TensorModel, facts: Facts) -> Tensor:
    """Return θ[s,p,o,t] of each fact: (B,)."""
    return _in_pieces(model, facts, None, lambda batch, _: batch.score())


def queries(model: TensorModel, facts: Facts, slot: str) -> Tensor:
    """Return rows (B, d) with θ = queries @ candidates(slot).T, without gradient and in bounded memory."""
    facts, slot = model.as_query(facts, slot)
    with torch.no_grad():
        return _in_pieces(model, facts, slot, lambda batch, _: batch.query(slot))


def score_against(model: TensorModel, facts: Facts, slot: str, candidates: Tensor | None = None) -> Tensor:
    """Return θ of fact b with `slot` replaced by candidate n.

    Candidates: None for all ids -> (B, N); (N,) ids shared by all facts -> (B, N); (B, K) ids per fact -> (B, K).
    """
    if slot not in model.slots:
        name = SLOT_NAMES.get(slot, slot)
        raise UserError(f"the {model.config.form} {type(model).__name__} has no {name} slot")
    facts, slot = model.as_query(facts, slot)
    if candidates is not None and candidates.dim() == 2:
        own = candidates.to(model.device)
        if model.has_matrix_rows(slot):  # a query would be as large as a core: score the substituted facts
            return score(model, substitute(facts, slot, candidates)).view(candidates.shape)
        return _in_pieces(model, facts, slot, lambda batch, piece: batch.score_candidates(slot, own[piece]))
    is_large = KINDS[slot] == "entity" and model.table(slot).numel() > ENTITY_ELEMENTS
    if is_large and candidates is None and not torch.is_grad_enabled():
        return _score_entities(model, facts, slot)
    rows = model.candidates(slot, candidates)
    if rows is None:
        return _score_matrix_candidates(model, facts, slot, candidates)
    return _in_pieces(model, facts, slot, lambda batch, _: batch.query(slot) @ rows.T)


def _score_entities(model: TensorModel, facts: Facts, slot: str) -> Tensor:
    """Return θ of each fact with each entity in a slot: (B, N); candidates exist only in blocks."""
    found = queries(model, facts, slot)
    scores = found.new_empty(len(facts), len(model.table(slot)))
    rows = max(1, ENTITY_ELEMENTS // (4 * model.row_size(slot)))
    for start in range(0, scores.shape[1], rows):
        block = slice(start, start + rows)
        candidates = model.candidates(slot, block)
        assert candidates is not None
        torch.mm(found, candidates.T, out=scores[:, block])
    return scores


def score_with_negatives(
    model: TensorModel, facts: Facts, negatives: Mapping[str, Tensor], counts: Mapping[str, int] | None = None
) -> tuple[Tensor, Tensor]:
    """Return θ of each fact (B,) and of its negatives (B, ΣK): for each slot the facts with ids (B, K) in it.

    `counts` is that of `TensorModel.batch`. The queries of a slot are shared by the fact and its negatives.
    """
    batch = model.batch(facts, counts)
    if negatives.keys() <= {"s", "o"} and len(model.equations) == 1:
        contraction = batch.contractions[""]
        if model.equation.is_diagonal:
            return _diagonal_scores(model, contraction, negatives)
        # matrices serve one negative per slot; a query serves many negatives at less cost
        one_each = [ids.shape[1] for ids in negatives.values()] == [1, 1]
        matrices = contraction.matrices() if one_each else None
        if matrices is not None:
            return _bilinear_scores(model, contraction, matrices, negatives)
    true: Tensor | None = None
    false: list[Tensor] = []
    for slot, ids in negatives.items():
        # the true id is scored as the first candidate: one query serves the fact and its negatives
        own = torch.cat([facts.column(slot)[:, None], ids], dim=1) if true is None else ids
        if model.has_matrix_rows(slot):
            scores = model.batch(substitute(facts, slot, own)).score().view(own.shape)
        else:
            scores = batch.score_candidates(slot, own.to(model.device))
        if true is None:
            true, scores = scores[:, 0], scores[:, 1:]
        false.append(scores)
    assert true is not None
    return true, torch.cat(false, dim=1)


def substitute(facts: Facts, slot: str, candidates: Tensor) -> Facts:
    """Return the facts with each of their own candidates (B, K) in a slot: (B · K) facts."""
    repeated = Facts(facts.ids.repeat_interleave(candidates.shape[1], dim=0))
    return repeated.with_slot(slot, candidates.reshape(-1))


def _diagonal_scores(
    model: TensorModel, contraction: Contraction, negatives: Mapping[str, Tensor]
) -> tuple[Tensor, Tensor]:
    """Score Σ_r c x y, c being the product of predicate, time and core, for facts and negatives in s and o."""
    subjects, objects = (model.lift(slot, model.table(slot)).resolve_conj() for slot in "so")
    none = contraction.ids["s"].new_empty(len(contraction.ids["s"]), 0)
    others = {slot: negatives.get(slot, none).to(model.device) for slot in "so"}
    for slot, ids in others.items():
        check_ids(slot, contraction.ids[slot], model.id_count(slot))
        check_ids(slot, ids, model.id_count(slot))
    context = contraction.query("so")
    scores = diagonal_scores(
        context, subjects, contraction.ids["s"], objects, contraction.ids["o"], others["s"], others["o"]
    )
    true, by_subject, by_object = scores.split([1, others["s"].shape[1], others["o"].shape[1]], dim=1)
    columns = {"s": by_subject, "o": by_object}
    return true[:, 0], torch.cat([columns[slot] for slot in negatives], dim=1)


def _bilinear_scores(
    model: TensorModel, contraction: Contraction, matrices: Matrices, negatives: Mapping[str, Tensor]
) -> tuple[Tensor, Tensor]:
    """Score x M y, M being the matrix that facts of one predicate and time share, for facts and negatives."""
    row_slot, column_slot = sorted("so", key=lambda slot: matrices.axes.index(model.equation.axes(slot)))
    sides = []
    for slot in (row_slot, column_slot):
        ids = torch.cat([contraction.ids[slot][:, None], negatives[slot].to(model.device)], dim=1)
        sides.append(contraction.factor(slot, ids))
    scores = bilinear_scores(matrices.values, matrices.groups, *sides[0], *sides[1])
    columns = {row_slot: scores[:, 1:2], column_slot: scores[:, 2:3]}
    return scores[:, 0], torch.cat([columns[slot] for slot in negatives], dim=1)


def _score_matrix_candidates(model: TensorModel, facts: Facts, slot: str, ids: Tensor | None) -> Tensor:
    """Return θ of each fact with each candidate of a slot whose factors are matrices or larger: (B, N)."""
    parts = []
    for prefix, equation in model.equations.items():
        if slot not in equation.slots:  # (B, 1): the same for every candidate
            parts.append(_equation_scores(model, facts, prefix)[:, None])
            continue
        knots = model.knots if slot == "t" and len(equation.occurrences("t")) == 1 else None
        times = torch.arange(model.id_count(slot)) if ids is None else ids.cpu()
        if knots is not None and 2 * len(times) > len(model.time):
            # θ is linear in a time's row: score the knots, then interpolate
            scores = _score_factors(model, facts, prefix, slot, model.lift(slot, model.time))
            parts.append(scores @ knots.mixing(times, model.time).T)
        else:
            parts.append(_score_factors(model, facts, prefix, slot, model.lift(slot, model.rows(slot, prefix, ids))))
    return reduce(torch.add, parts)


def _equation_scores(model: TensorModel, facts: Facts, prefix: str) -> Tensor:
    """Return θ by one equation: (B,)."""
    return _in_pieces(model, facts, None, lambda batch, _: real(batch.contractions[prefix].score()))


def _score_factors(model: TensorModel, facts: Facts, prefix: str, slot: str, factors: Tensor) -> Tensor:
    """Return θ by one equation of each fact with each factor (N, *axes) in the open slot: (B, N)."""
    is_whole = torch.is_grad_enabled()
    size = len(factors) if is_whole else max(1, CANDIDATE_ELEMENTS // factors[0].numel())
    scores = []
    for block in factors.split(size):

        def fn(batch: Batch, _: slice, block: Tensor = block) -> Tensor:
            return batch.contractions[prefix].with_candidates(slot, block).score()

        scores.append(_in_pieces(model, facts, slot, fn, block))
    return torch.cat(scores, dim=1)


def _in_pieces(
    model: TensorModel,
    facts: Facts,
    slot: str | None,
    fn: Callable[[Batch, slice], Tensor],
    candidates: Tensor | None = None,
) -> Tensor:
    """Return fn(batch, piece) of all facts, (B, …), where fn contracts all slots but the open `slot`, if any.

    With gradients, in one piece. Without, in pieces whose intermediate tensors fit in PIECE_BYTES; `candidates` are
    those that fn puts into the open slot.
    """
    batch, n = model.batch(facts, open=slot or ""), len(facts)
    pieces = 1
    if not torch.is_grad_enabled():
        pieces = -(-batch.elements(slot, candidates) * model.dtype.itemsize // PIECE_BYTES)
    rows = max(1, -(-n // max(1, pieces)))
    if rows >= n:
        return fn(batch, slice(None))
    out: Tensor | None = None
    for start in range(0, n, rows):
        piece = slice(start, start + rows)
        values = fn(model.batch(facts[piece], open=slot or ""), piece)
        if out is None:  # one block for all: small results between large temporaries would fragment the heap
            out = values.new_empty(n, *values.shape[1:])
        out[piece] = values
    assert out is not None
    return out
