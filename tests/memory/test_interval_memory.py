"""A memory of intervals: read, learned, asked, saved and loaded as runs, without a fact for every day."""

from __future__ import annotations

from unittest.mock import patch

import polars as pl
import pyarrow as pa
import pyarrow.parquet
import pytest
import torch

import recollect
from recollect import Memory, UserError, load, read, split_randomly
from recollect.graph.runs import Runs, RunSplits, has_runs, stored
from recollect.memory.bundle.folder import FACTS
from tests.memory.test_hostile_bundles import refused, sign

LENGTHS = (400, 1500, 2900, 700, 1100)  # days in office
LANDS = ("Utopia", "Laputa", "Brobdingnag", "Erewhon")


def tenures() -> pl.DataFrame:
    """Leaders of four lands, one after the other from 1850 to 1999, the third of every five a second time."""
    rows = []
    for number, land in enumerate(LANDS):
        at, turn = pl.date(1850, 1, 1), 0
        day = pl.select(at).item()
        while day.year < 1999:
            end = day + pl.select(pl.duration(days=LENGTHS[(turn + number) % 5])).item()
            name = f"Leader {number}-{turn - 2 if turn % 5 == 4 else turn}"
            rows.append((name, "leader of", land, day.isoformat(), end.isoformat()))
            day, turn = end, turn + 1
    return pl.DataFrame(rows, schema=["subject", "predicate", "object", "start", "end"], orient="row")


@pytest.fixture(scope="module")
def graph():
    return read(tenures(), name="leaders")


@pytest.fixture(scope="module")
def memory(graph):
    with patch.object(Runs, "expand", side_effect=AssertionError("a run was expanded")):
        return Memory.learn(graph)


@pytest.fixture(autouse=True)
def _expand_nothing(request, monkeypatch):
    """Fail where a run is expanded, but in tests of what needs facts one by one."""
    if "expands" not in request.node.name:
        monkeypatch.setattr(Runs, "expand", lambda *args: pytest.fail("a run was expanded"))


def led(year: int) -> set[tuple[str, str]]:
    """Who led which land at the end of a year, from the table itself."""
    day = f"{year}-12-31"
    held = tenures().filter((pl.col("start") <= day) & (pl.col("end") > day))
    return set(held.select("subject", "object").rows())


def test_intervals_are_learned_as_they_are(graph, memory):
    assert has_runs(graph)
    assert len(stored(graph, "train")) == len(tenures())
    assert memory.models == ()
    assert f"{graph.counts['train']:,} facts" in repr(memory)


def test_who_led_a_land_on_a_day_is_stored_for_every_tenure(memory):
    table = tenures()
    questions = {"predicate": ["leader of"] * len(table), "object": table["object"], "time": table["start"]}
    answers = memory.recall_many(pl.DataFrame(questions), top=1)
    assert answers["subject"].to_list() == table["subject"].to_list()
    assert set(answers["status"]) == {"stored"}
    assert set(answers["probability"]) == {1.0}


def test_the_day_a_tenure_ends_belongs_to_the_next(memory):
    first, second = tenures().rows()[:2]
    found = memory.recall(predicate="leader of", object="Utopia", time=first[4], include="stored")
    assert found["subject"].to_list() == [second[0]]


def test_when_gives_every_day_of_the_tenures_the_newest_first(memory):
    name, _, land, start, end = tenures().rows()[0]
    found = memory.recall(subject=name, predicate="leader of", object=land, include="stored", top=10_000)["time"]
    assert len(found) == LENGTHS[0]
    assert found[-1] == start
    assert found[0] < end


@pytest.mark.parametrize("year", [1860, 1900, 1944, 1998])
def test_what_is_known_is_exactly_what_held_and_nothing_predicted_is_absurd(memory, year):
    found = memory.know(as_of=f"{year}-12-31", top=20)
    held = found.filter(pl.col("status") == "stored")
    assert set(held.select("subject", "object").rows()) == led(year)
    predicted = found.filter(pl.col("status") == "predicted")
    assert predicted["probability"].max() < 0.5
    likely = predicted.filter(pl.col("probability") > 0.01)
    assert not set(likely["subject"]) & set(LANDS)  # a land never led anything
    assert set(likely["object"]) <= set(LANDS)


def test_a_land_is_no_likely_leader(memory):
    found = memory.recall(predicate="leader of", object="Utopia", time="1950-06-01", top=200)
    lands = found.filter(pl.col("subject").is_in(LANDS))
    leaders = found.filter(~pl.col("subject").is_in(LANDS))
    assert lands["probability"].max() < 0.01
    assert lands["score"].max() <= leaders["score"].min()


def test_a_saved_memory_of_intervals_is_loaded_as_it_was(memory, tmp_path):
    memory.save(tmp_path / "m")
    again = load(tmp_path / "m")
    assert has_runs(again.graph)
    assert again.graph.fingerprint == memory.graph.fingerprint
    for question in (
        {"predicate": "leader of", "object": "Laputa"},
        {"subject": "Leader 2-2", "predicate": "leader of"},
    ):
        assert again.recall(**question, time="1900").equals(memory.recall(**question, time="1900"))
    assert again.know(as_of="1900").equals(memory.know(as_of="1900"))
    assert "last" in pl.read_parquet_schema(tmp_path / "m" / FACTS)


