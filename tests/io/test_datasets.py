"""Named datasets: every file format from a small example, views, aggregates, and the sizes of the real ones."""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
from collections import Counter, defaultdict
from pathlib import Path

import numpy as np
import pytest
from scipy.io import savemat

from recollect import UserError, aggregate, dataset, read
from recollect.graph.describe import describe
from recollect.graph.vocabulary import Vocabulary
from recollect.io.datasets import DATASETS
from recollect.io.datasets.derived import VIEWS, country_of
from recollect.io.datasets.download import File, blob_sha1
from recollect.io.datasets.registry import PUBLISHED, Dataset


def labelled(graph, split=None):
    return set(graph.table(graph.facts if split is None else graph.split(split)).rows())


def write_splits(folder: Path, **parts: str) -> dict[str, Path]:
    for name, text in parts.items():
        (folder / f"{name}.txt").write_text(text, encoding="utf-8")
    return {name: folder / f"{name}.txt" for name in parts}


def test_every_entry_has_a_description_and_a_checksum():
    for name, entry in DATASETS.items():
        assert entry.about
        assert entry.licence
        assert entry.source
        for file in entry.files.values():
            assert file.sha256 is None or re.fullmatch("[0-9a-f]{64}", file.sha256)
            assert file.sha1 is None or re.fullmatch("[0-9a-f]{40}", file.sha1)
            assert file.sha256 or file.sha1 or file.rows, f"{name}: nothing to check {file.path} by"
            assert file.url is None or file.url.startswith("https://")
    paths = {file.path: file for entry in DATASETS.values() for file in entry.files.values()}
    assert all(paths[file.path] == file for entry in DATASETS.values() for file in entry.files.values())


def test_read_gdelt500(tmp_path):
    paths = write_splits(
        tmp_path, train="12\t3\t40\t2015-04-01\n", valid="1\t2\t3\t2015-04-02\n", test="1\t2\t3\t2016-03-31\n"
    )
    graph = PUBLISHED["gdelt500"].make(paths)
    assert graph.sizes == {"entity": 4, "predicate": 2, "time": 366}
    assert labelled(graph, "test") == {("1", "2", "3", "2016-03-31")}


def test_read_ids_and_hours(tmp_path):
    paths = write_splits(
        tmp_path, train="2\t8\t26\t0\t0\n2\t8\t26\t0\t0\n", valid="1\t2\t3\t48\t0\n", test="1\t2\t3\t72\t0\n"
    )
    graph = PUBLISHED["icews-500"].make(paths)
    assert graph.times.labels == ["0", "24", "48", "72"]
    assert (graph.rows["train"], len(graph.split("train")), graph.duplicates) == (2, 1, 1)


def test_ids_with_names_and_further_columns(tmp_path):
    paths = write_splits(tmp_path, train="0\t0\t1\t0\t-1\n", valid="1\t0\t0\t24\t-1\n", test="1\t0\t0\t72\t-1\n")
    paths |= {"entity": tmp_path / "e", "predicate": tmp_path / "r"}
    paths["entity"].write_text("B\t1\t1913-##-##\t####-##-##\nA\t0\t####-##-##\t####-##-##\n")
    paths["predicate"].write_text("meets\t0\n")
    graph = PUBLISHED["icews14-forecast"].make(paths)
    assert graph.times.labels == ["0", "24", "48", "72"]
    assert labelled(graph, "train") == {("A", "meets", "B", "0")}
    assert labelled(graph, "test") == {("B", "meets", "A", "72")}


def test_a_list_of_names_without_ids_is_refused(tmp_path):
    paths = write_splits(tmp_path, train="0\t0\t1\t0\t-1\n", valid="1\t0\t0\t24\t-1\n", test="1\t0\t0\t72\t-1\n")
    paths["entity"] = tmp_path / "e"
    paths["entity"].write_text("A\nB\n")
    with pytest.raises(UserError, match="wanted at least 2 tab-separated columns"):
        PUBLISHED["icews14-forecast"].make(paths)


