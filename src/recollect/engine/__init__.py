"""Compute scores and updates fast: contraction, operations, compiled kernels, row optimizers."""
