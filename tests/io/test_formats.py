"""Exported files are what other tools expect of their format."""

from __future__ import annotations

import re
from urllib.parse import unquote

import pyarrow.parquet
import pytest
import torch

from graph_examples import ODD, example, plain, weighted
from recollect import read
from recollect.io.exchange import GRAPH, write_graph


def test_parquet_has_a_column_per_slot_and_the_split(tmp_path):
    graph = example(extras=True)
    write_graph(graph, tmp_path / "g")
    table = pyarrow.parquet.read_table(tmp_path / "g" / "facts.parquet")
    assert table.column_names == ["subject", "predicate", "object", "time", "split", "value", "weight"]
    rows = [row for facts in graph.splits.values() for row in graph.table(facts).rows()]
    assert list(zip(*(table[name].to_pylist() for name in table.column_names[:4]), strict=True)) == rows
    assert table["split"].to_pylist() == ["valid"] + ["train"] * (len(ODD) - 1)
    assert table["value"].to_pylist() == [None, *graph.splits["train"].value.tolist()]
    assert table["weight"].to_pylist() == [None, *graph.splits["train"].weight.tolist()]
    write_graph(plain(), tmp_path / "p")
    names = pyarrow.parquet.read_schema(tmp_path / "p" / "facts.parquet").names
    assert names == ["subject", "predicate", "object", "time", "split"]


def test_tsv_has_a_header_and_labels_between_tabs(tmp_path):
    graph = plain()
    write_graph(graph, tmp_path / "g", "tsv")
    assert (tmp_path / "g" / "train.tsv").read_bytes() == (
        b"subject\tpredicate\tobject\ttime\nIran\tConsult\tSyria\t2014-12-26\nSyria\tFight with\tTurkey\t2014-12-29\n"
    )
    for split, facts in graph.splits.items():
        alone = read(tmp_path / "g" / f"{split}.tsv")
        assert alone.table(alone.facts).rows() == graph.table(facts).rows()
    weights = weighted([2.5, float("inf")])
    write_graph(weights, tmp_path / "w", "tsv")
    text = (tmp_path / "w" / "train.tsv").read_text()
    assert text.splitlines()[:2] == ["subject\tpredicate\tobject\ttime\tweight", "Iran\tConsult\tSyria\t0\t2.5"]
    write_graph(weighted([2.5, 4]), tmp_path / "v", "tsv")
    assert read(tmp_path / "v" / "train.tsv", columns={"weight": "weight"}).facts.weight.tolist() == [2.5, 4]


def test_tsv_escapes_only_what_would_break_a_line(tmp_path):
    graph = example()
    write_graph(graph, tmp_path / "g", "tsv")
    lines = (tmp_path / "g" / "train.tsv").read_bytes().decode().split("\n")
    assert [line.count("\t") for line in lines] == [3] * len(ODD) + [0]
    assert not any("\r" in line for line in lines)
    written = {line.split("\t")[0] for line in lines[1:-1]}
    assert {"\u2028", "\x0b", "\x85", "<a> <b> .", '"a"^^<b>', "# a", "\0", "\\t", "a\\tb\\nc\\rd", "\\\\t"} <= written


IRI = r"<([^\x00-\x20<>\"{}|^`\\]*)>"  # the IRIREF of N-Quads, without escapes
LITERAL = rf'"([^"\\\n\r]*)"(?:\^\^{IRI})?'


def labels_of(*iris: str) -> tuple[str, ...]:
    """Return the label at the end of each IRI, after checking the kind before it."""
    parts = [iri.split(":", 3) for iri in iris]
    assert [part[:3] for part in parts] == [
        ["urn", "recollect", kind] for kind in ("entity", "predicate", "entity", "time")[: len(iris)]
    ]
    return tuple(unquote(part[3], errors="strict") for part in parts)


def test_nquads_follow_the_grammar(tmp_path):
    graph = example("hour")
    write_graph(graph, tmp_path / "g", "nquads")
    for split, facts in graph.splits.items():
        content = (tmp_path / "g" / f"{split}.nq").read_bytes()
        assert content.isascii()
        quads = [re.fullmatch(f"{IRI} {IRI} {IRI} {IRI} \\.", line) for line in content.decode().splitlines()]
        assert [labels_of(*quad.groups()) for quad in quads] == graph.table(facts).rows()


@pytest.mark.parametrize(
    ("grain", "label", "kind"),
    [
        ("year", "0999", "gYear"),
        ("month", "2014-12", "gYearMonth"),
        ("week", "2015-W02", None),
        ("day", "2014-12-27", "date"),
        ("hour", "2015-08-19T17", None),
        ("ordinal", "-24", "integer"),
    ],
)
def test_rdf_star_follows_the_grammar(tmp_path, grain, label, kind):
    graph = example(grain, extras=True)
    write_graph(graph, tmp_path / "g", "rdf-star")
    schema = "http://www.w3.org/2001/XMLSchema#"
    fact = rf"<< {IRI} {IRI} {IRI} >> <urn:recollect:at> {LITERAL}"
    lines = (tmp_path / "g" / "train.nt").read_bytes().decode("ascii").splitlines()
    facts, values, weights = lines[0::3], lines[1::3], lines[2::3]
    found = [re.fullmatch(rf"{fact} \.", line).groups() for line in facts]
    train = graph.splits["train"]
    assert [(*labels_of(*row[:3]), row[3]) for row in found] == graph.table(train).rows()
    assert {row[4] for row in found} == {kind and schema + kind}
    assert label in {row[3] for row in found}
    for name, lines, column in (("value", values, train.value), ("weight", weights, train.weight)):
        rows = [re.fullmatch(rf"<< {fact} >> <urn:recollect:{name}> {LITERAL} \.", line).groups() for line in lines]
        assert [row[:5] for row in rows] == found
        assert {row[6] for row in rows} == {schema + {"value": "boolean", "weight": "float"}[name]}
        read_back = [{"true": True, "false": False}[row[5]] if name == "value" else float(row[5]) for row in rows]
        assert torch.equal(torch.tensor(read_back, dtype=column.dtype), column)
    assert (tmp_path / "g" / "valid.nt").read_text().count("\n") == 1


def test_weights_are_written_as_xml_schema_floats(tmp_path):
    write_graph(weighted([float("inf"), 1e16]), tmp_path / "g", "rdf-star")
    text = (tmp_path / "g" / "train.nt").read_text()
    assert '"INF"^^' in text
    assert '"1E+16"^^' in text


def test_id_files_number_labels_and_facts(tmp_path):
    graph = plain()
    write_graph(graph, tmp_path / "g", "ids")
    files = {path.name: path.read_text() for path in (tmp_path / "g").iterdir() if path.name != GRAPH}
    assert files == {
        "entity2id.txt": "Iran\t0\nSyria\t1\nTurkey\t2\n",
        "relation2id.txt": "Consult\t0\nFight with\t1\n",
        "time2id.txt": "2014-12-26\t0\n2014-12-27\t1\n2014-12-28\t2\n2014-12-29\t3\n",
        "stat.txt": "3\t2\t4\n",
        "train.txt": "0\t0\t1\t0\n1\t1\t2\t3\n",
        "test.txt": "2\t1\t1\t1\n",
    }