def test_read_counts(tmp_path):
    (tmp_path / "c.tsv").write_text("AFG\t11\tAUL\t2001-08\t1\nAFG\t11\tAUL\t2001-10\t5\n")
    graph = PUBLISHED["icews-country-month"].make({"train": tmp_path / "c.tsv"})
    assert graph.split("train").weight is None
    assert len(graph.times) == 3
    counted = PUBLISHED["icews-country-month"].make({"train": tmp_path / "c.tsv"}, counts=True)
    assert counted.split("train").weight.tolist() == [1, 5]


INTERVALS = {
    "train": "0\t0\t1\t2000-##-##\t2003-##-##\n"  # four years
    "0\t0\t1\t2001-05-##\t2002-##-##\n"  # inside the first
    "1\t1\t0\t2004-02-03\t####-##-##\n"  # still holds
    "1\t0\t0\t####-##-##\t918-##-##\n"  # known at its end
    "0\t1\t1\t2003-##-##\t2001-##-##\n"  # reversed
    "0\t1\t1\t-044-##-##\t2001-##-##\n"  # before Christ
    "0\t1\t1\t1999-##-##\t20##-##-##\n",  # a year that is half known
    "valid": "0\t0\t1\t2003-##-##\t2004-##-##\n",  # 2003 is in train too
    "test": "2\t0\t1\t####-##-##\t####-##-##\n0\t0\t1\t2004-##-##\t2004-##-##\n",  # unknown; 2004 is in valid too
}


@pytest.mark.parametrize("maps", [True, False])
def test_read_intervals(tmp_path, maps):
    paths = write_splits(tmp_path, **INTERVALS)
    a, b, c, p, q = ("A", "B", "C", "P", "Q") if maps else ("0", "1", "2", "0", "1")
    if maps:
        paths |= {"entity": tmp_path / "e", "predicate": tmp_path / "r"}
        paths["entity"].write_text(f"{b}\t1\n{a}\t0\n{c}\t2\n")
        paths["predicate"].write_text(f"{p}\t0\n{q}\t1\n")
    graph = PUBLISHED["wikidata12k"].make(paths)
    assert graph.rows == {"train": 7, "valid": 1, "test": 2}
    assert labelled(graph, "train") == {
        *((a, p, b, f"{y}") for y in (2000, 2001, 2002)),
        (b, q, a, "2004"),
        (b, p, a, "0918"),
    }
    assert labelled(graph, "valid") == {(a, p, b, "2003")}
    assert labelled(graph, "test") == {(a, p, b, "2004")}
    assert graph.dropped == {
        "unreadable year": 2,
        "start after end": 1,
        "neither start nor end known": 1,
        "fact is in a later split too": 2,
    }
    assert graph.duplicates == 2


def test_interval_files_of_another_width_are_refused(tmp_path):
    paths = write_splits(tmp_path, **INTERVALS)
    paths["valid"].write_text("0\t0\t1\t2003\n")
    with pytest.raises(UserError, match=r"valid\.txt: wanted 5 tab-separated columns"):
        PUBLISHED["yago11k"].make(paths)


def test_read_matlab_file(tmp_path):
    ids = np.empty((1, 4), object)
    ids[0, :] = [np.array([[x] for x in column], np.uint8) for column in ([1, 2, 2], [2, 1, 2], [1, 20, 4], [1, 2, 3])]
    dates = np.array(["2012-01-01", "2012-01-08", "2012-01-15", "2012-01-22"])
    savemat(tmp_path / "g.mat", {"id": ids, "actors": np.array(["USA", "AGO"]), "dates": dates, "xi": [1, 2, 3]})
    graph = PUBLISHED["gdelt2012-countries"].make({"train": tmp_path / "g.mat"})
    assert graph.sizes == {"entity": 2, "predicate": 20, "time": 3}
    assert labelled(graph) == {
        ("USA", "01", "AGO", "2012-W01"),
        ("AGO", "20", "USA", "2012-W02"),
        ("AGO", "04", "AGO", "2012-W03"),
    }
    (tmp_path / "bad.mat").write_bytes(b"MATLAB 5.0 but not really" * 20)
    with pytest.raises(UserError, match=r"bad\.mat: not the MATLAB file"):
        PUBLISHED["gdelt2012-countries"].make({"train": tmp_path / "bad.mat"})


