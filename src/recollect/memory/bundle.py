"""Write and read a bundle: a memory as a folder that is replaced in one step and checked by digests when it is read.

It holds `weights.safetensors`, `memory.json` and a Parquet file each for entities, predicates, times and facts. The
digest of every file is in `memory.json`, which also has its own. Nothing in a bundle is ever executed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import polars as pl
import safetensors
import safetensors.torch
import torch
from torch import Tensor

from recollect.errors import UserError
from recollect.graph.facts import SLOTS, EpisodicGraph, Facts, Vocabulary
from recollect.graph.times import GRAINS, TimeAxis
from recollect.io.atomic import existing_folder, replaced_folder
from recollect.io.checkpoint import write_tensors
from recollect.io.formats import digest_of_file

FORMAT = 1
WEIGHTS, ABOUT = "weights.safetensors", "memory.json"
ENTITIES, PREDICATES, TIMES, FACTS = "entities.parquet", "predicates.parquet", "times.parquet", "facts.parquet"
TABLES = (ENTITIES, PREDICATES, TIMES, FACTS)


def write_bundle(
    path: Path,
    weights: Mapping[str, Tensor],
    graph: EpisodicGraph,
    about: Mapping[str, Any],
    *,
    overwrite: bool = False,
) -> None:
    """Write a bundle to `path`; an existing one is replaced only with `overwrite`."""
    if overwrite and path.exists() and not (path / ABOUT).is_file():
        raise UserError(f"{path} exists and is not a memory, so it is not replaced; choose another place")
    with replaced_folder(path, overwrite=overwrite) as temporary:
        _write_files(temporary, weights, graph, about)


def read_bundle(path: Path) -> tuple[dict[str, Tensor], EpisodicGraph, dict[str, Any]]:
    """Return weights, graph and description of a bundle, after every digest has been checked."""
    path = existing_folder(path)
    about = _read_about(path)
    for name in (WEIGHTS, *TABLES):
        file = path / name
        if not file.is_file():
            raise UserError(f"{path}: {name} is missing, so this memory is incomplete; restore it or train again")
        if digest_of_file(file) != about["files"].get(name):
            raise UserError(
                f"{file}: the content is not what was saved (its digest differs); restore it or train again"
            )
    try:
        weights = safetensors.torch.load_file(path / WEIGHTS)
        graph = _read_graph(path, about)
    except (
        safetensors.SafetensorError,
        pl.exceptions.PolarsError,
        KeyError,
        TypeError,
        ValueError,
        IndexError,
    ) as error:
        raise UserError(f"{path}: the memory cannot be read ({error}); train again") from error
    return weights, graph, about


def _write_files(folder: Path, weights: Mapping[str, Tensor], graph: EpisodicGraph, about: Mapping[str, Any]) -> None:
    write_tensors(folder / WEIGHTS, weights)
    labels = {ENTITIES: graph.entities.labels, PREDICATES: graph.predicates.labels, TIMES: graph.times.labels}
    for name, column in labels.items():
        pl.DataFrame({"label": column}, schema={"label": pl.String}).write_parquet(folder / name)
    facts = pl.concat([_fact_frame(name, facts) for name, facts in graph.splits.items()])
    facts.write_parquet(folder / FACTS)
    data = {
        "name": graph.name,
        "fingerprint": graph.fingerprint,
        "duplicates": graph.duplicates,
        "times": asdict(graph.times),
    }
    full = {"format": FORMAT, **about, "data": data, "splits": list(graph.splits)}
    full["files"] = {name: digest_of_file(folder / name) for name in (WEIGHTS, *TABLES)}
    full["digest"] = _digest_of(full)
    (folder / ABOUT).write_text(json.dumps(full, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _fact_frame(split: str, facts: Facts) -> pl.DataFrame:
    columns: dict[str, Any] = {slot: facts.column(slot).numpy() for slot in SLOTS}
    return pl.DataFrame(columns).with_columns(
        split=pl.lit(split),
        value=pl.lit(None, pl.Boolean) if facts.value is None else pl.Series(facts.value.numpy()),
        weight=pl.lit(None, pl.Float32) if facts.weight is None else pl.Series(facts.weight.numpy()),
    )


def _read_about(path: Path) -> dict[str, Any]:
    if not path.is_dir():
        raise UserError(f"{path}: no such memory; give a directory that `recollect train --out` or Memory.save wrote")
    file = path / ABOUT
    if not file.is_file():
        raise UserError(f"{path}: not a memory, for it has no {ABOUT}; give a directory that was saved as one")
    try:
        about = json.loads(file.read_text(encoding="utf-8"))
        given, files = about.pop("digest"), about["files"]
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError) as error:
        raise UserError(f"{file}: not readable as the description of a memory; restore it or train again") from error
    if about.get("format") != FORMAT:
        raise UserError(
            f"{file}: format {about.get('format')!r}; this version reads format {FORMAT}: use a matching one"
        )
    if given != _digest_of(about) or not isinstance(files, dict):
        raise UserError(f"{file}: the content is not what was saved (its digest differs); restore it or train again")
    return dict(about)


def _read_graph(path: Path, about: Mapping[str, Any]) -> EpisodicGraph:
    data = about["data"]
    times = TimeAxis(**data["times"])
    if times.grain not in GRAINS or times.labels != _read_labels(path / TIMES):
        raise ValueError("its times are not those it was trained on")
    frame = pl.read_parquet(path / FACTS)
    splits = {name: _read_facts(frame.filter(pl.col("split") == name)) for name in about["splits"]}
    entities = Vocabulary("entity", tuple(_read_labels(path / ENTITIES)))
    predicates = Vocabulary("predicate", tuple(_read_labels(path / PREDICATES)))
    graph = EpisodicGraph(entities, predicates, times, splits, data["name"], data["duplicates"])
    if graph.fingerprint != data["fingerprint"]:
        raise ValueError("its facts are not those it was trained on")
    return graph


def _read_labels(file: Path) -> list[str]:
    return pl.read_parquet(file)["label"].to_list()


def _read_facts(frame: pl.DataFrame) -> Facts:
    columns = [torch.from_numpy(frame[slot].to_numpy(writable=True)) for slot in SLOTS]
    value = weight = None
    if frame.height and frame["value"].null_count() == 0:
        value = torch.tensor(frame["value"].to_list())
    if frame.height and frame["weight"].null_count() == 0:
        weight = torch.from_numpy(frame["weight"].to_numpy(writable=True))
    return Facts(Facts.from_columns(*columns).ids, value, weight)


def _digest_of(about: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(about, sort_keys=True, allow_nan=False).encode()).hexdigest()
