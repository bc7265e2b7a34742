"""Export a graph to a folder and read it back as the same graph.

The folder holds the facts in a format that other tools read, and `graph.json` with what the facts alone do not say: the
name, the time axis, the order of splits, labels without facts, the graph's fingerprint, and the digests of all files.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import polars as pl
import torch
from torch import Tensor

from recollect.errors import UserError, check_process
from recollect.graph.facts import EpisodicGraph
from recollect.graph.runs import Runs, has_runs, split_runs
from recollect.graph.times import TimeAxis
from recollect.graph.vocabulary import Vocabulary
from recollect.io.atomic import existing_folder, explained_errors, read_folder, replaced_folder
from recollect.io.formats import FORMATS
from recollect.io.label_tables import EXTRAS, GRAPH, RESTORE, RUNS, digest_of_file, extras_of

__all__ = ["FORMATS", "GRAPH", "check_format", "is_export", "read_graph", "write_graph"]

VERSION = 1
_SPLIT_NAME = re.compile(r"(?!(?:entity2id|relation2id|time2id|stat)$)[A-Za-z0-9_-]{1,100}")


def write_graph(
    graph: EpisodicGraph,
    folder: str | Path,
    format: str = "parquet",
    about: Mapping[str, Any] | None = None,
    overwrite: bool = False,
) -> None:
    """Export `graph` to `folder`, in one step; an existing export is replaced only with `overwrite`.

    The entries of `about`, such as where the graph came from, are added to `graph.json`.

    Examples:
        >>> from pathlib import Path
        >>> from tempfile import TemporaryDirectory
        >>> from recollect import dataset, read, write_graph
        >>> graph = dataset("world", countries=4, years=1)
        >>> with TemporaryDirectory() as folder:
        ...     write_graph(graph, Path(folder) / "world", "tsv")
        ...     read(Path(folder) / "world").counts == graph.counts
        True
    """
    check_process()
    folder = Path(folder)
    _check(graph, format)
    with explained_errors(folder, "free some space or choose another place; a graph that was there is unchanged"):
        existing = existing_folder(folder)
        if overwrite and existing.exists() and not is_export(existing):
            raise UserError(f"{folder} exists and is no exported graph, so it is not replaced; choose another place")
        with replaced_folder(folder, overwrite=overwrite) as temporary:
            try:
                FORMATS[format].write(graph, temporary)
                text = _metadata_text(graph, format, temporary, about or {}).encode()
            except UnicodeEncodeError as error:
                raise UserError(
                    f"{graph.name!r} cannot be written as UTF-8 ({error}); rename what holds that"
                ) from error
            (temporary / GRAPH).write_bytes(text)


def read_graph(folder: Path) -> EpisodicGraph:
    """Read the graph that `write_graph` exported to `folder`, and check its fingerprint.

    >>> from tempfile import TemporaryDirectory
    >>> from recollect.graph.facts import Facts
    >>> from recollect.graph.times import TimeAxis
    >>> people, verbs = Vocabulary("entity", ("Ann", "Bob")), Vocabulary("predicate", ("knows",))
    >>> graph = EpisodicGraph(people, verbs, TimeAxis("year", 1999, 3), {"train": Facts.of([(0, 0, 1, 2)])})
    >>> with TemporaryDirectory() as place:
    ...     write_graph(graph, Path(place) / "export", "nquads")
    ...     read_graph(Path(place) / "export").fingerprint == graph.fingerprint
    True
    """
    return read_folder(folder, _read_export)


def check_format(format: str) -> None:
    """Raise UserError for a format that does not exist."""
    if format not in FORMATS:
        raise UserError(f"unknown format {format!r}; choose one of {', '.join(FORMATS)}")


def is_export(folder: Path) -> bool:
    """Return whether a folder holds an exported graph, rather than another tool's graph.json."""
    file = folder / GRAPH
    return file.is_file() and b'"recollect"' in file.read_bytes()