def test_read_numpy_archive(tmp_path):
    counts = np.zeros((2, 2, 3, 14), np.int32)
    counts[0, 1, 2, 13], counts[1, 0, 0, 0] = 7, 1
    np.savez(tmp_path / "y.npz", Y=counts, actors=np.array(["United States", "Curaçao"]))
    (tmp_path / "y.npz").rename(tmp_path / "1995-2000-M.dat")
    paths = {"train": tmp_path / "1995-2000-M.dat"}
    assert PUBLISHED["icews-schein"].make(paths).facts.weight is None
    graph = PUBLISHED["icews-schein"].make(paths, counts=True)
    assert dict(zip(graph.table(graph.facts).rows(), graph.facts.weight.tolist(), strict=True)) == {
        ("United States", "03", "Curaçao", "1996-02"): 7,
        ("Curaçao", "01", "United States", "1995-01"): 1,
    }
    np.savez(tmp_path / "named.npz", Y=counts, actors=np.array([b"a", b"b"]), actions=np.array(["X", "Y", "Z"]))
    named = PUBLISHED["icews-schein-2013"].make({"train": tmp_path / "named.npz"})
    assert (named.entities.labels, named.predicates.labels) == (("a", "b"), ("X", "Y", "Z"))


@pytest.mark.parametrize(
    ("arrays", "complaint"),
    [
        ({"Y": np.zeros((2, 2, 1, 1))}, "that can be read safely"),
        ({"Y": np.zeros((2, 3, 1, 1)), "actors": np.array(["a", "b"])}, r"Y has shape \(2, 3, 1, 1\)"),
        ({"Y": np.zeros((2, 2, 1, 1)), "actors": np.array(["a", "a"])}, r"Y has shape \(2, 2, 1, 1\).* 1 actors"),
        ({"Y": np.zeros(3), "actors": np.array(["a", "b"])}, "that can be read safely"),
        ({"Y": np.zeros((2, 2, 1, 1)), "actors": np.array(["a", {}], object)}, "that can be read safely"),
    ],
)
def test_numpy_archives_that_are_refused(tmp_path, arrays, complaint):
    np.savez(tmp_path / "y.npz", **arrays)
    with pytest.raises(UserError, match=complaint):
        PUBLISHED["icews-schein"].make({"train": tmp_path / "y.npz"})


def given_dataset(monkeypatch, folder: Path, text="a\tp\tb\t2014-01-01\na\tp\tb\t2014-01-02\n") -> Dataset:
    """A dataset of one file that is in RECOLLECT_DATA."""
    monkeypatch.setenv("RECOLLECT_DATA", str(folder))
    monkeypatch.setenv("RECOLLECT_CACHE", str(folder / "cache"))
    (folder / "tiny").mkdir(exist_ok=True)
    (folder / "tiny" / "t.txt").write_text(text)
    file = File(path="tiny/t.txt", sha1=blob_sha1(folder / "tiny" / "t.txt"), rows=2)
    entry = Dataset(about="tiny", make=PUBLISHED["icews14"].make, files={"train": file})
    monkeypatch.setitem(DATASETS, "tiny", entry)
    return entry


def test_views_and_names(monkeypatch, tmp_path):
    given_dataset(monkeypatch, tmp_path)
    assert dataset("tiny").name == "tiny"
    assert labelled(dataset("tiny/starts")) == {("a", "p", "b", "2014-01-01")}
    assert dataset("tiny/starts").name == "tiny/starts"
    assert len(dataset("tiny/ends").facts) == 0
    assert dataset("tiny/current").facts.value.tolist() == [True]
    assert len(dataset("tiny/rare").facts) == 2
    with pytest.raises(UserError, match="tiny has no view 'begins'; choose one of rare, starts, ends, current"):
        dataset("tiny/begins")
    with pytest.raises(UserError, match="tiny has no option 'x'; its options: none"):
        dataset("tiny", x=1)


def test_another_variant_is_refused_and_named(monkeypatch, tmp_path):
    given_dataset(monkeypatch, tmp_path)
    (tmp_path / "tiny" / "t.txt").write_text("".join(f"{i}\t3\t7\t{24 * i}\n" for i in range(74_845)))
    with pytest.raises(
        UserError, match=r"tiny/t\.txt.* holds 74,845 rows of 4 columns, ids and hours, like ICEWS14 .*RE-GCN"
    ):
        dataset("tiny")


