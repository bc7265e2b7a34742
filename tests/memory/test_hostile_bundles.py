"""A bundle whose digests are right and whose content is hostile is refused before it costs time or memory."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet
import pytest
import safetensors.torch
import torch

from recollect import EpisodicGraph, Facts, Memory, Recipe, TimeAxis, UserError, Vocabulary, dataset, load
from recollect.memory.bundle import folder as bundle
from recollect.memory.bundle.folder import (
    ABOUT,
    ENTITIES,
    FACTS,
    PREDICATES,
    TIMES,
    WEIGHTS,
    Bundle,
    read_bundle,
    write_bundle,
)


@pytest.fixture(scope="module")
def memory() -> Memory:
    graph = dataset("world", countries=4, years=1)
    graph = graph.with_splits({"train": graph.facts})
    return Memory.learn(graph, model="cont", dim=3, time_levels=(1, 2), recipe=Recipe(epochs=1))


@pytest.fixture
def saved(memory, tmp_path) -> Path:
    memory.save(tmp_path / "m")
    return tmp_path / "m"


def sign(saved: Path, **changes: object) -> None:
    """Change the description, and make all digests right."""
    about = json.loads((saved / ABOUT).read_text()) | changes
    del about["digest"]
    if isinstance(about["files"], dict):
        about["files"] = {
            name: bundle.digest_of_file(saved / name) if (saved / name).is_file() else digest
            for name, digest in about["files"].items()
        }
    about["digest"] = bundle._digest_of(about)
    (saved / ABOUT).write_text(json.dumps(about))


def data_of(saved: Path) -> dict:
    return json.loads((saved / ABOUT).read_text())["data"]


def refused(saved: Path, message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        load(saved)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "change",
    [
        {"size": 2**63},
        {"size": 10**7},
        {"size": -1},
        {"size": 12.0},
        {"size": True},
        {"first": 10**400},
        {"first": 2**62},
        {"step": 0},
        {"step": 2**62},
        {"grain": "fortnight"},
        {"grain": []},
        {"labels": []},
    ],
)
def test_a_time_axis_that_no_graph_has_is_refused_at_once(saved, change):
    data = data_of(saved)
    sign(saved, data=data | {"times": data["times"] | change})
    refused(saved, "the memory cannot be read")


@pytest.mark.parametrize("slot", "spot")
@pytest.mark.parametrize("wrong", [-1, 1000, 2**40, -(2**63)])
def test_an_id_without_a_label_is_refused(saved, memory, slot, wrong):
    """The fingerprint is that of the wrong facts."""
    frame = pl.read_parquet(saved / FACTS)
    frame = frame.with_columns(pl.when(pl.int_range(pl.len()) == 0).then(wrong).otherwise(pl.col(slot)).alias(slot))
    frame.write_parquet(saved / FACTS)
    wrong_facts = memory.graph.facts.with_slot(slot, frame[slot].to_torch())
    fingerprint = memory.graph.with_splits({"train": wrong_facts}).fingerprint
    sign(saved, data=data_of(saved) | {"fingerprint": fingerprint})
    refused(saved, "ids must be from 0 to")


@pytest.mark.parametrize(
    "change",
    [
        {"levels": list(range(10_000))},
        {"levels": [0, 2**70]},
        {"levels": 3},
        {"ranks": {"entity": 10**400, "predicate": 3, "time": 3}},
        {"ranks": {"entity": 2**62, "predicate": 2**62, "time": 2**62}},
        {"ranks": []},
        {"calibration": {"o": [10**400, 0]}},
        {"calibration": {"o": [1.0, "nan"]}},
        {"calibration": []},
        {"splits": ["train", "train", {}]},
        {"splits": []},
        {"model": None},
        {"dtype": []},
        {"form": {}},
        {"files": {}},
        {"files": {"../m/weights.safetensors": "x"}},
        {"files": None},
    ],
)
def test_a_description_that_no_memory_has_is_refused(saved, change):
    sign(saved, **change)
    refused(saved, str(saved))


@pytest.mark.parametrize(
    "text",
    [
        '{"a":' * 100_000,
        '{"digest": 1, "files": {}, "x": NaN}',
        '{"x": "' + "x" * bundle.MAX_ABOUT_BYTES + '"}',
        "9" * 9999,
    ],
    ids=["deep", "not a number", "long", "many digits"],
)
def test_text_that_is_no_description_is_refused(saved, text):
    (saved / ABOUT).write_text(text)
    refused(saved, "not readable as the description of a memory")


@pytest.mark.parametrize("name", [ENTITIES, PREDICATES, TIMES, FACTS])
def test_a_table_that_would_fill_the_memory_is_refused(saved, name):
    """Millions of equal rows are a file of some kilobytes."""
    columns = (
        dict.fromkeys("spot", 0) | {"split": "train", "value": True, "weight": 1.0} if name == FACTS else {"label": "x"}
    )
    frame = pl.DataFrame(columns).select(pl.all().repeat_by(5_000_000)).explode(pl.all())
    frame.write_parquet(saved / name)
    sign(saved)
    refused(saved, "its times are not those" if name == TIMES else "declares 5,000,000 rows")


def test_labels_that_are_repeated_are_refused_before_they_are_copied(saved):
    """One label of 500 kB, named 100,000 times, is a file of some kilobytes; the copies would be 50 GB."""
    labels = pa.DictionaryArray.from_arrays(pa.array([0] * 100_000, pa.int32()), ["x" * 500_000])
    pa.parquet.write_table(pa.table({"label": labels}), saved / ENTITIES, compression="zstd", store_schema=False)
    sign(saved)
    refused(saved, "its labels are not distinct")


@pytest.mark.parametrize(
    "columns",
    [
        {"label": [1, 2]},
        {"label": [None, "a"]},
        {"label": [["a"], ["b"]]},
        {"name": ["a", "b"]},
        {"label": ["a", "b"], "more": ["a", "b"]},
        {"label": []},
    ],
)
def test_a_table_of_another_kind_is_refused(saved, columns):
    pl.DataFrame(columns).write_parquet(saved / ENTITIES)
    sign(saved)
    refused(saved, "the memory cannot be read")


def test_facts_of_another_type_are_refused(saved):
    frame = pl.read_parquet(saved / FACTS)
    for column, kind in (("s", pl.UInt64), ("t", pl.Float64), ("split", pl.Int8), ("weight", pl.String)):
        changed = pl.lit(1, kind) if column == "split" else pl.col(column).cast(kind)
        frame.with_columns(changed.alias(column)).write_parquet(saved / FACTS)
        sign(saved)
        refused(saved, "a table has the columns")


@pytest.mark.parametrize("target", ["/dev/zero", "/dev/null", "nowhere"])
def test_a_device_or_a_broken_link_is_no_file_of_a_bundle(saved, target):
    (saved / WEIGHTS).unlink()
    (saved / WEIGHTS).symlink_to(target)
    refused(saved, "weights.safetensors is missing")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this platform has no named pipes")
def test_a_pipe_does_not_block(saved):
    (saved / FACTS).unlink()
    os.mkfifo(saved / FACTS)
    refused(saved, "facts.parquet is missing")


def test_a_file_larger_than_the_free_memory_is_refused(saved):
    os.truncate(saved / FACTS, 1 << 42)  # takes no space on disk
    refused(saved, "bytes of memory are free")


def test_a_file_of_tensors_that_is_longer_than_its_tensors_is_refused_at_once(saved):
    os.truncate(saved / WEIGHTS, 1 << 42)  # to be mapped, not read
    refused(saved, "the memory cannot be read")


def test_weights_of_zero_elements_do_not_hide_a_huge_dim(saved):
    shapes = {name: tuple(tensor.shape) for name, tensor in safetensors.torch.load_file(saved / WEIGHTS).items()}
    weights = {name: torch.zeros(0, *shape[1:-1], 2**40) for name, shape in shapes.items()}
    safetensors.torch.save_file(weights, saved / WEIGHTS)
    empty = pl.DataFrame({"label": []}, schema={"label": pl.String})
    for name in (ENTITIES, PREDICATES):
        empty.write_parquet(saved / name)
    sign(saved, ranks={"entity": 2**40, "predicate": 2**40, "time": 2**40})
    refused(saved, "it has no entities, predicates or times")


def regular_graph() -> EpisodicGraph:
    """Return a graph that compresses to a hundredth of a byte per fact."""
    ids = torch.cartesian_prod(torch.arange(40), torch.arange(20), torch.arange(40), torch.arange(40))
    labels = [f"{i:02}" for i in range(40)]
    entities, predicates = Vocabulary("entity", tuple(labels)), Vocabulary("predicate", tuple(labels[:20]))
    return EpisodicGraph(entities, predicates, TimeAxis("year", 2000, 40), {"train": Facts(ids)})


def test_a_very_regular_graph_is_saved_so_that_it_can_be_loaded(tmp_path):
    graph = regular_graph()
    write_bundle(tmp_path / "m", Bundle({"entity": torch.ones(2)}, graph, {}))
    assert read_bundle(tmp_path / "m").graph.fingerprint == graph.fingerprint
    assert pa.parquet.read_metadata(tmp_path / "m" / FACTS).num_rows > bundle.ROWS


def test_a_name_that_is_no_valid_text_is_saved_and_loaded(tmp_path, memory):
    """A file name that is not UTF-8 reaches Python with lone surrogates."""
    named = Memory(memory.scorer, replace(memory.graph, name="caf\udce9"), memory.calibration, memory.about)
    named.save(tmp_path / "m")
    assert load(tmp_path / "m").graph.name == "caf\udce9"


def test_more_files_of_tensors_are_saved_checked_and_loaded(saved, memory):
    parts = read_bundle(saved)
    rows = torch.arange(6.0).reshape(2, 3)
    more = Bundle(parts.weights, parts.graph, {"model": "cont"}, {"history": {"rows": rows}})
    write_bundle(saved, more, overwrite=True)
    assert torch.equal(read_bundle(saved).tensors["history"]["rows"], rows)
    (saved / "history.safetensors").write_bytes(b"x")
    with pytest.raises(UserError, match="history.safetensors: the content is not what was saved"):
        read_bundle(saved)
