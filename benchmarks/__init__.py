"""Measure the speed of recollect: `python -m benchmarks --help`. Not part of the installed package."""