def test_aggregate_by_loops(small_world):
    graph = small_world
    entities = {label: f"group {len(label) % 3}" for label in graph.entities.labels if len(label) % 4}
    predicates = {label: label.split()[0] for label in graph.predicates.labels if label != "Visits"}
    coarse = aggregate(graph, entities=entities, predicates=predicates, grain="year", until="2000", counts=True)
    counts = Counter()
    for s, p, o, t in graph.table(graph.facts).rows():
        if s in entities and o in entities and p in predicates and t < "2001":
            counts[entities[s], predicates[p], entities[o], t[:4]] += 1
    rows = coarse.table(coarse.facts).rows()
    assert dict(zip(rows, coarse.facts.weight.tolist(), strict=True)) == counts
    assert sum(coarse.rows.values()) == len(coarse.facts) + coarse.duplicates + sum(coarse.dropped.values())
    assert set(coarse.entities.labels) == {x for s, _, o, _ in counts for x in (s, o)}
    assert set(coarse.predicates.labels) == {p for _, p, _, _ in counts}


def test_aggregate_of_weights_and_steps():
    import polars as pl

    rows = {"s": ["a", "b", "a"], "p": ["p"] * 3, "o": ["c"] * 3, "t": [0, 24, 48], "w": [2.0, 3.0, 4.0]}
    graph = read(pl.DataFrame(rows), columns={"weight": "w"})
    merged = aggregate(graph, entities={"a": "x", "b": "x", "c": "c"}, since="24", counts=True)
    assert merged.times.labels == ["24", "48"]
    assert merged.facts.weight.tolist() == [3, 4]


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"grain": "day"}, "months cannot be split by day; choose a coarser grain than month"),
        ({"grain": "decade"}, "unknown grain 'decade'; choose one of year, quarter, month"),
        ({"since": "soon"}, "cannot read 'soon' as a time; wanted a date like"),
        ({"since": "2001", "until": "2000-05"}, "nothing lies between 2001 and 2000-05"),
        ({"since": "2030-01"}, "no time lies between 2030-01 and None; the record runs from 2000-01 to 2001-12"),
        ({"entities": {}}, "no fact of world is left"),
    ],
)
def test_impossible_aggregates_are_refused(small_world, options, complaint):
    with pytest.raises(UserError, match=complaint):
        aggregate(small_world, **options)


def test_countries_of_entities():
    names = ["Police (India)", "India", "Barack Obama", "Ministry (X) (Peru)", "A (b) c", "Peru"]
    assert country_of(Vocabulary.of("entity", names)) == {
        "India": "India",
        "Police (India)": "India",
        "Ministry (X) (Peru)": "Peru",
        "Peru": "Peru",
    }


def test_describe_by_loops(small_world):
    about = describe(small_world)
    rows = labelled(small_world)
    seen = Counter(row[:3] for row in rows)
    months = small_world.times.labels
    times = defaultdict(set)
    for row in rows:
        times[row[:3]].add(months.index(row[3]))
    lengths = []
    for at in times.values():
        for t in at:
            if t - 1 not in at:
                lengths.append(next(n for n in range(1, 99) if t + n not in at))
    assert about["density"] == len(rows) / (about["entities"] ** 2 * about["predicates"] * about["times"])
    assert about["triples"] == len(seen)
    assert about["seen_once"] == pytest.approx(sum(n == 1 for n in seen.values()) / len(rows))
    assert about["starts"] == len(lengths)
    assert about["current"] == sum(len(months) - 1 in at for at in times.values())
    assert about["run_length"]["mean"] == pytest.approx(sum(lengths) / len(lengths))
    assert about["run_length"]["longest"] == max(lengths)
    assert {i + 1: n for i, n in enumerate(about["run_lengths"]) if n} == Counter(lengths)
    assert about["over_time"] == [sum(row[3] == month for row in rows) for month in months]
    busy = Counter(row[1] for row in rows)
    assert about["busiest_predicates"] == dict(sorted(busy.items(), key=lambda x: (-x[1], x[0]))[:5])


