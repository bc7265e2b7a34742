"""Questions about periods: all that is stored at any time of them, and the likeliest of what is not."""

from __future__ import annotations

import calendar
from datetime import date, datetime, timedelta

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recollect import Memory, UserError, read
from recollect.graph.times import TimeAxis, time_bin
from recollect.memory.answering.periods import TIMES, Period, is_period, parse_period

TENURES = [
    ("Ann", "leads", "Arland", "1949-03-01", "1950-02-10"),
    ("Bob", "leads", "Arland", "1950-02-10", "1950-11-01"),
    ("Cid", "leads", "Arland", "1950-11-01", "1951-12-31"),
    ("Dan", "leads", "Borland", "1949-01-01", "1951-12-31"),
    ("Ann", "visits", "Borland", "1950-05-05", "1950-05-06"),
]


@pytest.fixture(scope="module")
def leaders() -> Memory:
    rows = pl.DataFrame(TENURES, schema=["subject", "predicate", "object", "start", "end"], orient="row")
    return Memory.learn(read(rows, grain="day"), model="history")


def days(first: str, size: int) -> TimeAxis:
    return TimeAxis("day", time_bin(first, "day") or 0, size)


@given(st.dates(date(1900, 1, 1), date(2100, 1, 1)), st.integers(1, 1000), st.data())
def test_a_coarser_label_is_every_day_of_its_period(start, size, data):
    axis = days(start.isoformat(), size)
    day = start + timedelta(days=data.draw(st.integers(0, size - 1)))
    for label, inside in (
        (f"{day.year:04d}", lambda each: each.year == day.year),
        (f"{day:%Y-%m}", lambda each: (each.year, each.month) == (day.year, day.month)),
        ("{:04d}-W{:02d}".format(*day.isocalendar()), lambda each: each.isocalendar()[:2] == day.isocalendar()[:2]),
    ):
        wanted = [i for i in range(size) if inside(start + timedelta(days=i))]
        assert parse_period(axis, label) == Period(wanted[0], wanted[-1])


@given(st.integers(0, 99), st.integers(0, 99))
def test_a_range_is_all_times_from_the_first_to_the_last(first, last):
    axis = TimeAxis("ordinal", 0, 50, 2)
    if first > last:
        with pytest.raises(UserError, match="ends before it begins"):
            parse_period(axis, f"{first}..{last}")
        return
    wanted = [i for i in range(50) if first <= 2 * i <= last]
    if wanted:
        assert parse_period(axis, f"{first}..{last}") == Period(wanted[0], wanted[-1])
    else:
        with pytest.raises(UserError, match="is not on this axis"):
            parse_period(axis, f"{first}..{last}")


def test_ranges_take_coarser_ends_and_are_cut_to_the_axis():
    axis = days("2014-11-20", 40)
    assert parse_period(axis, " 2014-11-30 .. 2014-12 ") == Period(10, 39)
    assert parse_period(axis, "1000..9999") == Period(0, 39)
    hours = TimeAxis("hour", time_bin("2014-11-20T00", "hour") or 0, 48)
    assert parse_period(hours, "2014-11-20") == Period(0, 23)
    assert calendar.isleap(2016)
    assert parse_period(days("2016-01-01", 400), "2016-02") == Period(31, 59)


def test_single_times_are_no_periods():
    axis = days("2014-11-20", 40)
    for label in ("2014-11-21", date(2014, 11, 21), datetime(2014, 11, 21, 5)):
        assert not is_period(axis, label)
        assert parse_period(axis, label) == Period(1, 1)
    assert not is_period(axis, None)
    assert not is_period(TimeAxis("year", 2000, 9), 2004)


@pytest.mark.parametrize(
    ("label", "message"),
    [
        ("1066", "time '1066' is not on this axis; it runs from 2014-11-20 to 2014-12-29"),
        ("soon..2014", "cannot read time 'soon' as a day; write it like '2014-11-20'"),
        ("2014..", "cannot read time '' as a day"),
        ("2015..2014", "the period '2015..2014' ends before it begins"),
    ],
)
def test_bad_periods_in_one_sentence(label, message):
    with pytest.raises(UserError, match=message.replace(".", r"\.")):
        parse_period(days("2014-11-20", 40), label)


