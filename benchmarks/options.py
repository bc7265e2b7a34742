"""Options that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

Json = Annotated[bool, typer.Option("--json", help="Print records as JSON.")]
Quick = Annotated[bool, typer.Option("--quick", help="Tiny sizes, to try the command.")]