def _read_export(folder: Path) -> EpisodicGraph:
    """Read the graph of a folder that nobody changes meanwhile."""
    try:
        metadata = _read_metadata(folder)
        missing = [name for name in metadata["files"] if not (folder / name).is_file()]
        if missing:
            raise UserError(f"{folder / missing[0]} is missing, so this export is incomplete; {RESTORE}")
        graph = FORMATS[metadata["format"]].read(folder, metadata)
        if graph.fingerprint != metadata["fingerprint"]:
            changed = [name for name, digest in metadata["files"].items() if digest_of_file(folder / name) != digest]
            raise UserError(
                f"{folder / (changed or [GRAPH])[0]}: this was changed after the export, for the facts are not those "
                f"that were exported (their fingerprint differs); {RESTORE}"
            )
    except UserError:
        raise
    except OSError as error:
        raise UserError(
            f"{error.filename or folder}: cannot be read ({error.strerror or error}); let this user read it"
        ) from error
    except (pl.exceptions.PolarsError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise UserError(f"{folder / GRAPH}: no export is like this ({reason}); {RESTORE}") from error
    return graph


def _check(graph: EpisodicGraph, format: str) -> None:
    """Raise UserError for a graph that could not be read back as it is."""
    check_format(format)
    for split, runs in split_runs(graph).items():
        facts = runs.first
        if not _SPLIT_NAME.fullmatch(split):
            raise UserError(f"a split called {split!r} cannot be exported; wanted a word such as train, valid or test")
        if not FORMATS[format].extras and (extras := extras_of(facts)):
            raise UserError(
                f"{format} cannot say the {extras[0]} of a fact, which {split} tells; use rdf-star or parquet"
            )
        if facts.weight is not None and facts.weight.isnan().any():
            raise UserError(f"{split} has a weight that is not a number; wanted numbers from 0")
    for vocabulary in (graph.entities, graph.predicates):
        if vocabulary.labels != Vocabulary.of(vocabulary.kind, vocabulary.labels).labels:
            raise UserError(f"the {vocabulary.kind} labels are not in code point order; make them by Vocabulary.of")


def _metadata_text(graph: EpisodicGraph, format: str, folder: Path, about: Mapping[str, Any]) -> str:
    """Return the content of `graph.json`, with the digests of the files of `folder` and its own."""
    metadata = _metadata(graph, format, folder)
    reserved = sorted({*metadata, "digest"} & about.keys())
    if reserved:
        raise UserError(f"{GRAPH} has an entry {reserved[0]!r} of its own; call yours something else")
    try:
        full = json.loads(json.dumps(metadata | dict(sorted(about.items())), allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise UserError(f"{GRAPH} cannot hold what was given ({error}); give plain text, numbers and lists") from error
    return json.dumps(full | {"digest": _digest(full)}, indent=2, ensure_ascii=False) + "\n"


def _metadata(graph: EpisodicGraph, format: str, folder: Path) -> dict[str, Any]:
    """Return the entries of `graph.json` that describe a graph and the files of `folder`."""
    facts = Runs.concat(split_runs(graph).values()).first
    splits = {}
    for split, part in split_runs(graph).items():
        splits[split] = {"facts": len(part)} | {extra: extra in extras_of(part.first) for extra in EXTRAS}
    return {
        "recollect": VERSION,
        "format": format,
        "name": graph.name,
        "rows": dict(graph.rows),
        "duplicates": graph.duplicates,
        "dropped": dict(graph.dropped),
        "times": asdict(graph.times),
        "splits": splits,
        **({RUNS: True} if has_runs(graph) else {}),
        "unused": {
            "entity": _unused(graph.entities, torch.cat([facts.s, facts.o])),
            "predicate": _unused(graph.predicates, facts.p),
        },
        "fingerprint": graph.fingerprint,
        "files": {str(file.relative_to(folder).as_posix()): digest_of_file(file) for file in _files_of(folder)},
    }


def _files_of(folder: Path) -> list[Path]:
    """Return all files of a folder and of those inside it, in order."""
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _read_metadata(folder: Path) -> dict[str, Any]:
    """Return the content of `graph.json`, after its version, digest, format, time axis and split names are checked."""
    file = folder / GRAPH
    if not file.is_file():
        raise UserError(f"{folder}: not an exported graph, for it has no {GRAPH}; give a folder that has one")
    try:
        metadata = dict(json.loads(file.read_bytes()))
        version, digest = metadata["recollect"], metadata.pop("digest", None)
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise UserError(f"{file}: not readable as the description of a graph; {RESTORE}") from error
    if version != VERSION:
        raise UserError(f"{file}: version {version!r}; this recollect reads version {VERSION}: use a matching one")
    if digest != _digest(metadata):
        raise UserError(f"{file}: the content is not what was exported (its digest differs); {RESTORE}")
    if metadata["format"] not in FORMATS:
        raise UserError(f"{file}: unknown format {metadata['format']!r}; this recollect reads {', '.join(FORMATS)}")
    try:
        TimeAxis.from_dict(metadata["times"])
    except ValueError as error:
        raise UserError(f"{file}: there is no time axis like {metadata['times']}; {RESTORE}") from error
    for split in metadata["splits"]:
        if not _SPLIT_NAME.fullmatch(split):
            raise UserError(f"{file}: no export has a split called {split!r}; {RESTORE}")
    return metadata


def _unused(vocabulary: Vocabulary, ids: Tensor) -> list[str]:
    """Return the labels whose id is not among ids (n,)."""
    counts = torch.bincount(ids, minlength=len(vocabulary))
    return vocabulary.take((counts == 0).nonzero()[:, 0])


def _digest(metadata: Mapping[str, Any]) -> str:
    """Return the SHA-256 of metadata without its own digest."""
    return hashlib.sha256(json.dumps(metadata).encode()).hexdigest()
