"""The benchmark of tables in files: sizes, control groups, and its figures at a small size."""

from __future__ import annotations

import pytest
import torch

from benchmarks import large_tables
from benchmarks.large_tables import measure_tables, memory_group, parse_bytes
from benchmarks.tables_worker import draw_entities, draw_graph, train
from recollect import UserError


@pytest.mark.parametrize(("text", "size"), [("6GiB", 6 * 2**30), ("1.5 MiB", 3 * 2**19), ("4096", 4096)])
def test_sizes_are_read(text, size):
    assert parse_bytes(text) == size


def test_a_size_that_cannot_be_read_is_refused():
    with pytest.raises(UserError, match="cannot read '6 elephants' as a size; write it like 6GiB"):
        parse_bytes("6 elephants")


def test_a_limit_that_cannot_be_set_is_said(monkeypatch, tmp_path):
    monkeypatch.setattr(large_tables, "GROUPS", tmp_path / "missing")
    with pytest.raises(UserError, match="no memory limit can be set here"), memory_group(2**30):
        pass


def test_a_group_has_its_limit_and_is_removed(monkeypatch, tmp_path):
    monkeypatch.setattr(large_tables, "GROUPS", tmp_path)
    (tmp_path / "memory").mkdir()
    with memory_group(2**30) as (processes, peak):
        assert processes.name == "cgroup.procs"
        assert (peak.parent / "memory.limit_in_bytes").read_text() == str(2**30)
        (peak.parent / "memory.limit_in_bytes").unlink()  # the system removes a group's files with it
    assert list((tmp_path / "memory").iterdir()) == []


def test_zipf_entities_are_unequally_frequent_and_all_over_the_table():
    counts = draw_entities(1000, 20_000, "zipf", torch.Generator().manual_seed(0)).bincount(minlength=1000)
    assert int(counts.max()) > 50 * int(counts.median())
    frequent = counts.argsort(descending=True)[:20]
    assert int(frequent.max() - frequent.min()) > 500
    uniform = draw_entities(1000, 20_000, "uniform", torch.Generator().manual_seed(0)).bincount(minlength=1000)
    assert int(uniform.max()) < 4 * int(uniform.median())


def test_the_worker_trains_in_memory_and_in_files(tmp_path):
    request = {"entities": 5000, "dim": 4, "facts": 2000, "distribution": "zipf", "batch_size": 64, "seconds": 0.1}
    for tables in (None, str(tmp_path)):
        found = train(**request, tables=tables)
        assert found["facts_per_second"] > 0
        assert found["table_bytes"] > 5000 * 4 * 4 * 2
    assert draw_graph(5000, 10, "uniform").entities.labels[4999] == "e4999"


@pytest.mark.long
def test_every_run_has_a_row():
    try:
        rows = list(
            measure_tables(
                entities=20_000, small=2000, dim=4, facts=2000, batch_size=64, limit=2**30, seconds=0.2, folder=None
            )
        )
    except UserError as error:
        pytest.skip(str(error))
    assert [(row["tables"], row["facts"]) for row in rows] == [
        ("memory", "zipf"),
        ("files", "zipf"),
        ("memory", "uniform"),
        ("files", "uniform"),
    ]