# the command line


def test_show_prints_a_chart_and_saves_a_figure(run, tmp_path):
    code, out, _ = run("data", "show", "world", "--figure", tmp_path / "world.png")
    assert code == 0
    assert "facts over time" in out
    assert "█" in out
    assert (tmp_path / "world.png").read_bytes()[:4] == b"\x89PNG"
    code, _, err = run("data", "show", "world", "--figure", tmp_path / "world.xyz")
    assert code == 2
    assert "world.xyz: cannot be drawn" in err
    assert not (tmp_path / "world.xyz").exists()
    assert "none is no folder" in run("data", "show", "world", "--figure", tmp_path / "none" / "w.png")[2]


def test_show_tells_true_from_false(run):
    shown = json.loads(run("data", "show", "world/current", "--json")[1])
    assert shown["true"] == shown["current"] < shown["facts"]["train"]
    assert "False" in run("data", "show", "world/current")[1]


def test_a_dataset_name_comes_before_a_folder(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "world").mkdir()
    (tmp_path / "world" / "train.txt").write_text("a\tp\tb\t2014-01-01\n")
    assert json.loads(run("data", "show", "world", "--json")[1])["entities"] == 243
    assert json.loads(run("data", "show", "./world", "--json")[1])["entities"] == 2


def test_a_missing_data_folder_is_reported(run, monkeypatch, tmp_path):
    monkeypatch.setenv("RECOLLECT_DATA", str(tmp_path / "nowhere"))
    code, _, err = run("data", "show", "icews14")
    assert code == 2
    assert "nowhere', which is no folder; correct it or unset it" in err
    assert run("data", "list")[0] == 0


def test_show_survives_an_ascii_terminal():
    environment = os.environ | {"PYTHONIOENCODING": "ascii", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "recollect", "data", "show", "world"]
    done = subprocess.run(command, capture_output=True, env=environment, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


def test_fetch_says_where_files_are(run, monkeypatch, tmp_path):
    given_dataset(monkeypatch, tmp_path)
    code, out, _ = run("data", "fetch", "tiny", "world", "--json")
    assert code == 0
    assert json.loads(out) == [
        {"dataset": "tiny", "file": "tiny/t.txt", "path": str(tmp_path / "tiny" / "t.txt"), "checked": "sha1"}
    ]
    assert run("data", "show", "tiny/starts", "--json")[0] == 0
    (tmp_path / "tiny" / "t.txt").unlink()
    code, _, err = run("data", "fetch", "tiny")
    assert code == 2
    assert "tiny/t.txt" in err
    assert "RECOLLECT_DATA" in err
    assert run("data", "fetch", "tinny")[0] == 2
    assert {row["name"]: row["here"] for row in json.loads(run("data", "list", "--json")[1])}["tiny"] == "to be given"


def test_build_twice_gives_the_same_bytes(run, tmp_path):
    from test_events import HEADER, icews, random_rows, write

    dice = random.Random(3)
    for i in range(3):
        write(tmp_path / f"{i}.tab", [HEADER, icews(99 + i), *random_rows(dice, "icews", 200)])
    reports = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        code, out, err = run(
            *("data", "build", tmp_path / "*.tab", "--predicates", "code", "--out", tmp_path / name / "g", "--json")
        )
        assert (code, err) == (0, "")
        reports.append(json.loads(out))
    a, b = reports
    assert a["rows"] == a["facts"] + a["duplicates"] + sum(a["dropped"].values())
    assert {k: v for k, v in a.items() if k != "out"} == {k: v for k, v in b.items() if k != "out"}
    files = sorted(path.name for path in (tmp_path / "a" / "g").iterdir())
    assert files == ["facts.parquet", "graph.json"]
    for name in files:
        assert (tmp_path / "a" / "g" / name).read_bytes() == (tmp_path / "b" / "g" / name).read_bytes()
    about = json.loads((tmp_path / "a" / "g" / "graph.json").read_text())
    assert about["recipe"]["predicates"] == "code"
    assert about["fingerprint"] == a["fingerprint"]
    assert str(tmp_path) not in (tmp_path / "a" / "g" / "graph.json").read_text()
    shown = json.loads(run("data", "show", tmp_path / "a" / "g", "--json")[1])
    assert (shown["rows"], shown["dropped"]) == ({"train": a["rows"]}, a["dropped"])
    code, out, _ = run("data", "build", tmp_path / "0.tab", "--out", tmp_path / "a" / "g", "--force")
    assert code == 0
    assert "rows = " in out
    assert "unknown actor" in out


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--actors", "planets"], "unknown actors 'planets'"),
        (["--since", "soon"], "cannot read 'soon' as a time"),
        (["--grain", "hour"], "dated by day"),
        ([], "no event files here"),
    ],
)
def test_builds_that_are_refused(run, tmp_path, words, complaint):
    code, _, err = run("data", "build", tmp_path / "none*.tab", "--out", tmp_path / "g", *words)
    assert code == 2
    assert complaint in err
    assert not (tmp_path / "g").exists()