def test_who_led_in_a_year_is_every_leader_of_it_the_newest_first(leaders):
    found = leaders.recall(predicate="leads", object="Arland", time="1950", include="stored")
    assert found.columns == ["subject", "time", "score", "probability", "status"]
    assert found.select("subject", "time").rows() == [
        ("Cid", "1950-12-31"),
        ("Bob", "1950-10-31"),
        ("Ann", "1950-02-09"),
    ]
    assert found["probability"].to_list() == [1.0, 1.0, 1.0]
    month = leaders.recall(predicate="leads", object="Arland", time="1950-03", include="stored")
    assert month["subject"].to_list() == ["Bob"]
    span = leaders.recall(predicate="leads", object="Arland", time="1950-02..1950-03-01", include="stored")
    assert span["subject"].to_list() == ["Bob", "Ann"]


def test_whom_and_what_in_a_period(leaders):
    assert leaders.recall(subject="Ann", predicate="visits", time="1950", include="stored")["object"].to_list() == [
        "Borland"
    ]
    what = leaders.recall(subject="Ann", object="Borland", time="1950", include="stored")
    assert what.rows()[0][:2] == ("visits", "1950-05-05")


def test_predicted_answers_have_their_best_probability_over_the_times(leaders):
    asked = {"predicate": "leads", "object": "Arland"}
    found = leaders.recall(**asked, time="1950-03-01..1950-03-10", top=99)
    predicted = {row["subject"]: row for row in found.filter(status="predicted").to_dicts()}
    for label, row in predicted.items():
        single = {
            day: {
                each["subject"]: each for each in leaders.recall(**asked, time=f"1950-03-{day:02d}", top=99).to_dicts()
            }
            for day in range(1, 11)
        }
        best = max(single[day][label]["probability"] for day in single)
        assert row["probability"] == pytest.approx(best)
        assert single[int(row["time"][-2:])][label]["probability"] == pytest.approx(best)
    assert found["probability"].to_list() == sorted(found["probability"], reverse=True)
    assert set(found["subject"]) == set(leaders.graph.entities.labels)


def test_top_and_include_hold_for_periods(leaders):
    asked = {"predicate": "leads", "object": "Arland", "time": "1950"}
    assert leaders.recall(**asked, top=2)["subject"].to_list() == ["Cid", "Bob"]
    assert leaders.recall(**asked, top=4)["status"].to_list() == ["stored"] * 3 + ["predicted"]
    predicted = leaders.recall(**asked, top=99, include="predicted")
    assert set(predicted["status"]) == {"predicted"}
    assert not {"Ann", "Bob", "Cid"} & set(predicted["subject"])
    assert len(leaders.recall(**asked, top=0)) == 0


def test_many_questions_may_mix_times_and_periods(leaders):
    questions = {
        "predicate": ["leads"] * 3,
        "object": ["Arland", "Arland", "Borland"],
        "time": ["1950", "1950-03-01", "1951-01..1951-02"],
    }
    found = leaders.recall_many(questions, include="stored", explain=1)
    assert found.select("query", "subject").rows() == [(0, "Cid"), (0, "Bob"), (0, "Ann"), (1, "Bob"), (2, "Dan")]
    predicted = leaders.recall_many(questions, include="predicted", top=1, explain=1)
    assert predicted["query"].to_list() == [0, 1, 2]
    assert all(why is not None for why in predicted["why"])


def test_know_as_of_a_period_is_as_of_its_last_time(leaders):
    late = leaders.know(predicate="leads", object="Arland", as_of="1950", include="stored")
    assert late["subject"].to_list() == ["Cid"]
    assert leaders.know(as_of="1950-10", predicate="leads", object="Arland", include="stored")["subject"].to_list() == [
        "Bob"
    ]


def test_a_long_period_is_scored_at_a_bounded_number_of_times():
    times = Period(10, 100_010).spread().tolist()
    assert len(times) == TIMES
    assert (times[0], times[-1]) == (10, 100_010)
    assert Period(3, 5).spread().tolist() == [3, 4, 5]
