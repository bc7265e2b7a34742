"""`python -m recollect`."""

from recollect.cli.main import main

main()