def test_nothing_is_replaced_without_force(run, tmp_path):
    (tmp_path / "g").mkdir()
    (tmp_path / "g" / "precious").write_text("x")
    (tmp_path / "x.tab").write_text("not even looked at")
    for words in (["build", tmp_path / "x.tab"], ["export", "world"]):
        code, _, err = run("data", *words, "--out", tmp_path / "g")
        assert code == 2
        assert "exists; choose another --out" in err
        code, _, err = run("data", *words, "--out", tmp_path / "g", "--force")
        assert code == 2
        assert "exists and is no graph, so it is not replaced" in err
        code, _, err = run("data", *words, "--out", tmp_path / "x.tab" / "g")
        assert code == 2
        assert "is not a directory; choose another --out" in err
    assert (tmp_path / "g" / "precious").read_text() == "x"


@pytest.mark.parametrize("format", ["parquet", "tsv", "nquads", "rdf-star", "ids"])
def test_export_and_back(run, tmp_path, format):
    code, out, _ = run("data", "export", "world", "--format", format, "--out", tmp_path / "g", "--json")
    assert code == 0
    assert json.loads(out)["fingerprint"] == read(tmp_path / "g").fingerprint == dataset("world").fingerprint


def test_unknown_formats_are_refused(run, tmp_path):
    code, _, err = run("data", "export", "world", "--format", "xls", "--out", tmp_path / "g")
    assert code == 2
    assert "unknown format 'xls'; choose one of parquet, partitioned, tsv, spreadsheet, nquads, rdf-star, ids" in err


# the real ones

HERE = (
    *("icews14", "icews05-15", "wikidata12k", "icews-500", "gdelt2012-countries", "icews-country-month"),
    *("fb15k-237", "nations", "umls", "kinships", "icews14-forecast", "yago-forecast"),
)


@pytest.mark.parametrize("name", HERE)
def test_real_datasets_have_the_published_sizes(real_data, run, name):
    code, out, err = run("data", "show", name, "--json")
    assert code == 0, err
    shown = json.loads(out)
    entry = DATASETS[name]
    assert shown["rows"] == entry.rows
    assert (shown["entities"], shown["predicates"], shown["times"]) == entry.sizes
    if name == "wikidata12k":
        assert shown["dropped"]["start after end"] == 10
    else:
        assert shown["facts"] == shown["rows"]


def test_sizes_in_the_data_folders_readme_equal_the_registry(real_data):
    """The table of the data folder, parsed, against the registry."""
    text = (real_data / "README.md").read_text(encoding="utf-8")
    folders = {file.path.split("/")[0]: entry for entry in PUBLISHED.values() for file in entry.files.values()}
    found = 0
    for line in text.splitlines():
        if match := re.match(
            r"\| `([\w-]+)/` \| ([\d,/ ]+?)(?: cells.*?|, time-ordered)? \| ([\d,]+) × (\d+) × (\S+)", line
        ):
            entry = folders[match[1]]
            assert list(entry.rows.values()) == [int(n.replace(",", "")) for n in match[2].split("/")]
            sizes = [int(n.replace(",", "")) for n in (match[3], match[4])]
            assert list(entry.sizes[:2]) == sizes
            if match[5] != "years":
                assert entry.sizes[2] == int(match[5].replace(",", ""))
            found += 1
    assert found == 6


