"""Questions after the last time: intervals without an end are stored then, everything else is predicted or unknown."""

from __future__ import annotations

import io
import json

import polars as pl
import pytest

from recollect import Memory, Recipe, UserError, load, read
from recollect.errors import DataWarning

LATER = ["1990-07", "1995", "2005-01-15", "2005", "2005..2007", "2030-Q2"]


def members(ended: bool = False) -> pl.DataFrame:
    """Members of clubs by month, of whom the newest of each club have not left."""
    rows = []
    for club in ("Chess", "Rowing"):
        for i in range(6):
            left = None if i == 5 and not ended else f"{1981 + i}-06"
            rows.append((f"{club} {i}", "member of", club, f"{1980 + i}-06", left))
    return pl.DataFrame(rows, schema=["subject", "predicate", "object", "start", "end"], orient="row")


@pytest.fixture(scope="module")
def memory() -> Memory:
    return Memory.learn(read(members()), model="history")


@pytest.fixture(scope="module")
def without_forecasts() -> Memory:
    return Memory.learn(read(members()), model="distmult", dim=2, history=False, recipe=Recipe(epochs=1))


def ask(memory: Memory, time: str, **options) -> list[tuple]:
    found = memory.recall(predicate="member of", object="Chess", time=time, **options)
    return found.select("subject", "probability", "status").rows()


@pytest.mark.parametrize("time", LATER)
def test_an_interval_without_an_end_is_stored_at_any_later_time(without_forecasts, time):
    assert ask(without_forecasts, time, include="stored") == [("Chess 5", 1.0, "stored")]
    known = without_forecasts.know(as_of=time, include="stored")
    assert set(known["subject"]) == {"Chess 5", "Rowing 5"}
    assert set(known["probability"]) == {1.0}


def test_what_is_predicted_follows_as_far_as_forecasts_reach(memory):
    found = ask(memory, "1987-01", top=4)
    assert found[0] == ("Chess 5", 1.0, "stored")
    assert {status for *_, status in found[1:]} == {"predicted"}
    assert "Chess 5" not in {name for name, *_ in found[1:]}
    known = memory.know(as_of="1987-01", top=6)
    assert known["status"].to_list() == ["stored"] * 2 + ["predicted"] * (known.height - 2)
    assert not known.filter(status="predicted")["subject"].is_in(["Chess 5", "Rowing 5"]).any()
    assert set(memory.know(as_of="1987-01", include="predicted")["status"]) == {"predicted"}
    facts = {"subject": ["Chess 5", "Chess 1"], "predicate": ["member of"] * 2, "object": ["Chess"] * 2}
    assert memory.probability(facts | {"time": ["1987-01"] * 2})["status"].to_list() == ["stored", "predicted"]


def test_farther_times_have_stored_answers_and_a_warning(memory, without_forecasts):
    for each, time in ((memory, "2040"), (without_forecasts, "1987-01"), (without_forecasts, "1987")):
        with pytest.warns(DataWarning, match="farther than this memory can forecast; only stored intervals without an"):
            assert ask(each, time) == [("Chess 5", 1.0, "stored")]
        with pytest.warns(DataWarning, match="only stored intervals without an end are answers"):
            assert set(each.know(as_of=time)["subject"]) == {"Chess 5", "Rowing 5"}
    fact = {"subject": ["Chess 5"], "predicate": ["member of"], "object": ["Chess"], "time": ["2040-01"]}
    assert without_forecasts.probability(fact).rows()[0][4:] == (None, 1.0, "stored")
    with pytest.raises(UserError, match="time '2040-01' is after the last, 1985-06, and this memory cannot forecast"):
        without_forecasts.probability(fact | {"subject": ["Chess 1"]})


def test_the_time_of_an_answer_about_a_later_period(memory):
    found = memory.recall(predicate="member of", object="Chess", time="1986", top=3)
    assert found.columns == ["subject", "time", "score", "probability", "status"]
    assert found["time"].to_list() == ["1986-12", "1986-01", "1986-01"]
    range_ = memory.recall(predicate="member of", object="Chess", time="1986-02..1986-04", include="stored")
    assert range_["time"].to_list() == ["1986-04"]


def test_without_open_intervals_later_periods_are_forecast_or_refused():
    memory = Memory.learn(read(members(ended=True)), model="history")
    found = memory.recall(predicate="member of", object="Chess", time="1987", top=3)
    assert set(found["status"]) == {"predicted"}
    assert set(found["time"]) == {"1987-01"}
    with pytest.raises(
        UserError, match="'2040' is not on this axis; it runs from 1980-06 to 1986-05, and forecasts rea"
    ):
        memory.recall(predicate="member of", object="Chess", time="2040")
    with pytest.raises(UserError, match="is not on this axis; it runs from 1980-06 to 1986-05$"):
        memory.know(as_of="1970")


def test_a_quarter_is_a_period_of_three_months(memory):
    found = memory.recall(predicate="member of", object="Chess", time="1982-Q2", include="stored")
    assert found.select("subject", "time").rows() == [("Chess 2", "1982-06"), ("Chess 1", "1982-05")]


def test_commands_and_the_prompt_answer_after_the_last_time(run, memory, tmp_path, monkeypatch):
    memory.save(tmp_path / "m")
    assert load(tmp_path / "m").know(as_of="1986-01").equals(memory.know(as_of="1986-01"))
    code, shown, _ = run("recall", tmp_path / "m", "--predicate", "member of", "--object", "Chess", "--time", "1986")
    assert (code, "Chess 5" in shown) == (0, True)
    code, shown, said = run("know", tmp_path / "m", "--as-of", "2035", "--object", "Chess", "--json")
    assert (code, [row["subject"] for row in json.loads(shown)]) == (0, ["Chess 5"])
    assert "as of 2035-12, the end of 2035" in said
    assert "farther than this memory can forecast" in said
    monkeypatch.setattr("sys.stdin", io.StringIO("then 1986-03\nwho member of Chess\n"))
    code, shown, _ = run("ask", tmp_path / "m")
    assert (code, "Chess 5" in shown) == (0, True)
