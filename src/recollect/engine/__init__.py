"""Compute scores and updates fast: contraction plans, operations with compiled kernels, row optimizers."""

from recollect.engine.contraction import Combinations, Contraction, Matrices, combinations, distinct_counts
from recollect.engine.mapped import MappedTables, Tables, Zeros
from recollect.engine.ops import bilinear_scores, diagonal_scores, gather_dot, rank_counts
from recollect.engine.parallel import one_thread, parallel_for
from recollect.engine.plan import max_query_elements
from recollect.engine.row_optim import OPTIMIZERS, RowOptimizer

__all__ = [
    "OPTIMIZERS",
    "Combinations",
    "Contraction",
    "MappedTables",
    "Matrices",
    "RowOptimizer",
    "Tables",
    "Zeros",
    "bilinear_scores",
    "combinations",
    "diagonal_scores",
    "distinct_counts",
    "gather_dot",
    "max_query_elements",
    "one_thread",
    "parallel_for",
    "rank_counts",
]
