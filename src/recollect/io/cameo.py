"""CAMEO, the code of events that ICEWS and GDELT share: names of codes, and the root of every name."""

from __future__ import annotations

import csv
from pathlib import Path

from recollect.errors import UserError


def code_names(table: Path) -> dict[str, str]:
    """The name of every code in the published table (columns code, name, root_code)."""
    return {row["code"]: row["name"].strip() for row in _rows(table)}


def name_roots(table: Path) -> dict[str, str]:
    """The two-digit root of every name, names in lower case."""
    return {row["name"].strip().casefold(): row["root_code"] for row in _rows(table)}


def _rows(table: Path) -> list[dict[str, str]]:
    with table.open(encoding="latin-1", newline="") as file:  # as it is published
        rows = list(csv.DictReader(file))
    if not rows or not {"code", "name", "root_code"} <= rows[0].keys():
        raise UserError(f"{table}: not the table of CAMEO codes; wanted columns code, name and root_code")
    return rows
