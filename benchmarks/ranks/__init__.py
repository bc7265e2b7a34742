"""Measure training by several processes: `python -m benchmarks ranks --help`."""
