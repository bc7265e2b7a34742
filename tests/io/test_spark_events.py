"""Raw events on Spark: the same facts and row accounting as by plain loops, and as on DuckDB."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from test_events import HEADER, RECIPES, agree, gdelt, oracle, random_rows, write

from recollect import UserError
from recollect.io.events import EventRecipe, event_files, on_spark, read_events
from recollect.io.exchange import read_graph, write_graph

pytestmark = pytest.mark.xdist_group("spark")  # one session for all tests of this file


@pytest.fixture(scope="module")
def spark():
    """A Spark session on this machine, which `read_events` finds active."""
    sql = pytest.importorskip("pyspark.sql", reason="PySpark is not installed: pip install 'recollect[spark]'")
    if shutil.which("java") is None:
        pytest.skip("Java is not installed")
    builder = sql.SparkSession.builder.master("local[2]").config("spark.driver.memory", "1g")
    settings = {**on_spark.SETTINGS, "spark.sql.shuffle.partitions": "2", "spark.driver.bindAddress": "127.0.0.1"}
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    yield session
    session.stop()


def odd_files(folder: Path, form: str, seed: int = 0) -> list[Path]:
    """Write files of rows of every kind, with names that are hard to read."""
    dice = random.Random(seed)
    first = [HEADER] if form == "icews" else [gdelt(10**6), gdelt(10**6 + 1, width=57)]
    ends = [("\n", True), ("\r\n", True), ("\n", False)]
    return [
        write(folder / f"{seed} %41 [{i}]{{*}}.csv", [*first, *random_rows(dice, form, 240)], end, last)
        for i, (end, last) in enumerate(ends)
    ]


def check_recipe(folder: Path, form: str, recipe: EventRecipe) -> None:
    if recipe.until == "2012" and form == "icews":
        recipe = EventRecipe(predicates="name", grain="year")
    paths = odd_files(folder, form)
    agree(read_events(paths, recipe, engine="spark"), oracle(paths, recipe, form), recipe)


@pytest.mark.long
@pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES)
@pytest.mark.parametrize("form", ["icews", "gdelt"])
def test_every_recipe_accounts_for_every_row_on_spark(spark, tmp_path, form, recipe):
    check_recipe(tmp_path, form, recipe)


def test_engines_agree_on_rows_that_are_hard_to_read(spark, tmp_path):
    bad = gdelt(2, s="GBR").encode()
    rows = [
        *(gdelt(1), gdelt(2, s="\x01"), gdelt(3, s='"a'), gdelt(4, s="a\x00b"), gdelt(" 5 "), gdelt("\x0b6")),
        *(
            gdelt("7\u2028"),
            gdelt(8, code="042\u2028", root="04"),
            gdelt(9, day="2012/01/05"),
            gdelt(10, day="00000101"),
        ),
        *("\x01", " ", b"\xff", bad.replace(b"GBR NAME", b"\xff"), bad.replace(b"RUS", b"R\xc3"), "x" * 2_000_000),
        *(gdelt(11, day="2012-01-05"), gdelt("99999999999999999999"), gdelt(12, s="🙂"), gdelt(13) + "\tx" * 500),
    ]
    path = write(tmp_path / "a.csv", rows)
    with_mark = tmp_path / "b.csv"
    with_mark.write_bytes(b"\xef\xbb\xbf" + gdelt(50, s="FRA").encode() + b"\n")
    empty = write(tmp_path / "c.csv", [])
    recipe = EventRecipe(predicates="code", counts=True)
    ours, theirs = (read_events([path, with_mark, empty], recipe, engine=engine) for engine in ("duckdb", "spark"))
    assert (theirs.rows, theirs.dropped, theirs.duplicates) == (ours.rows, ours.dropped, ours.duplicates)
    assert theirs.fingerprint == ours.fingerprint


@pytest.mark.long
def test_names_archives_and_partitions_on_spark(spark, tmp_path):
    part = tmp_path / "raw" / "year=2012" / "month=1"
    part.mkdir(parents=True)
    write(part / "a.csv", [gdelt(1), gdelt(2, code="0311", root="03")])
    with zipfile.ZipFile(tmp_path / "raw" / "b.zip", "w") as archive:
        archive.writestr("b.CSV", gdelt(3, s="GBR"))
    recipe = EventRecipe(predicates="name")
    graphs = [read_events(tmp_path / "raw", recipe, names={"042": "Visit"}, engine=e) for e in ("duckdb", "spark")]
    assert graphs[0].fingerprint == graphs[1].fingerprint
    assert graphs[0].entities.labels == ("GBR", "RUS", "USA")
    assert graphs[1].dropped == graphs[0].dropped == {"unknown event code": 1}


@pytest.mark.long
def test_a_session_that_was_running_goes_on_with_its_settings(spark, tmp_path):
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        read_events(write(tmp_path / "a.csv", [gdelt(1)]), engine="spark")
        assert spark.conf.get("spark.sql.session.timeZone") == "Asia/Tokyo"
        assert spark.range(3).count() == 3
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)
    with pytest.raises(UserError, match=r"Spark is running here at local\[2\]; stop it, or leave out spark://a:7077"):
        read_events(tmp_path / "a.csv", engine="spark", master="spark://a:7077")


def test_what_spark_leaves_out_is_refused(spark, tmp_path):
    with pytest.raises(UserError, match=r"_a\.csv: Spark leaves out files whose name begins with \. or _; rename it"):
        read_events(write(tmp_path / "_a.csv", [gdelt(1)]), engine="spark")
    with pytest.raises(UserError, match=r"a\.zip: a cluster cannot read \.zip; unpack it"):
        on_spark._plain_files([tmp_path / "a.zip"], tmp_path, "spark://host:7077")


def test_engines_that_are_not_here(tmp_path, monkeypatch, run):
    path = write(tmp_path / "a.csv", [gdelt(1)])
    with pytest.raises(UserError, match="unknown engine 'polars'; choose one of duckdb, spark"):
        read_events(path, engine="polars")
    with pytest.raises(UserError, match=r"duckdb has no master; leave out local\[2\], or choose the engine spark"):
        read_events(path, master="local[2]")
    code, _, err = run("data", "build", path, "--engine", "polars", "--out", tmp_path / "g")
    assert (code, "unknown engine 'polars'" in err) == (2, True)
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "pyspark", None)
        with pytest.raises(UserError, match=r"the engine spark needs PySpark, .* pip install 'recollect\[spark\]'"):
            read_events(path, engine="spark")
    pytest.importorskip("pyspark")
    for name, value in {"JAVA_HOME": str(tmp_path), "PATH": str(tmp_path)}.items():
        monkeypatch.setenv(name, value)
        with pytest.raises(UserError, match="the engine spark needs Java 17 or newer, which is not here"):
            read_events(path, engine="spark")
        monkeypatch.delenv("JAVA_HOME", raising=False)


def test_partitions_of_a_folder_are_read_and_other_folders_are_not(tmp_path):
    for place in ("year=2012/month=01", "year=2013", "old"):
        (tmp_path / place).mkdir(parents=True)
        write(tmp_path / place / "a.csv", [gdelt(1)])
    assert [str(path.relative_to(tmp_path)) for path in event_files([tmp_path])] == [
        "year=2012/month=01/a.csv",
        "year=2013/a.csv",
    ]


def test_a_partitioned_export_has_a_folder_per_split_and_year(tmp_path):
    path = write(tmp_path / "a.csv", [gdelt(1), gdelt(2, day="20130105"), gdelt(3, s="GBR")])
    graph = read_events(path)
    write_graph(graph, tmp_path / "g", "partitioned", {"recipe": {"actors": "country"}})
    files = sorted(str(file.relative_to(tmp_path / "g")) for file in (tmp_path / "g").rglob("*.parquet"))
    assert files == ["split=train/year=2012/facts.parquet", "split=train/year=2013/facts.parquet"]
    about = json.loads((tmp_path / "g" / "graph.json").read_text())
    assert (about["rows"], about["recipe"]) == ({"train": 3}, {"actors": "country"})
    assert read_graph(tmp_path / "g").fingerprint == graph.fingerprint


@pytest.mark.long
def test_real_events_give_one_graph_on_both_engines_by_the_command_line(real_data, tmp_path):
    """Raw ICEWS and GDELT files: DuckDB and Spark local[2] write the same facts, counts and reasons."""
    pytest.importorskip("pyspark")
    for name, pattern in (("icews", "icews-raw/*.tab"), ("gdelt", "gdelt-raw/*.CSV")):
        abouts = []
        for engine in (["duckdb"], ["spark", "--master", "local[2]"]):
            out = tmp_path / f"{name}-{engine[0]}"
            words = ["data", "build", str(real_data / pattern), "--out", str(out), "--engine", *engine, "--json"]
            done = subprocess.run(
                [sys.executable, "-m", "recollect", *words, "--format", "partitioned"],
                capture_output=True,
                text=True,
                env=os.environ | {"SPARK_LOCAL_IP": "127.0.0.1"},
            )
            assert done.returncode == 0, done.stderr[-2000:]
            abouts.append({key: value for key, value in json.loads(done.stdout).items() if key != "out"})
        assert abouts[0] == abouts[1]
        assert abouts[0]["facts"] == {"icews": 40_793, "gdelt": 313}[name]
