"""A damaged or edited export is refused by file and line; it is never read as another graph."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from graph_examples import WITH_EXTRAS, assert_same, example, plain, weighted
from recollect import EpisodicGraph, UserError
from recollect.io.exchange import FORMATS, GRAPH, read_graph, write_graph


def resigned(folder: Path, change: dict) -> None:
    """Change the metadata and correct their digest."""
    about = json.loads((folder / GRAPH).read_bytes())
    del about["digest"]
    about |= change
    digest = hashlib.sha256(json.dumps(about).encode()).hexdigest()
    (folder / GRAPH).write_text(json.dumps(about | {"digest": digest}))


DAY = {"grain": "day", "first": 16430, "size": 4, "step": 1}
TRAIN = {"facts": 2, "value": False, "weight": False}
RESIGNED = {
    "another version": ({"recollect": 2}, "version 2; this recollect reads version 1"),
    "unknown format": ({"format": "xml"}, "unknown format 'xml'; this recollect reads parquet, partitioned, tsv"),
    "no format": ({"format": None}, "unknown format None"),
    "format of another kind": ({"format": []}, "no export is like this"),
    "unknown grain": ({"times": DAY | {"grain": "decade"}}, "there is no time axis like .*decade"),
    "endless times": ({"times": DAY | {"size": 10**18}}, "there is no time axis like"),
    "times beyond the calendar": ({"times": DAY | {"first": 10**12}}, "no export is like this"),
    "other times": ({"times": DAY | {"first": 16429}}, "cannot read '2014-12-29' as the time|fingerprint"),
    "times of another kind": ({"times": 3}, "no export is like this"),
    "a split elsewhere": ({"splits": {"../g/train": TRAIN}}, r"no export has a split called '\.\./g/train'"),
    "a split without file": ({"splits": {"dev": TRAIN}}, "cannot be read|0 facts of dev"),
    "splits of another kind": ({"splits": [1]}, "no export is like this"),
    "no counts": ({"splits": {"train": {}}}, "no export is like this"),
    "files of another kind": ({"files": 3}, "no export is like this"),
    "a missing file": ({"files": {"gone.txt": "x"}}, r"gone\.txt is missing, so this export is incomplete"),
    "unused of another kind": ({"unused": {"entity": [3], "predicate": []}}, "no export is like this"),
    "another label unused": ({"unused": {"entity": ["new"], "predicate": []}}, "fingerprint differs"),
    "another fingerprint": ({"fingerprint": "x"}, r"graph\.json: .*fingerprint differs"),
    "duplicates of another kind": ({"duplicates": "x"}, "no export is like this"),
}


@pytest.mark.parametrize("format", ["parquet", "tsv"])
@pytest.mark.parametrize("case", RESIGNED)
def test_wrong_metadata_with_a_right_digest_are_refused(tmp_path, format, case):
    change, message = RESIGNED[case]
    write_graph(plain(), tmp_path / "g", format)
    resigned(tmp_path / "g", change)
    with pytest.raises(UserError, match=message) as caught:
        read_graph(tmp_path / "g")
    assert str(tmp_path / "g") in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not readable as the description"),
        ("[]", "not readable as the description"),
        ("null", "not readable as the description"),
        ('{"nodes": []}', "not readable as the description"),
        ("[" * 100_000, "not readable as the description"),
        ('{"recollect": 1}', "digest differs"),
    ],
)
def test_other_content_of_graph_json_is_refused(tmp_path, text, message):
    (tmp_path / GRAPH).write_text(text)
    with pytest.raises(UserError, match=rf"graph\.json: .*{message}"):
        read_graph(tmp_path)


@pytest.mark.parametrize("old", ['"name": "plain"', '"duplicates": 0', '"note": "a"'])
def test_edited_metadata_are_refused(tmp_path, old):
    write_graph(plain(), tmp_path / "g", "tsv", {"note": "a"})
    text = (tmp_path / "g" / GRAPH).read_text()
    assert old in text
    (tmp_path / "g" / GRAPH).write_text(text.replace(old, old.replace("a", "b").replace("0", "1")))
    with pytest.raises(UserError, match=r"graph\.json: the content is not what was exported"):
        read_graph(tmp_path / "g")


FIRST, HEADER = "Iran\tConsult\tSyria\t2014-12-26\n", "subject\tpredicate\tobject\ttime\n"
DIFFERS = "this was changed after the export, for .*fingerprint differs"
CHANGED = {
    "edited label": ("tsv", "train.tsv", "Iran", "Iraq", f"train.tsv: {DIFFERS}"),
    "edited id label": ("ids", "entity2id.txt", "Iran", "Iraq", f"entity2id.txt: {DIFFERS}"),
    "edited IRI": ("nquads", "test.nq", "Turkey", "Iran", f"test.nq: {DIFFERS}"),
    "edited value": ("rdf-star", "test.nt", '"true"', '"false"', f"test.nt: {DIFFERS}"),
    "spoiled percent": ("nquads", "train.nq", "Fight%20", "Fight%FF", f"train.nq: {DIFFERS}"),
    "spoiled escape": ("tsv", "train.tsv", "Iran", "Ir\\an", f"train.tsv: {DIFFERS}"),
    "dropped line": ("tsv", "train.tsv", FIRST, "", "train.tsv: 1 facts of train, where graph.json tells 2;"),
    "doubled line": ("tsv", "train.tsv", FIRST, FIRST * 2, "train.tsv: 3 facts of train, where graph.json tells 2;"),
    "junk line": ("tsv", "train.tsv", FIRST, FIRST + "junk\n", "train.tsv, line 3: cannot read 'junk'"),
    "blank line": ("nquads", "train.nq", " .\n", " .\n\n", "train.nq, line 2: cannot read ''"),
    "line ends": ("tsv", "test.tsv", "27\n", "27\r\n", r"test.tsv, line 2: cannot read '2014-12-27\\r' as the time"),
    "no header": ("tsv", "test.tsv", HEADER, "", "test.tsv, line 1: wanted the header"),
    "empty file": ("tsv", "test.tsv", None, "", "test.tsv, line 1: wanted the header"),
    "one more column": ("tsv", "train.tsv", "Iran\t", "Iran\t\t", "train.tsv, line 2: cannot read"),
    "strange time": ("tsv", "train.tsv", "12-29", "12-30", "line 3: cannot read '2014-12-30' as the time"),
    "finer time": ("tsv", "train.tsv", "12-29", "12-29T13", "line 3: cannot read '2014-12-29T13' as the time"),
    "not UTF-8": ("tsv", "train.tsv", "Turkey", b"\xff\xfe", "train.tsv, line 3: not UTF-8"),
    "not an IRI": ("nquads", "train.nq", "urn:recollect:entity:Iran", "Iran", "train.nq, line 1: cannot read '<Iran>"),
    "another kind": ("nquads", "train.nq", "predicate:Fight", "entity:Fight", "train.nq, line 2: cannot read"),
    "spoiled value": ("rdf-star", "test.nt", '"true"', '"1"', "test.nt, line 1: cannot read '1' as the value"),
    "spoiled weight": ("rdf-star", "test.nt", '"2.5"', '"2-5"', "test.nt, line 1: cannot read '2-5' as the weight"),
    "half a fact": ("rdf-star", "test.nt", " .\n<< << ", " .\n<< ", "test.nt, line 1: cannot read"),
    "unknown id": ("ids", "train.txt", "\t2\t", "\t3\t", "train.txt, line 2: cannot read '3' as the object"),
    "no id": ("ids", "train.txt", "\t2\t", "\t-1\t", "train.txt, line 2: cannot read"),
    "other order": ("ids", "entity2id.txt", "Syria\t1", "Syria\t2", "entity2id.txt, line 2: wanted the id 1"),
    "other times": ("ids", "time2id.txt", "12-28", "12-30", "time2id.txt: the times are not those"),
    "fewer labels": ("ids", "relation2id.txt", "Fight with\t1\n", "", "relation2id.txt: 1 labels, which stat.txt"),
    "other sizes": ("ids", "stat.txt", "3\t2\t4", "3\t2\t5", "stat.txt tells otherwise"),
    "no sizes": ("ids", "stat.txt", None, "", "stat.txt tells otherwise"),
    "damaged": ("parquet", "facts.parquet", "PAR1", "PAR2", "facts.parquet: the content is not what was exported"),
    "missing file": ("ids", "stat.txt", None, None, "stat.txt is missing, so this export is incomplete"),
    "missing split": ("tsv", "test.tsv", None, None, "test.tsv is missing, so this export is incomplete"),
}


@pytest.mark.parametrize("case", CHANGED)
def test_a_changed_file_is_refused_by_file_and_line(tmp_path, case):
    form, name, old, new, message = CHANGED[case]
    graph = plain()
    if form == "rdf-star":
        extras = replace(graph.splits["test"], value=torch.tensor([True]), weight=torch.tensor([2.5]))
        graph = graph.with_splits(dict(graph.splits) | {"test": extras})
    write_graph(graph, tmp_path / "g", form)
    file = tmp_path / "g" / name
    old, new = (part.encode() if isinstance(part, str) else part for part in (old, new))
    if new is None:
        file.unlink()
    else:
        content = file.read_bytes()
        assert old is None or old in content
        file.write_bytes(new if old is None else content.replace(old, new, 1))
    with pytest.raises(UserError, match=message) as caught:
        read_graph(tmp_path / "g")
    assert file.name in str(caught.value)
    assert str(tmp_path / "g") in str(caught.value)
    assert "\n" not in str(caught.value)


def test_swapped_lines_are_refused(tmp_path):
    write_graph(weighted([1.0, 2.0]), tmp_path / "g", "rdf-star")
    file = tmp_path / "g" / "train.nt"
    file.write_text("".join(sorted(file.read_text().splitlines(keepends=True))))
    with pytest.raises(UserError, match=r"train\.nt"):
        read_graph(tmp_path / "g")


@pytest.fixture(scope="module")
def exports(tmp_path_factory) -> dict[str, tuple[EpisodicGraph, Path]]:
    """Return a graph and its export in every format."""
    found = {}
    for name in FORMATS:
        graph, folder = example(extras=name in WITH_EXTRAS), tmp_path_factory.mktemp("fuzz") / name
        write_graph(graph, folder, name, {"note": "é"})
        found[name] = graph, folder
    return found


@pytest.mark.parametrize("format", FORMATS)
@settings(max_examples=40)
@given(data=st.data())
def test_damage_is_never_read_as_another_graph(exports, format, data):
    check_damage(*exports[format], data)


@pytest.mark.long
@pytest.mark.parametrize("format", FORMATS)
@settings(max_examples=400)
@given(data=st.data())
def test_damage_is_never_read_as_another_graph_in_a_long_run(exports, format, data):
    check_damage(*exports[format], data)


def check_damage(graph: EpisodicGraph, folder: Path, data: st.DataObject) -> None:
    """Damage a random part of a random file: the export is refused, or still the same graph."""
    file = data.draw(st.sampled_from(sorted(path for path in folder.rglob("*") if path.is_file())))
    content = file.read_bytes()
    start = data.draw(st.integers(0, len(content)))
    end = start + data.draw(st.integers(0, 3) | st.integers(0, len(content) - start))
    new = data.draw(
        st.sampled_from([b"", b"\n", b"\t", b"\\", b"\r", b"0", b"%", content[end:]]) | st.binary(max_size=3)
    )
    try:
        file.write_bytes(content[:start] + new + content[end:])
        assert_same(graph, read_graph(folder))
    except UserError as error:
        assert str(folder) in str(error)
        assert "\n" not in str(error)
    finally:
        file.write_bytes(content)
