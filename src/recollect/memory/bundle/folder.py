"""Write and read a bundle: a memory as a folder that is replaced in one step and checked by digests when it is read.

It holds `weights.safetensors`, `memory.json` and a Parquet file each for entities, predicates, times and facts, and may
hold more files of named tensors. The digest of every file is in `memory.json`, which also has its own. Nothing in a
bundle is ever executed, and no number in it is believed: all are checked against the size of the files.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet
import safetensors
import safetensors.torch
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file
from torch import Tensor

from recollect.errors import UserError, check_process
from recollect.graph.facts import KINDS, SLOTS, EpisodicGraph, Facts, check_ids
from recollect.graph.free_memory import free_memory
from recollect.graph.runs import Runs, RunSplits, has_runs, is_canonical, split_runs
from recollect.graph.times import TimeAxis
from recollect.graph.vocabulary import Vocabulary
from recollect.io.atomic import existing_folder, explained_errors, read_folder, replaced_folder
from recollect.io.checkpoint import write_tensors
from recollect.io.label_tables import digest_of_file

FORMAT = 1
TENSORS = ".safetensors"
WEIGHTS, ABOUT = "weights" + TENSORS, "memory.json"
ENTITIES, PREDICATES, TIMES, FACTS = "entities.parquet", "predicates.parquet", "times.parquet", "facts.parquet"
TABLES = (ENTITIES, PREDICATES, TIMES, FACTS)
_FILE_NAME = re.compile(r"[a-z0-9_-]{1,100}\.(?:safetensors|parquet)")

MAPPED_BYTES = 2**20  # a larger file of tensors is memory-mapped: all processes that read it share its pages
MAX_ABOUT_BYTES = 1 << 23  # of memory.json: some 70,000 epochs of history
# what a table may expand to, if that is more than these multiples of its file: graphs have a byte or more per fact
ROWS, ROWS_PER_BYTE = 1 << 20, 4
BYTES, BYTES_PER_BYTE = 1 << 25, 64

_TEXT = pa.dictionary(pa.int32(), pa.string())  # each distinct text is decoded once
_LABEL_COLUMNS = {"label": _TEXT}
LAST = "last"  # the last time of each run, in the facts of a graph of intervals
ONGOING = "ongoing"  # whether it has no end, where there are such runs
_EXTRA_COLUMNS = {"split": _TEXT, "value": pa.bool_(), "weight": pa.float32()}
_FACT_COLUMNS = {**dict.fromkeys(SLOTS, pa.int64()), **_EXTRA_COLUMNS}
_RUN_COLUMNS = {**dict.fromkeys((*SLOTS, LAST), pa.int64()), **_EXTRA_COLUMNS}
_ONGOING_COLUMNS = {**_RUN_COLUMNS, ONGOING: pa.bool_()}
# what the libraries raise for content that no bundle has
_MALFORMED: tuple[type[Exception], ...] = (
    *(safetensors.SafetensorError, pa.ArrowException, OSError),
    *(ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError),
)


@dataclass(frozen=True, eq=False)
class Bundle:
    """The content of a saved memory."""

    weights: Mapping[str, Tensor]  # of the model, by name
    graph: EpisodicGraph
    about: Mapping[str, Any]  # the description, JSON-compatible
    tensors: Mapping[str, Mapping[str, Tensor]] = field(default_factory=dict)  # more files: {"history": {name: tensor}}


def write_bundle(path: Path, bundle: Bundle, *, overwrite: bool = False) -> None:
    """Write a bundle to `path`; an existing one is replaced only with `overwrite`."""
    check_process()
    with explained_errors(path, "free some space or choose another place; a memory that was there is unchanged"):
        existing = existing_folder(path)
        if overwrite and existing.exists() and not (existing / ABOUT).is_file():
            raise UserError(f"{path} exists and is not a memory, so it is not replaced; choose another place")
        with replaced_folder(path, overwrite=overwrite) as temporary:
            _write_files(temporary, bundle)


def read_bundle(path: Path) -> Bundle:
    """Return the content of a bundle, after every digest and number has been checked."""
    check_process()
    about, contents, tensors = read_folder(path, _read_files)
    with malformed_refused(path):
        graph = _parse_graph(contents, about)
        for name, content in contents.items():
            if name.endswith(TENSORS):
                tensors[name.removesuffix(TENSORS)] = safetensors.torch.load(content)
    return Bundle(tensors.pop("weights"), graph, about, tensors)


@contextmanager
def malformed_refused(path: str | Path) -> Iterator[None]:
    """Raise UserError for a bundle whose digests are right and whose content is not, or that is too large."""
    try:
        yield
    except MemoryError as error:
        raise UserError(f"{path}: not enough memory to load this; free some, or use a larger machine") from error
    except _MALFORMED as error:
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise UserError(f"{path}: the memory cannot be read ({reason}); restore it or train again") from error


# -- writing ----------------------------------------------------------------------------------------------------------


def _write_files(folder: Path, bundle: Bundle) -> None:
    """Write all files into an empty folder that no other process uses, then their digests."""
    graph = bundle.graph
    for name, tensors in {"weights": bundle.weights, **bundle.tensors}.items():
        write_tensors(folder / f"{name}{TENSORS}", tensors)
    labels = {ENTITIES: graph.entities.labels, PREDICATES: graph.predicates.labels, TIMES: graph.times.labels}
    for name, column in labels.items():
        _write_table(pl.DataFrame({"label": column}, schema={"label": pl.String}), folder / name)
    frames = [_fact_frame(name, part) for name, part in split_runs(graph).items()]
    facts = pl.concat(frames)
    if not facts[ONGOING].any():
        facts = facts.drop(ONGOING)
    _write_table(facts if has_runs(graph) else facts.drop(LAST), folder / FACTS)
    data = {
        "name": graph.name,
        "fingerprint": graph.fingerprint,
        "duplicates": graph.duplicates,
        "times": asdict(graph.times),
    }
    full = {"format": FORMAT, **bundle.about, "data": data, "splits": list(graph.splits)}
    written = [f"{name}{TENSORS}" for name in ("weights", *sorted(bundle.tensors))]
    full["files"] = {name: digest_of_file(folder / name) for name in (*written, *TABLES)}
    full["digest"] = _digest_of(full)
    text = (json.dumps(full, indent=2, ensure_ascii=False) + "\n").encode("utf-8", "backslashreplace")
    if len(text) > MAX_ABOUT_BYTES:
        raise UserError(
            f"a memory is described by at most {MAX_ABOUT_BYTES:,} bytes; got {len(text):,}: shorten `about`"
        )
    (folder / ABOUT).write_bytes(text)


def _write_table(frame: pl.DataFrame, file: Path) -> None:
    """Write a table compressed, unless it is so regular that it would seem to expand without bounds."""
    frame.write_parquet(file)
    if _expands_too_much(pa.parquet.read_metadata(file), file.stat().st_size):
        pa.parquet.write_table(frame.to_arrow(), file, use_dictionary=False, compression="none", store_schema=False)


def _expands_too_much(declared: pa.parquet.FileMetaData, size: int) -> bool:
    """Return whether a Parquet file of `size` bytes declares more rows or bytes than a table may have."""
    decompressed = sum(declared.row_group(group).total_byte_size for group in range(declared.num_row_groups))
    return declared.num_rows > max(ROWS, ROWS_PER_BYTE * size) or decompressed > max(BYTES, BYTES_PER_BYTE * size)


def _fact_frame(split: str, runs: Runs) -> pl.DataFrame:
    facts = runs.first
    columns: dict[str, Any] = {slot: facts.column(slot).numpy() for slot in SLOTS}
    return pl.DataFrame({**columns, LAST: runs.last.numpy()}).with_columns(
        split=pl.lit(split),
        value=pl.lit(None, pl.Boolean) if facts.value is None else pl.Series(facts.value.numpy()),
        weight=pl.lit(None, pl.Float32) if facts.weight is None else pl.Series(facts.weight.numpy()),
        ongoing=pl.Series(runs.goes_on.numpy()),
    )


# -- reading ----------------------------------------------------------------------------------------------------------


def _read_files(folder: Path) -> tuple[dict[str, Any], dict[str, bytes], dict[str, dict[str, Tensor]]]:
    """Return the description and the bytes of every file that it lists, after their digests have been checked.

    All files are opened before any is read: what is open can be read even if the folder is replaced and deleted. The
    tensors of large files are returned as they are, memory-mapped: their digest is that of what is on disk now.
    """
    with ExitStack() as stack:
        try:
            _check_folder(folder)
            description = stack.enter_context((folder / ABOUT).open("rb"))
            about = _parse_about(folder / ABOUT, description.read(MAX_ABOUT_BYTES + 1))
            opened = {name: stack.enter_context(_open(folder, name)) for name in about["files"]}
            sizes = {name: os.fstat(file.fileno()).st_size for name, file in opened.items()}
            mapped = [name for name, size in sizes.items() if name.endswith(TENSORS) and size > MAPPED_BYTES]
            _check_free_memory(folder, sum(size for name, size in sizes.items() if name not in mapped))
            _check_lengths(folder, mapped)
            contents = {name: file.read() for name, file in opened.items() if name not in mapped}
            with ThreadPoolExecutor() as pool:  # SHA-256 of large files releases the interpreter's lock
                digests = dict(zip(mapped, pool.map(digest_of_file, [folder / name for name in mapped]), strict=True))
                digests |= dict(zip(contents, pool.map(_sha256, contents.values()), strict=True))
        except (OSError, MemoryError) as error:
            reason = getattr(error, "strerror", None) or str(error) or "not enough memory"
            raise UserError(f"{getattr(error, 'filename', None) or folder}: cannot be read ({reason})") from error
    for name, digest in digests.items():
        if digest != about["files"][name]:
            raise UserError(
                f"{folder / name}: the content is not what was saved (its digest differs); restore it or train again"
            )
    with malformed_refused(folder):
        return about, contents, {name.removesuffix(TENSORS): load_file(folder / name) for name in mapped}


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _open(folder: Path, name: str) -> BinaryIO:
    """Open a file of a bundle, which is no device and no pipe."""
    if not (folder / name).is_file():
        raise UserError(f"{folder}: {name} is missing, so this memory is incomplete; restore it or train again")
    return (folder / name).open("rb")


def _check_free_memory(folder: Path, size: int) -> None:
    """Raise UserError if files of `size` bytes cannot be read into the free memory."""
    free = free_memory()
    if size > free:
        raise UserError(f"{folder}: {size:,} bytes, and {free:,} bytes of memory are free; use a larger machine")


def _check_lengths(folder: Path, names: Sequence[str]) -> None:
    """Raise UserError for a file of tensors whose length is not that of its tensors, before its digest is computed."""
    for name in names:
        with malformed_refused(folder), safetensors.safe_open(folder / name, framework="pt"):
            pass


def _check_folder(folder: Path) -> None:
    """Raise UserError for a path that is no bundle."""
    if not folder.is_dir():
        raise UserError(f"{folder}: no such memory; give a directory that `recollect train --out` or Memory.save wrote")
    if not (folder / ABOUT).is_file():
        raise UserError(f"{folder}: not a memory, for it has no {ABOUT}; give a directory that was saved as one")


def _parse_about(file: Path, content: bytes) -> dict[str, Any]:
    """Return the description of a bundle, after its format, its digest and the names of its files are checked."""
    try:
        if len(content) > MAX_ABOUT_BYTES:
            raise ValueError("too long")
        about = dict(json.loads(content))
        given, files = about.pop("digest"), about["files"]
        version, digest = about.get("format"), _digest_of(about)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise UserError(f"{file}: not readable as the description of a memory; restore it or train again") from error
    if version != FORMAT:
        raise UserError(f"{file}: format {version!r}; this version reads format {FORMAT}: use a matching one")
    if given != digest or not isinstance(files, dict):
        raise UserError(f"{file}: the content is not what was saved (its digest differs); restore it or train again")
    if not {WEIGHTS, *TABLES} <= files.keys() or not all(_FILE_NAME.fullmatch(name) for name in files):
        raise UserError(f"{file}: no memory has the files {', '.join(files)[:200]}; restore it or train again")
    return about


def _parse_graph(contents: Mapping[str, bytes], about: Mapping[str, Any]) -> EpisodicGraph:
    """Return the graph of a bundle; raise an error of `_MALFORMED` for anything that no saved graph has."""
    data = about["data"]
    times = TimeAxis.from_dict(data["times"])
    if _row_count(contents[TIMES]) != len(times) or times.labels != _parse_labels(contents[TIMES]):
        raise ValueError("its times are not those it was trained on")
    entities = Vocabulary("entity", tuple(_parse_labels(contents[ENTITIES])))
    predicates = Vocabulary("predicate", tuple(_parse_labels(contents[PREDICATES])))
    sizes = {"entity": len(entities), "predicate": len(predicates), "time": len(times)}
    if not all(sizes.values()):
        raise ValueError("it has no entities, predicates or times")
    runs, is_runs = _parse_facts(contents[FACTS], about["splits"], sizes)
    if not isinstance(data["name"], str) or not isinstance(data["duplicates"], int):
        raise TypeError("its name is no text, or its number of duplicates no number")
    splits = RunSplits(runs, times.grain) if is_runs else {name: part.first for name, part in runs.items()}
    graph = EpisodicGraph(entities, predicates, times, splits, data["name"], data["duplicates"])
    if graph.fingerprint != data["fingerprint"]:
        raise ValueError("its facts are not those it was trained on")
    return graph


def _parse_labels(content: bytes) -> list[str]:
    """Return the labels of a vocabulary, which are distinct."""
    [column] = _parse_table(content, _LABEL_COLUMNS).values()
    if len(column.indices.unique()) < len(column):  # before any label is copied
        raise ValueError("its labels are not distinct")
    return column.to_pylist()


def _parse_facts(content: bytes, splits: Any, sizes: Mapping[str, int]) -> tuple[dict[str, Runs], bool]:
    """Return the runs of each split, all ids checked, and whether they are runs, and not facts of one time each."""
    names = pa.parquet.read_schema(pa.BufferReader(content)).names
    is_runs, has_ongoing = LAST in names, ONGOING in names
    table = _parse_table(content, _ONGOING_COLUMNS if has_ongoing else _RUN_COLUMNS if is_runs else _FACT_COLUMNS)
    ids = torch.from_numpy(np.stack([_numbers(table[slot]) for slot in SLOTS], axis=1))
    last = torch.from_numpy(_numbers(table[LAST]).copy()) if is_runs else ids[:, SLOTS.index("t")]
    ongoing = torch.from_numpy(_numbers(table[ONGOING]).copy()) if has_ongoing else None
    for slot in SLOTS:
        check_ids(slot, ids[:, SLOTS.index(slot)], sizes[KINDS[slot]])
    check_ids("t", last, sizes["time"])
    if not isinstance(splits, list) or not all(isinstance(name, str) for name in splits):
        raise TypeError("its splits are no list of names")
    split_names = table["split"].dictionary.to_pylist()
    found: dict[str, Runs] = {}
    for split in splits:
        rows = np.isin(_numbers(table["split"].indices), [i for i, name in enumerate(split_names) if name == split])
        value, weight = (_optional(table[extra], rows) for extra in ("value", "weight"))
        chosen = torch.from_numpy(rows)
        found[split] = Runs(
            Facts(ids[chosen], value, weight), last[chosen], None if ongoing is None else ongoing[chosen]
        )
        if is_runs and not is_canonical(found[split], sizes):
            raise ValueError(f"the runs of its {split} split overlap, are not in order, or have impossible ends")
    return found, is_runs


def _optional(column: pa.Array, rows: NDArray[np.bool_]) -> Tensor | None:
    """Return the rows of a column that a mask (n,) selects; None if there are none or one of them is null."""
    if column.null_count == len(column):
        return None
    chosen = pl.Series(column).filter(pl.Series(rows))
    return torch.tensor(chosen.to_numpy()) if len(chosen) and not chosen.null_count() else None


def _numbers(column: pa.Array) -> NDArray[Any]:
    """Return a column as an array; through polars, since pyarrow's own conversion imports pandas."""
    return pl.Series(column).to_numpy()


