"""Every export is read back as the same graph, by others as the same facts, and never as something else."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote

import pyarrow.parquet
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from recollect import EpisodicGraph, Facts, TimeAxis, UserError, Vocabulary, read
from recollect.graph.times import GRAINS
from recollect.io import exchange
from recollect.io.exchange import FORMATS, GRAPH, read_graph, write_graph

ODD = [
    *("", " ", "a", "a b", "0", "-1", "1e5", "2014-12-25", "NaN", "null", "true", "#", "# a", "<", ">", "<a> <b> ."),
    *("%", "%41", "A", "'", '"', '""', '"a"^^<b>', "{subject}", "{}", "urn:recollect:at", "+", "~", "a/b"),
    *("\t", "\n", "\r", "\r\n", "a\tb\nc\rd", "\\", "\\t", "\\\t", "\\\\n", "\\q", "subject\tpredicate"),
    *("\0", "\0\1", "\x01", "\x0b", "\x0c", "\x1c", "\x7f", "\x85", "\u2028", "\u2029", "\ufeff", "\ufeffa"),
    *("é", "e\u0301", "🦜", "\U0010ffff", "\ue000", "Ελλάδα"),
]
AXES = {
    "year": TimeAxis("year", 998, 4),
    "month": TimeAxis("month", 2014 * 12 + 10, 4),
    "week": TimeAxis("week", 2348, 4),
    "day": TimeAxis("day", 16430, 4),
    "hour": TimeAxis("hour", 400_000, 30),
    "ordinal": TimeAxis("ordinal", -48, 4, 24),
}
LABELS = st.one_of(st.sampled_from(ODD), st.text(max_size=5))
AT = st.builds(
    TimeAxis, st.just("ordinal"), st.integers(-(10**16), 10**16), st.integers(1, 9), st.integers(1, 10**6)
) | st.sampled_from(list(AXES.values()))
CAN_SAY_EXTRAS = [name for name in FORMATS if name not in ("nquads", "ids")]


@st.composite
def graphs(draw, extras: bool) -> EpisodicGraph:
    """Graphs of any labels, some of them without facts, with any splits in any order."""
    entities = Vocabulary.of("entity", draw(st.lists(LABELS, min_size=1, max_size=6)))
    predicates = Vocabulary.of("predicate", draw(st.lists(LABELS, min_size=1, max_size=3)))
    times = draw(AT)
    sizes = (len(entities), len(predicates), len(entities), len(times))
    row = st.tuples(*(st.integers(0, size - 1) for size in sizes))
    splits = {}
    for name in draw(st.permutations(["train", "valid", "test", "held-out_2"]))[: draw(st.integers(0, 4))]:
        facts = Facts.of(draw(st.lists(row, max_size=5)))
        n = len(facts)
        if extras and draw(st.booleans()):
            value = draw(st.lists(st.booleans(), min_size=n, max_size=n))
            facts = replace(facts, value=torch.tensor(value, dtype=torch.bool))
        if extras and draw(st.booleans()):
            weight = draw(st.lists(st.floats(width=32, allow_nan=False), min_size=n, max_size=n))
            facts = replace(facts, weight=torch.tensor(weight, dtype=torch.float32))
        splits[name] = facts
    return EpisodicGraph(entities, predicates, times, splits, draw(LABELS), draw(st.integers(0, 9)))


def example(grain: str = "day", extras: bool = False) -> EpisodicGraph:
    """A graph of all odd labels, two of them without facts."""
    entities, predicates = Vocabulary.of("entity", [*ODD, "idle"]), Vocabulary.of("predicate", [*ODD, "idle"])
    used = [i for i, label in enumerate(entities.labels) if label != "idle"]
    rows = [(i, used[-1 - n], used[n // 2], n % 4) for n, i in enumerate(used)]
    splits = {"valid": Facts.of(rows[:1]), "test": Facts.of([]), "train": Facts.of(rows[1:][::-1])}
    if extras:
        weight = torch.rand(len(rows) - 1, generator=torch.Generator().manual_seed(0))
        splits["train"] = replace(splits["train"], weight=weight, value=weight > 0.5)
    return EpisodicGraph(entities, predicates, AXES[grain], splits, "odd\n🦜", 7)


def plain() -> EpisodicGraph:
    """A graph that any tool can read."""
    entities = Vocabulary.of("entity", ["Iran", "Syria", "Turkey"])
    predicates = Vocabulary.of("predicate", ["Consult", "Fight with"])
    splits = {"train": Facts.of([(0, 0, 1, 0), (1, 1, 2, 3)]), "test": Facts.of([(2, 1, 1, 1)])}
    return EpisodicGraph(entities, predicates, AXES["day"], splits, "plain")


def weighed(weights: list[float]) -> EpisodicGraph:
    facts = Facts.of([(0, 0, 1, i) for i in range(len(weights))])
    return replace(
        plain(),
        times=TimeAxis("ordinal", 0, len(weights)),
        splits={"train": replace(facts, weight=torch.tensor(weights))},
    )


def assert_same(one: EpisodicGraph, other: EpisodicGraph) -> None:
    assert one.fingerprint == other.fingerprint
    assert (one.name, one.duplicates, one.times) == (other.name, other.duplicates, other.times)
    assert one.entities.labels == other.entities.labels
    assert one.predicates.labels == other.predicates.labels
    assert list(one.splits) == list(other.splits)
    for a, b in zip(one.splits.values(), other.splits.values(), strict=True):
        assert torch.equal(a.ids, b.ids)
        assert (a.value is None, a.weight is None) == (b.value is None, b.weight is None)
        if a.value is not None:
            assert b.value.dtype == torch.bool
            assert torch.equal(a.value, b.value)
        if a.weight is not None:
            assert torch.equal(a.weight.view(torch.int32), b.weight.view(torch.int32))


def round_trip(graph: EpisodicGraph, format: str) -> EpisodicGraph:
    with tempfile.TemporaryDirectory() as folder:
        write_graph(graph, Path(folder) / "export", format)
        assert [path.name for path in Path(folder).iterdir()] == ["export"]
        return read_graph(Path(folder) / "export")


@pytest.mark.parametrize("format", FORMATS)
@settings(max_examples=60)
@given(data=st.data())
def test_every_graph_comes_back(format, data):
    graph = data.draw(graphs(extras=format in CAN_SAY_EXTRAS))
    assert_same(graph, round_trip(graph, format))


@pytest.mark.parametrize("grain", GRAINS)
@pytest.mark.parametrize("format", FORMATS)
def test_every_odd_label_and_grain_comes_back(format, grain):
    graph = example(grain, extras=format in CAN_SAY_EXTRAS)
    assert_same(graph, round_trip(graph, format))


@pytest.mark.parametrize("format", CAN_SAY_EXTRAS)
def test_weights_come_back_to_the_bit(format):
    bits = torch.randint(-(2**31), 2**31, (20_000,), generator=torch.Generator().manual_seed(0)).to(torch.int32)
    special = torch.tensor([0.0, -0.0, float("inf"), 1e-45, 3.4028235e38, 0.1, 3.0, 1e16, 1e-7, 16777217.0])
    weights = torch.cat([special, bits.view(torch.float32)])
    graph = weighed(weights[~weights.isnan()].tolist())
    assert_same(graph, round_trip(graph, format))


@pytest.mark.parametrize("format", FORMATS)
def test_the_same_graph_gives_the_same_bytes(format, tmp_path):
    extras = format in CAN_SAY_EXTRAS
    write_graph(example(extras=extras), tmp_path / "one", format, {"b": {"z": 1, "a": [2.5, None]}, "a": "é"})
    write_graph(example(extras=extras), tmp_path / "other", format, {"a": "é", "b": {"z": 1, "a": (2.5, None)}})
    files = {path.name: path.read_bytes() for path in (tmp_path / "one").iterdir()}
    assert files == {path.name: path.read_bytes() for path in (tmp_path / "other").iterdir()}
    assert str(tmp_path).encode() not in b"".join(files.values())


def test_the_description(tmp_path):
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


def test_parquet_is_read_by_others(tmp_path):
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


def test_tsv_is_read_by_others(tmp_path):
    graph = plain()
    write_graph(graph, tmp_path / "g", "tsv")
    assert (tmp_path / "g" / "train.tsv").read_bytes() == (
        b"subject\tpredicate\tobject\ttime\nIran\tConsult\tSyria\t2014-12-26\nSyria\tFight with\tTurkey\t2014-12-29\n"
    )
    for split, facts in graph.splits.items():
        alone = read(tmp_path / "g" / f"{split}.tsv")
        assert alone.table(alone.facts).rows() == graph.table(facts).rows()
    weights = weighed([2.5, float("inf")])
    write_graph(weights, tmp_path / "w", "tsv")
    text = (tmp_path / "w" / "train.tsv").read_text()
    assert text.splitlines()[:2] == ["subject\tpredicate\tobject\ttime\tweight", "Iran\tConsult\tSyria\t0\t2.5"]
    write_graph(weighed([2.5, 4]), tmp_path / "v", "tsv")
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
    """The label at the end of each IRI, which tells the kind of the label before."""
    parts = [iri.split(":", 3) for iri in iris]
    assert [part[:3] for part in parts] == [
        ["urn", "recollect", kind] for kind in ("entity", "predicate", "entity", "time")[: len(iris)]
    ]
    return tuple(unquote(part[3], errors="strict") for part in parts)


def test_nquads_are_read_by_others(tmp_path):
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
def test_rdf_star_is_read_by_others(tmp_path, grain, label, kind):
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
    for name, said, told in (("value", values, train.value), ("weight", weights, train.weight)):
        rows = [re.fullmatch(rf"<< {fact} >> <urn:recollect:{name}> {LITERAL} \.", line).groups() for line in said]
        assert [row[:5] for row in rows] == found
        assert {row[6] for row in rows} == {schema + {"value": "boolean", "weight": "float"}[name]}
        read_back = [{"true": True, "false": False}[row[5]] if name == "value" else float(row[5]) for row in rows]
        assert torch.equal(torch.tensor(read_back, dtype=told.dtype), told)
    assert (tmp_path / "g" / "valid.nt").read_text().count("\n") == 1


def test_infinite_weights_are_said_as_xml_schema_has_them(tmp_path):
    write_graph(weighed([float("inf"), 1e16]), tmp_path / "g", "rdf-star")
    text = (tmp_path / "g" / "train.nt").read_text()
    assert '"INF"^^' in text
    assert '"1E+16"^^' in text


def test_id_files_are_read_by_others(tmp_path):
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


def test_read_knows_an_export(tmp_path):
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
    with pytest.raises(UserError, match=r"g: no train file here"):  # another tool's graph.json
        read(tmp_path / "g")


def test_nothing_is_overwritten_unless_asked(tmp_path):
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
def test_a_failed_export_leaves_what_was_there(tmp_path, monkeypatch, existing):
    if existing:
        write_graph(plain(), tmp_path / "g", "tsv")

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(exchange, "_describe", fail)
    with pytest.raises(UserError, match="g: cannot be written .No space left on device"):
        write_graph(example(), tmp_path / "g", overwrite=True)
    assert [path.name for path in tmp_path.iterdir()] == ["g"] * existing
    if existing:
        assert_same(plain(), read_graph(tmp_path / "g"))


def test_a_failed_rename_puts_the_old_export_back(tmp_path, monkeypatch):
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


@pytest.mark.parametrize("format", ["nquads", "ids"])
@pytest.mark.parametrize("extra", ["value", "weight"])
def test_formats_that_cannot_say_value_or_weight_refuse_it(tmp_path, format, extra):
    graph = plain()
    told = {"value": torch.tensor([True]), "weight": torch.tensor([2.0])}[extra]
    graph = graph.with_splits(dict(graph.splits) | {"test": replace(graph.splits["test"], **{extra: told})})
    with pytest.raises(UserError, match=f"{format} cannot say the {extra} of a fact, .*use rdf-star or parquet"):
        write_graph(graph, tmp_path / "g", format)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        ({}, {"format": "csv"}, "unknown format 'csv'; choose one of parquet, tsv, nquads, rdf-star, ids"),
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
def test_what_would_not_come_back_is_refused(tmp_path, change, options, message):
    with pytest.raises(UserError, match=message) as caught:
        write_graph(replace(plain(), **change), tmp_path / "g", **options)
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_weights_must_be_numbers(tmp_path):
    with pytest.raises(UserError, match="train has a weight that is not a number"):
        write_graph(weighed([1.0, float("nan")]), tmp_path / "g")


def test_places_that_cannot_be_written_or_read(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(UserError, match="cannot be written"):
        write_graph(plain(), tmp_path / "file" / "g")
    with pytest.raises(UserError, match="cannot be written"):
        write_graph(plain(), tmp_path / ("x" * 300))
    for place in ("nothing", "file", "."):
        with pytest.raises(UserError, match=r"not an exported graph, for it has no graph\.json"):
            read_graph(tmp_path / place)


def resigned(folder: Path, change: dict) -> None:
    """A description changed by someone who also mended its digest."""
    about = json.loads((folder / GRAPH).read_bytes())
    del about["digest"]
    about |= change
    digest = hashlib.sha256(json.dumps(about).encode()).hexdigest()
    (folder / GRAPH).write_text(json.dumps(about | {"digest": digest}))


DAY = {"grain": "day", "first": 16430, "size": 4, "step": 1}
TRAIN = {"facts": 2, "value": False, "weight": False}
RESIGNED = {
    "another version": ({"recollect": 2}, "version 2; this recollect reads version 1"),
    "unknown format": ({"format": "xml"}, "unknown format 'xml'; this recollect reads parquet, tsv"),
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
def test_a_well_signed_but_wrong_description_is_told(tmp_path, format, case):
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
def test_another_description_is_told(tmp_path, text, message):
    (tmp_path / GRAPH).write_text(text)
    with pytest.raises(UserError, match=rf"graph\.json: .*{message}"):
        read_graph(tmp_path)


@pytest.mark.parametrize("old", ['"name": "plain"', '"duplicates": 0', '"note": "a"'])
def test_an_edited_description_is_told(tmp_path, old):
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
def test_a_changed_file_is_told_by_file_and_line(tmp_path, case):
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


def test_swapped_lines_are_told(tmp_path):
    write_graph(weighed([1.0, 2.0]), tmp_path / "g", "rdf-star")
    file = tmp_path / "g" / "train.nt"
    file.write_text("".join(sorted(file.read_text().splitlines(keepends=True))))
    with pytest.raises(UserError, match=r"train\.nt"):
        read_graph(tmp_path / "g")


@pytest.fixture(scope="module")
def exports(tmp_path_factory) -> dict[str, tuple[EpisodicGraph, Path]]:
    made = {}
    for name in FORMATS:
        graph, folder = example(extras=name in CAN_SAY_EXTRAS), tmp_path_factory.mktemp("fuzz") / name
        write_graph(graph, folder, name, {"note": "é"})
        made[name] = graph, folder
    return made


@pytest.mark.parametrize("format", FORMATS)
@settings(max_examples=300)
@given(data=st.data())
def test_damage_never_passes_for_another_graph(exports, format, data):
    graph, folder = exports[format]
    file = data.draw(st.sampled_from(sorted(folder.iterdir())))
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


@pytest.mark.parametrize("format", FORMATS)
def test_an_export_may_be_moved(tmp_path, format):
    write_graph(example(), tmp_path / "here", format)
    shutil.move(tmp_path / "here", tmp_path / "there")
    assert_same(example(), read_graph(tmp_path / "there"))
