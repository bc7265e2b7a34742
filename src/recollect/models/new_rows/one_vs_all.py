"""The row of a time or a predicate, by the one-vs-all losses of its facts over all candidates, minimised by L-BFGS.

    min_x  v Σ_b [log Σ_k w_k exp θ_bk(x) − θ_b(x)]  +  ridge ‖x − prior‖²

θ_b is the score of the answer to question b. Candidates are the trained entities, and new ones that are answers. Of
very many trained ones, every n-th stands for n of them, w = n. Few facts of a time determine a core tensor of
thousands of elements: samples of a few candidates per question do not suffice.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from recollect.graph.facts import KINDS, Facts
from recollect.models.tensor_model import TensorModel
from recollect.models.time_knots import TimeKnots

ITERATIONS = 8  # of L-BFGS; twenty fit the facts of new days of ICEWS14 closer, and other facts of these days no better
CANDIDATES = 2**14  # trained entities, at most
LOGITS = 2**23  # of all questions and candidates, at most: 32 MB in float32

Asked = Sequence[tuple[Facts, str]]  # facts as they are asked, and the slot asked for


def most_facts(entities: int) -> int:
    """Return how many facts of one id are read, of a model with so many trained entities; each is asked twice."""
    return max(1, LOGITS // (2 * min(entities, CANDIDATES)))


def fit_row(
    model: TensorModel, questions: Asked, slot: str, *, entities: int, prior: Tensor, ridge: float, weight: float = 1.0
) -> Tensor:
    """Return the row (d,) of the one id in `slot` of all questions, each of which stands for `weight` of its kind.

    `model` has the rows of all other ids, the trained ones of `entities` first. Rows of two tables come one after the
    other, as in `read_row`.
    """
    names = model.table_names(KINDS[slot])
    shapes = [getattr(model, name).shape[1:] for name in names]
    parts = prior.split([shape.numel() for shape in shapes])
    tables = {name: part.clone().view(1, *shape) for name, part, shape in zip(names, parts, shapes, strict=True)}
    knots = TimeKnots.of(1, (1,)) if slot == "t" and model.knots is not None else None
    single = model.with_rows(tables, knots)
    for name, parameter in single.named_parameters():
        parameter.requires_grad_(name in names)
    rows = [getattr(single, name) for name in names]
    answers = torch.cat([facts.column(asked) for facts, asked in questions])
    candidates, log_weight = _candidates(answers, entities, model.dtype)
    own_slot = [(facts.with_slot(slot, 0), asked) for facts, asked in questions]
    targets = [torch.searchsorted(candidates, facts.column(asked).contiguous()) for facts, asked in questions]
    optimizer = torch.optim.LBFGS(rows, max_iter=ITERATIONS, line_search_fn="strong_wolfe")

    def objective() -> Tensor:
        optimizer.zero_grad()
        row = torch.cat([part.flatten() for part in rows])
        total = ridge * (row - prior).square().sum()
        for (facts, asked), target in zip(own_slot, targets, strict=True):
            scores = single.score_against(facts, asked, candidates) + log_weight
            total = total + weight * cross_entropy(scores, target, reduction="sum")
        total.backward()
        return total

    with torch.enable_grad():
        optimizer.step(objective)
    return torch.cat([part.detach().flatten() for part in rows])


def _candidates(answers: Tensor, entities: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return the ids of the candidates, ascending, and log w: (N,) each."""
    stride = -(-entities // CANDIDATES)
    ids = torch.cat([torch.arange(0, entities, stride), answers]).unique()
    log_weight = torch.full((len(ids),), math.log(stride), dtype=dtype)
    log_weight[torch.isin(ids, answers)] = 0.0
    return ids, log_weight