def _row_count(content: bytes) -> int:
    """Return the number of rows that a Parquet file declares."""
    return pa.parquet.read_metadata(pa.BufferReader(content)).num_rows


def _parse_table(content: bytes, columns: Mapping[str, pa.DataType]) -> dict[str, pa.Array]:
    """Return the columns of a Parquet file, which has exactly these; only value and weight may be null.

    What the file declares is compared with its size before anything is decompressed.
    """
    texts = [name for name, kind in columns.items() if kind == _TEXT]
    file = pa.parquet.ParquetFile(pa.BufferReader(content), read_dictionary=texts)
    if _expands_too_much(file.metadata, len(content)):
        raise ValueError(f"a table of {len(content):,} bytes declares {file.metadata.num_rows:,} rows")
    if dict(zip(file.schema_arrow.names, file.schema_arrow.types, strict=True)) != dict(columns):
        raise TypeError(f"a table has the columns {', '.join(file.schema_arrow.names)[:200]}")
    table = file.read(use_threads=False).unify_dictionaries().combine_chunks()
    if table.num_rows != file.metadata.num_rows:
        raise ValueError("a table has fewer rows than it declares")
    for name in columns:
        if name not in ("value", "weight") and table[name].null_count:
            raise ValueError(f"the column {name} has empty cells")
    return {name: _whole(table[name]) for name in columns}


def _whole(column: pa.ChunkedArray) -> pa.Array:
    """Return a column as one array."""
    return column.chunk(0) if column.num_chunks == 1 else pa.array([], type=column.type)


def _digest_of(about: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(about, sort_keys=True, allow_nan=False).encode()).hexdigest()