@pytest.mark.parametrize(
    "change",
    [
        {"last": pl.lit(-1)},
        {"last": pl.lit(10**6)},
        {"last": pl.col("t") - 1},
        {"last": pl.col("last") + 1000},
        {"last": pl.col("last").cast(pl.Int32)},
        {"last": pl.when(pl.col("t") > 99).then("last")},
        {"t": pl.col("t").reverse()},
    ],
    ids=["negative", "too large", "before the first", "overlapping", "narrow", "null", "unsorted"],
)
def test_hostile_runs_are_refused(memory, tmp_path, change):
    memory.save(tmp_path / "m")
    file = tmp_path / "m" / FACTS
    pl.read_parquet(file).with_columns(**change).write_parquet(file)
    sign(tmp_path / "m")
    refused(tmp_path / "m", "the memory cannot be read")


def test_runs_without_their_last_times_are_not_taken_for_facts(memory, tmp_path):
    memory.save(tmp_path / "m")
    file = tmp_path / "m" / FACTS
    pl.read_parquet(file).drop("last").write_parquet(file)
    sign(tmp_path / "m")
    refused(tmp_path / "m", "its facts are not those it was trained on")


def test_few_bytes_that_declare_many_runs_are_refused(memory, tmp_path):
    memory.save(tmp_path / "m")
    file = tmp_path / "m" / FACTS
    rows = pl.read_parquet(file)[:1]
    many = pl.concat([rows] * 64).to_arrow()
    pa.parquet.write_table(pa.concat_tables([many] * 100_000).combine_chunks(), file, compression="zstd")
    sign(tmp_path / "m")
    refused(tmp_path / "m", "declares 6,400,000 rows|cannot be read")


def test_a_memory_is_evaluated_by_one_fact_of_each_withheld_run(graph):
    split = split_randomly(graph, valid=0.1, test=0.1, seed=1)
    learned = Memory.learn(split)
    result = learned.evaluate("test", slots="so")
    assert result.facts == len(stored(split, "test")) > 0
    assert 0 < result.filtered["object"]["mrr"] <= 1


def test_a_named_model_expands_the_intervals():
    table = tenures().with_columns(pl.col("start", "end").str.slice(0, 4)).filter(pl.col("start") < pl.col("end"))
    years = read(table)
    assert has_runs(years)
    learned = Memory.learn(years, model="distmult", dim=4, recipe=recollect.Recipe(epochs=1))
    assert len(learned.models) == 1
    land = table.row(0, named=True)
    found = learned.recall(predicate="leader of", object=land["object"], time=land["start"], include="stored")
    assert land["subject"] in found["subject"].to_list()


def test_a_named_model_that_expands_more_than_fits_says_what_to_do(graph):
    with patch("psutil.virtual_memory") as memory:
        memory.return_value.available = 10**7
        with pytest.raises(UserError, match=r"the train split at day grain is .* facts, .* use model='history'"):
            Memory.learn(graph, model="distmult", dim=4)


def test_the_command_line_learns_and_asks_intervals(run, tmp_path):
    file = tmp_path / "leaders.csv"
    tenures().write_csv(file)
    _, _, said = run("train", str(file), "--out", str(tmp_path / "m"))
    assert "intervals of" in said
    _, shown, _ = run("data", "show", str(file))
    assert "1850-01-01..1851-02-04" in shown
    _, found, _ = run("recall", str(tmp_path / "m"), "--predicate", "leader of", "--object", "Utopia", "--time", "1850")
    assert "stored" in found


def test_many_days_cost_no_more_than_few():
    table = tenures()
    graph = read(table.with_columns(end=pl.lit("2499-12-31")))
    assert graph.counts["train"] > 5_000_000
    memory = Memory.learn(graph, model="history")
    assert (
        memory.know(as_of="2400-01-01", include="stored", top=500).height
        == table.select("subject", "object").n_unique()
    )
    assert isinstance(graph.splits, RunSplits)
    assert torch.equal(stored(graph, "train").last.unique(), torch.tensor([len(graph.times) - 1]))


def test_an_interval_without_an_end_has_none_after_saving_and_loading(tmp_path):
    last = pl.col("end") == pl.col("end").max().over("object")
    graph = read(tenures().with_columns(end=pl.when(~last).then("end")), name="leaders")
    assert int(stored(graph, "train").goes_on.sum()) == len(LANDS)
    memory = Memory.learn(graph, model="history")
    memory.save(tmp_path / "leaders.memory")
    loaded = load(tmp_path / "leaders.memory")
    assert loaded.graph.fingerprint == graph.fingerprint
    for land in LANDS:
        name, _, _, start, _ = tenures().filter(object=land).sort("start").rows()[-1]
        assert loaded.when(name, "leader of", land).row(0) == (start, None, 1.0, "stored")
    table = pa.parquet.read_table(tmp_path / "leaders.memory" / FACTS)
    flags = pa.array([True] * table.num_rows)
    pa.parquet.write_table(table.set_column(table.column_names.index("ongoing"), "ongoing", flags), tmp_path / "facts")
    (tmp_path / "facts").replace(tmp_path / "leaders.memory" / FACTS)
    sign(tmp_path / "leaders.memory")
    refused(tmp_path / "leaders.memory", "impossible ends")
