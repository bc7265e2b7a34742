"""Measure speed: `python -m benchmarks compare OLD NEW`, `python -m benchmarks --help`."""

from benchmarks.cli import main

if __name__ == "__main__":
    main()
