"""`python -m recollect`."""

from recollect.cli import main

main()
