"""CAMEO, the event code book of ICEWS and GDELT: names and root codes from its published table."""

from __future__ import annotations

import csv
from pathlib import Path

from recollect.errors import UserError

ROOTS = tuple(f"{root:02d}" for root in range(1, 21))  # the twenty root codes


def code_names(table: Path) -> dict[str, str]:
    """Return the name of every code in the published table (columns code, name, root_code)."""
    return {row["code"]: row["name"].strip() for row in _rows(table)}


def name_roots(table: Path) -> dict[str, str]:
    """Return the two-digit root code of every event name; names are lower case."""
    return {row["name"].strip().casefold(): row["root_code"] for row in _rows(table)}


def _rows(table: Path) -> list[dict[str, str]]:
    with table.open(encoding="latin-1", newline="") as file:  # the encoding of the published file
        rows = list(csv.DictReader(file))
    if not rows or not {"code", "name", "root_code"} <= rows[0].keys():
        raise UserError(f"{table}: not the table of CAMEO codes; wanted columns code, name and root_code")
    return rows
