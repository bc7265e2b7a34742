"""Every export is read back as the same graph, and the folder of an export is replaced as a whole."""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from graph_examples import ODD, WITH_EXTRAS, assert_same, example, graphs, interval_graphs, plain, weighted
from recollect import EpisodicGraph, Facts, TimeAxis, UserError, Vocabulary, read
from recollect.graph.runs import has_runs
from recollect.graph.times import GRAINS
from recollect.io import exchange
from recollect.io.exchange import FORMATS, GRAPH, read_graph, write_graph


def round_trip(graph: EpisodicGraph, format: str) -> EpisodicGraph:
    """Export a graph and read it back."""
    with tempfile.TemporaryDirectory() as folder:
        write_graph(graph, Path(folder) / "export", format)
        assert [path.name for path in Path(folder).iterdir()] == ["export"]
        return read_graph(Path(folder) / "export")


@pytest.mark.parametrize("format", FORMATS)
@settings(max_examples=12)
@given(data=st.data())
def test_any_graph_is_read_back_as_it_was(format, data):
    graph = data.draw(graphs(extras=format in WITH_EXTRAS))
    assert_same(graph, round_trip(graph, format))


@pytest.mark.parametrize("format", FORMATS)
@settings(max_examples=12)
@given(data=st.data())
def test_any_graph_of_intervals_is_read_back_as_it_was(format, data):
    graph = data.draw(interval_graphs(extras=FORMATS[format].extras))
    again = round_trip(graph, format)
    assert has_runs(again)
    assert_same(graph, again)


@pytest.mark.parametrize(
    ("format", "lines"),
    [
        ("tsv", ["subject\tpredicate\tobject\tstart\tend", "Ann\tleads\tUtopia\t2001-05-04\t2003-01-02"]),
        ("ids", ["0\t0\t1\t0\t608"]),
        (
            "nquads",
            [
                "<urn:recollect:entity:Ann> <urn:recollect:predicate:leads> <urn:recollect:entity:Utopia> "
                "<urn:recollect:time:2001-05-04/2003-01-02> ."
            ],
        ),
        (
            "rdf-star",
            [
                "<< <urn:recollect:entity:Ann> <urn:recollect:predicate:leads> <urn:recollect:entity:Utopia> >> "
                '<urn:recollect:at> "2001-05-04/2003-01-02" .'
            ],
        ),
    ],
)
def test_an_interval_is_one_row_with_its_start_and_the_time_after_its_last(tmp_path, format, lines):
    columns = {"subject": ["Ann"], "predicate": ["leads"], "object": ["Utopia"]}
    graph = read(pl.DataFrame(columns | {"start": ["2001-05-04"], "end": ["2003-01-02"]}))
    write_graph(graph, tmp_path / "export", format)
    [file] = (tmp_path / "export").glob("train.*")
    assert file.read_text().splitlines() == lines


def test_an_exported_table_of_intervals_is_the_same_graph_without_its_description(tmp_path):
    columns = {"subject": ["Ann", "Bob"], "predicate": "leads", "object": "Utopia"}
    graph = read(pl.DataFrame(columns | {"start": ["2001-05-04", "2003-01-02"], "end": ["2003-01-02", "2004-07-01"]}))
    write_graph(graph, tmp_path / "export", "tsv")
    assert_same(read(tmp_path / "export" / "train.tsv", name="table"), graph)


def test_an_end_that_is_not_after_its_start_is_refused(tmp_path):
    columns = {"subject": ["Ann"], "predicate": ["leads"], "object": ["Utopia"]}
    graph = read(pl.DataFrame(columns | {"start": ["2001-05-04"], "end": ["2003-01-02"]}))
    write_graph(graph, tmp_path / "export", "tsv")
    file = tmp_path / "export" / "train.tsv"
    file.write_text(file.read_text().replace("2001-05-04\t2003-01-02", "2003-01-01\t2002-01-02"))
    with pytest.raises(UserError, match=r"train.tsv, line 2: the end is not after the start"):
        read_graph(tmp_path / "export")


@pytest.mark.long
@pytest.mark.parametrize("format", FORMATS)
@settings(max_examples=150)
@given(data=st.data())
def test_any_graph_is_read_back_as_it_was_in_a_long_run(format, data):
    graph = data.draw(graphs(extras=format in WITH_EXTRAS))
    assert_same(graph, round_trip(graph, format))


@pytest.mark.parametrize("grain", GRAINS)
@pytest.mark.parametrize("format", FORMATS)
def test_every_odd_label_and_grain_is_read_back(format, grain):
    graph = example(grain, extras=format in WITH_EXTRAS)
    assert_same(graph, round_trip(graph, format))


@pytest.mark.parametrize("format", WITH_EXTRAS)
def test_weights_are_read_back_to_the_bit(format):
    bits = torch.randint(-(2**31), 2**31, (20_000,), generator=torch.Generator().manual_seed(0)).to(torch.int32)
    special = torch.tensor([0.0, -0.0, float("inf"), 1e-45, 3.4028235e38, 0.1, 3.0, 1e16, 1e-7, 16777217.0])
    weights = torch.cat([special, bits.view(torch.float32)])
    graph = weighted(weights[~weights.isnan()].tolist())
    assert_same(graph, round_trip(graph, format))


