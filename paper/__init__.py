"""Reproduce the paper's tables and figures: `python -m paper table-icews`. Not part of the installed package."""
