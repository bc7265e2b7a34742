"""The published datasets. `published.toml` says what each is, where its files are published, and how they are read."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import resources
from typing import Any

from recollect.graph.facts import SPLITS, EpisodicGraph
from recollect.io.datasets import readers
from recollect.io.datasets.download import File

CAMEO = File(
    path="cameo/cameo-codes.csv",
    sha256="6bb520c64069b7d42d7099eba1dc07528533db5e2321f2f8cb6e9ebd24ad56c0",
    max_bytes=154_149,
    url="https://raw.githubusercontent.com/andybega/icews/master/data-raw/cameo-codes.csv",
)


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """A named graph: description, files, the function that reads them, and the expected sizes."""

    about: str
    make: Callable[..., EpisodicGraph]  # arguments: the paths of the files by role, if there are any, and options
    files: Mapping[str, File] = field(default_factory=dict)
    sizes: tuple[int, int, int] | None = None  # entities, predicates, times
    cells: int | None = None  # number of facts, where the file is not a text with one fact per row
    licence: str = ""
    source: str = ""

    @property
    def rows(self) -> dict[str, int]:
        """Return the number of rows of each split, where that is known."""
        if self.cells is not None:
            return {"train": self.cells}
        return {role: file.rows for role, file in self.files.items() if role in SPLITS and file.rows is not None}


def _split_file(entry: Mapping[str, Any], split: str) -> File:
    """Return the file of one split; `entry` describes the files of all splits."""
    fields: dict[str, Any] = {}
    for name, value in entry.items():
        if isinstance(value, list):
            fields[name] = value[SPLITS.index(split)]
        else:
            fields[name] = value.replace("{}", split) if isinstance(value, str) else value
    return File(**fields)


def _dataset(entry: dict[str, Any]) -> Dataset:
    """Return the dataset of one table of `published.toml`."""
    files = {}
    if "splits" in entry:
        splits = entry.pop("splits")
        files = {split: _split_file(splits, split) for split in SPLITS}
    for role, fields in entry.pop("files", {}).items():
        files[role] = File(**fields)
    make = getattr(readers, entry.pop("reader"))
    sizes = entry.pop("sizes", None)
    return Dataset(make=make, files=files, sizes=None if sizes is None else tuple(sizes), **entry)


def _published() -> dict[str, Dataset]:
    text = resources.files(__package__).joinpath("published.toml").read_text(encoding="utf-8")
    return {name: _dataset(entry) for name, entry in tomllib.loads(text).items()}


PUBLISHED = _published()