def contents(folder: Path) -> dict[str, bytes]:
    """Return the bytes of every file by its path inside a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("format", FORMATS)
def test_the_same_graph_gives_the_same_bytes(format, tmp_path):
    extras = format in WITH_EXTRAS
    write_graph(example(extras=extras), tmp_path / "one", format, {"b": {"z": 1, "a": [2.5, None]}, "a": "é"})
    write_graph(example(extras=extras), tmp_path / "other", format, {"a": "é", "b": {"z": 1, "a": (2.5, None)}})
    files = contents(tmp_path / "one")
    assert files == contents(tmp_path / "other")
    assert str(tmp_path).encode() not in b"".join(files.values())


def test_the_metadata_describe_the_graph_and_its_files(tmp_path):
    graph = example(extras=True)
    write_graph(graph, tmp_path / "g", "tsv", {"recipe": {"name": "icews"}})
    text = (tmp_path / "g" / GRAPH).read_text(encoding="utf-8")
    about = json.loads(text)
    assert text == json.dumps(about, indent=2, ensure_ascii=False) + "\n"
    files, digest = about.pop("files"), about.pop("digest")
    assert len(digest) == 64
    assert files == {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted((tmp_path / "g").iterdir())
        if path.name != GRAPH
    }
    assert sorted(files) == ["test.tsv", "train.tsv", "valid.tsv"]
    assert about == {
        "recollect": 1,
        "format": "tsv",
        "name": "odd\n🦜",
        "rows": {},
        "duplicates": 7,
        "dropped": {},
        "times": {"grain": "day", "first": 16430, "size": 4, "step": 1},
        "splits": {
            "valid": {"facts": 1, "value": False, "weight": False},
            "test": {"facts": 0, "value": False, "weight": False},
            "train": {"facts": len(ODD) - 1, "value": True, "weight": True},
        },
        "unused": {"entity": ["idle"], "predicate": ["idle"]},
        "fingerprint": graph.fingerprint,
        "recipe": {"name": "icews"},
    }
    assert list(about["splits"]) == ["valid", "test", "train"]


def test_read_recognises_an_export_and_takes_no_options_for_it(tmp_path):
    graph = example(extras=True)
    write_graph(graph, tmp_path / "g")
    assert_same(graph, read(tmp_path / "g"))
    assert_same(graph, read(str(tmp_path / "g")))
    for option in (
        {"columns": {"subject": "subject"}},
        {"grain": "day"},
        {"static": True},
        {"inclusive_end": True},
        {"name": "x"},
    ):
        with pytest.raises(UserError, match=r"g: graph\.json tells how to read .* leave out all other options"):
            read(tmp_path / "g", **option)
    (tmp_path / "g" / GRAPH).write_text("{}")
    (tmp_path / "g" / "facts.parquet").unlink()
    with pytest.raises(UserError, match=r"g: no train file here"):  # another tool's graph.json
        read(tmp_path / "g")


def test_an_export_is_replaced_only_on_request_and_other_folders_never(tmp_path):
    write_graph(plain(), tmp_path / "g", "tsv")
    with pytest.raises(UserError, match="g exists; choose another place or overwrite it"):
        write_graph(example(), tmp_path / "g")
    assert_same(plain(), read_graph(tmp_path / "g"))
    write_graph(example(), tmp_path / "g", overwrite=True)
    assert_same(example(), read_graph(tmp_path / "g"))
    assert sorted(path.name for path in (tmp_path / "g").iterdir()) == ["facts.parquet", GRAPH]
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "thesis.txt").write_text("x")
    with pytest.raises(UserError, match="precious exists and is no exported graph"):
        write_graph(plain(), tmp_path / "precious", overwrite=True)
    write_graph(plain(), tmp_path / "new" / "deep" / "g")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["g", "new", "precious"]


@pytest.mark.parametrize("existing", [False, True])
def test_a_failed_export_leaves_the_old_one(tmp_path, monkeypatch, existing):
    if existing:
        write_graph(plain(), tmp_path / "g", "tsv")

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(exchange, "_metadata_text", fail)
    with pytest.raises(UserError, match="g: cannot be written .No space left on device"):
        write_graph(example(), tmp_path / "g", overwrite=True)
    assert [path.name for path in tmp_path.iterdir()] == ["g"] * existing
    if existing:
        assert_same(plain(), read_graph(tmp_path / "g"))


def test_a_failed_rename_restores_the_old_export(tmp_path, monkeypatch):
    write_graph(plain(), tmp_path / "g", "tsv")
    rename = Path.rename

    def fail(self, target):
        if self.name.endswith(".tmp"):
            raise OSError(5, "Input/output error")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", fail)
    with pytest.raises(UserError, match="cannot be written"):
        write_graph(example(), tmp_path / "g", overwrite=True)
    assert [path.name for path in tmp_path.iterdir()] == ["g"]
    assert_same(plain(), read_graph(tmp_path / "g"))


def test_an_export_interrupted_between_its_two_renames_is_read_and_replaced(tmp_path):
    write_graph(plain(), tmp_path / "g", "tsv")
    (tmp_path / "g").rename(tmp_path / ".g.old")
    assert_same(plain(), read_graph(tmp_path / "g"))
    assert_same(plain(), read(tmp_path / "g"))
    write_graph(example(), tmp_path / "g", overwrite=True)
    assert_same(example(), read_graph(tmp_path / "g"))
    assert [path.name for path in tmp_path.iterdir()] == ["g"]


def test_an_interrupted_export_is_not_hidden_from_the_command_line(run, tmp_path):
    write_graph(plain(), tmp_path / "g", "tsv")
    (tmp_path / "g").rename(tmp_path / ".g.old")
    code, out, error = run("data", "show", tmp_path / "g")
    assert code == 0, error
    assert "Fight with" in out
    code, _, error = run("data", "export", "world", "--out", tmp_path / "g")
    assert code == 2
    assert "g exists; choose another --out, or replace it with --force" in error


def test_no_cell_for_a_spreadsheet_is_a_formula(tmp_path):
    labels = ["=1+2", "+1", "-1", "@SUM(A1)", "'quoted", "''twice", "\t=1", "Ann"]
    entities, predicates = Vocabulary.of("entity", labels), Vocabulary.of("predicate", ["=cmd|' /C calc'!A0"])
    facts = Facts.of([(i, 0, i, 0) for i in range(len(labels))])
    graph = EpisodicGraph(entities, predicates, TimeAxis("ordinal", -5, 1), {"train": facts})
    write_graph(graph, tmp_path / "g", "spreadsheet")
    cells = [cell for line in (tmp_path / "g" / "train.tsv").read_text().split("\n") for cell in line.split("\t")]
    assert "'=1+2" in cells
    assert not [cell for cell in cells if cell.startswith(("=", "+", "-", "@"))]
    assert_same(graph, read_graph(tmp_path / "g"))


@pytest.mark.parametrize("format", ["nquads", "ids"])
@pytest.mark.parametrize("extra", ["value", "weight"])
def test_formats_without_values_and_weights_refuse_them(tmp_path, format, extra):
    graph = plain()
    columns = {"value": torch.tensor([True]), "weight": torch.tensor([2.0])}
    graph = graph.with_splits(dict(graph.splits) | {"test": replace(graph.splits["test"], **{extra: columns[extra]})})
    with pytest.raises(UserError, match=f"{format} cannot say the {extra} of a fact, .*use rdf-star or parquet"):
        write_graph(graph, tmp_path / "g", format)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        (
            {},
            {"format": "csv"},
            "unknown format 'csv'; choose one of parquet, partitioned, tsv, spreadsheet, nquads, rdf-star, ids",
        ),
        ({}, {"about": {"name": "x"}}, "has an entry 'name' of its own"),
        ({}, {"about": {"digest": "x"}}, "has an entry 'digest' of its own"),
        ({}, {"about": {"files": []}}, "has an entry 'files' of its own"),
        ({}, {"about": {"report": {1, 2}}}, "cannot hold what was given"),
        ({}, {"about": {"report": float("nan")}}, "cannot hold what was given"),
        ({"splits": {"../up": Facts.of([])}}, {}, r"a split called '\.\./up' cannot be exported"),
        ({"splits": {"": Facts.of([])}}, {}, "a split called '' cannot be exported"),
        ({"splits": {"stat": Facts.of([])}}, {"format": "ids"}, "a split called 'stat' cannot be exported"),
        ({"entities": Vocabulary("entity", ("b", "a", "c"))}, {}, "entity labels are not in code point order"),
        ({"predicates": Vocabulary("predicate", ("a", "a"))}, {}, "predicate labels are not in code point order"),
        ({"entities": Vocabulary.of("entity", ["a", "b", "\ud800"])}, {}, "cannot be written as UTF-8"),
        ({"name": "\ud800"}, {"format": "tsv"}, "cannot be written as UTF-8"),
    ],
)
def test_what_could_not_be_read_back_is_refused(tmp_path, change, options, message):
    with pytest.raises(UserError, match=message) as caught:
        write_graph(replace(plain(), **change), tmp_path / "g", **options)
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_weights_must_be_numbers(tmp_path):
    with pytest.raises(UserError, match="train has a weight that is not a number"):
        write_graph(weighted([1.0, float("nan")]), tmp_path / "g")


def test_folders_that_cannot_be_written_or_read_are_refused(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(UserError, match="cannot be written"):
        write_graph(plain(), tmp_path / "file" / "g")
    with pytest.raises(UserError, match="cannot be written"):
        write_graph(plain(), tmp_path / ("x" * 300))
    for place in ("nothing", "file", "."):
        with pytest.raises(UserError, match=r"not an exported graph, for it has no graph\.json"):
            read_graph(tmp_path / place)


@pytest.mark.parametrize("format", FORMATS)
def test_an_export_may_be_moved(tmp_path, format):
    write_graph(example(), tmp_path / "here", format)
    shutil.move(tmp_path / "here", tmp_path / "there")
    assert_same(example(), read_graph(tmp_path / "there"))