def test_icews_countries_by_brute_force(real_data):
    """Facts, starts, ends, rare and current of 400 triples, by loops over the published text."""
    import csv

    with (real_data / "cameo" / "cameo-codes.csv").open(encoding="latin-1", newline="") as file:
        roots = {row["name"].casefold(): row["root_code"] for row in csv.DictReader(file)}
    rows = []
    for split in ("train", "valid", "test"):
        text = (real_data / "icews05-15" / f"icews_2005-2015_{split}.txt").read_text(encoding="utf-8")
        rows += [line.split("\t") for line in text.splitlines()]
    place = {}
    for name in {name for row in rows for name in (row[0], row[2])}:
        inner = name.rsplit("(", 1)[1][:-1] if name.endswith(")") and "(" in name else ")"
        place[name] = name if ")" in inner else inner
    inside = {where for name, where in place.items() if name != where}
    facts = {
        (place[s], roots[p.casefold()], place[o], t[:7])
        for s, p, o, t in rows
        if t < "2011" and place[s] in inside and place[o] in inside
    }
    busy = Counter(x for s, _, o, _ in facts for x in (s, o))
    kept = {x for x, _ in sorted(busy.items(), key=lambda item: (-item[1], item[0]))[:258]}
    facts = {fact for fact in facts if fact[0] in kept and fact[2] in kept}
    graph = dataset("icews-countries")
    assert graph.sizes == {"entity": 258, "predicate": 20, "time": 72}
    assert labelled(graph) == facts
    assert abs(len(facts) - 63_600) < 300
    months = [f"{year}-{month:02d}" for year in range(2005, 2011) for month in range(1, 13)]
    at = defaultdict(list)
    for *triple, month in facts:
        at[tuple(triple)].append(months.index(month))
    views = {name: dataset(f"icews-countries/{name}") for name in VIEWS}
    found = {name: defaultdict(list) for name in views}
    for name, view in views.items():
        for *triple, month in view.table(view.facts).rows():
            found[name][tuple(triple)].append(months.index(month))
    true = set(views["current"].table(views["current"].facts.true()).select("subject", "predicate", "object").rows())
    for triple in random.Random(0).sample(sorted(at), 400):
        times = set(at[triple])
        starts = sorted(t for t in times if t - 1 not in times)
        ends = sorted(t for t in times if t + 1 not in times and t != 71)
        assert sorted(found["starts"][triple]) == starts
        assert sorted(found["ends"][triple]) == ends
        assert sorted(found["rare"][triple]) == (sorted(times) if len(times) < 3 else starts)
        assert (triple in true) == (71 in times)
    assert set(found["current"]) == set(at)


def test_cameo_names_for_gdelt(real_data, run, tmp_path):
    words = (real_data / "gdelt-raw" / "*.CSV", "--predicates", "name", "--actors", "name", "--out", tmp_path / "g")
    code, _, err = run("data", "build", *words, "--json")
    assert code == 0, err
    labels = read(tmp_path / "g").predicates.labels
    assert "Make statement" in labels
    assert not any(label.isdecimal() for label in labels)


def test_a_changed_file_of_a_real_dataset_is_refused(real_data, tmp_path, monkeypatch):
    (tmp_path / "icews14").mkdir()
    for split in ("train", "valid", "test"):
        name = f"icews_2014_{split}.txt"
        text = (real_data / "icews14" / name).read_bytes()
        (tmp_path / "icews14" / name).write_bytes(text.replace(b"\n", b"\r\n") if split == "valid" else text)
    monkeypatch.setenv("RECOLLECT_DATA", str(tmp_path))
    with pytest.raises(UserError, match=r"icews_2014_valid\.txt.* 8,941 rows"):
        dataset("icews14")


def test_show_fits_a_screen_of_80_by_24(run):
    code, out, _ = run("data", "show", "world", columns=80)
    lines = out.rstrip("\n").splitlines()
    assert code == 0
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 80
    assert "splits: train 21,232, valid 2,654, test 2,654" in lines
    assert lines[-1] == "Next: recollect train world"
