"""Compute scores and updates fast: contraction plans, operations with compiled kernels, row optimizers."""

from recollect.engine.contraction import Combinations, Contraction, Matrices, combinations, distinct_counts
from recollect.engine.ops import (
    Groups,
    bilinear_scores,
    diagonal_scores,
    gather,
    gather_dot,
    gather_mul,
    grouped_mm,
    matmul,
    rank_counts,
    scatter_add,
)
from recollect.engine.parallel import one_thread, parallel_for
from recollect.engine.plan import Problem, contraction_plan, intermediate_elements, max_counts, terms_without
from recollect.engine.row_optim import OPTIMIZERS, RowOptimizer

__all__ = [
    "OPTIMIZERS",
    "Combinations",
    "Contraction",
    "Groups",
    "Matrices",
    "Problem",
    "RowOptimizer",
    "bilinear_scores",
    "combinations",
    "contraction_plan",
    "diagonal_scores",
    "distinct_counts",
    "gather",
    "gather_dot",
    "gather_mul",
    "grouped_mm",
    "intermediate_elements",
    "matmul",
    "max_counts",
    "one_thread",
    "parallel_for",
    "rank_counts",
    "scatter_add",
    "terms_without",
]
