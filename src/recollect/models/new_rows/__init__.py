"""Rows for ids that a trained model has not seen: each is a small convex problem with all other rows fixed."""

from recollect.models.new_rows.solver import Grown, RowSolver

__all__ = ["Grown", "RowSolver"]
