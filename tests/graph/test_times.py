"""Time labels are parsed into bins, and a time axis maps labels to ids and back."""

from __future__ import annotations

from datetime import date, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recollect import TimeAxis, UserError
from recollect.graph.times import GRAINS, moment, time_bin

CALENDAR = [grain for grain in GRAINS if grain not in ("quarter", "ordinal")]
FORMATS = {"year": "%Y", "month": "%Y-%m", "week": "%G-W%V", "day": "%Y-%m-%d", "hour": "%Y-%m-%dT%H"}
MOMENTS = st.datetimes(datetime(1000, 1, 8), datetime(2999, 12, 24))


@pytest.mark.parametrize("grain", CALENDAR)
@given(at=MOMENTS)
def test_a_bin_has_the_label_that_strftime_gives(grain, at):
    number = time_bin(at.isoformat(), grain)
    axis = TimeAxis(grain, number, 1)
    assert axis.label(0) == at.strftime(FORMATS[grain])
    assert axis.index(axis.label(0)) == 0
    assert axis.index(at) == 0


@pytest.mark.parametrize("grain", CALENDAR)
@settings(max_examples=30)
@given(at=MOMENTS, hours=st.integers(0, 500))
def test_an_axis_has_the_label_of_every_hour_in_its_span_in_order(grain, at, hours):
    instants = [at + timedelta(hours=hour) for hour in range(hours + 1)]
    first, last = (time_bin(instant.isoformat(), grain) for instant in (instants[0], instants[-1]))
    labels = TimeAxis.spanning(grain, [first, last]).labels
    assert labels == sorted(labels)
    assert labels == list(dict.fromkeys(instant.strftime(FORMATS[grain]) for instant in instants))


@pytest.mark.parametrize("grain", ["year", "month", "week", "day"])
@settings(max_examples=30)
@given(at=MOMENTS, days=st.integers(0, 2000))
def test_an_axis_has_the_label_of_every_day_in_its_span_in_order(grain, at, days):
    instants = [at + timedelta(days=day) for day in range(days + 1) if (at + timedelta(days=day)).year < 3000]
    first, last = (time_bin(instant.isoformat(), grain) for instant in (instants[0], instants[-1]))
    labels = TimeAxis.spanning(grain, [first, last]).labels
    assert labels == list(dict.fromkeys(instant.strftime(FORMATS[grain]) for instant in instants))


def test_a_week_belongs_to_the_year_and_month_of_its_thursday():
    assert time_bin("2015-W01", "year") == 2015  # it begins on 2014-12-29
    assert time_bin("2015-W01", "month") == time_bin("2015-01", "month")


def test_weeks_before_1970_start_on_monday():
    assert time_bin("1969-12-28", "week") + 1 == time_bin("1969-12-29", "week") == time_bin("1970-01-04", "week")


@pytest.mark.parametrize(
    ("label", "grain"),
    [
        ("2014", "year"),
        ("2014-03", "month"),
        ("2014/03", "month"),
        ("2014-W10", "week"),
        ("2014-03-05", "day"),
        ("2014/3/5", "day"),
        ("20140305", "day"),
        ("2014-03-05T13", "hour"),
        ("2014-03-05 13:30:00.000000", "hour"),
        ("2014-03-05T23:30:00-02:00", "hour"),
    ],
)
def test_a_date_is_parsed_in_any_of_these_forms(label, grain):
    assert moment(label)[1] == grain


def test_a_time_with_an_offset_lies_on_its_local_date_and_on_the_hour_of_utc():
    midnight_in_berlin = "2014-03-05T00:00:00+01:00"
    assert time_bin(midnight_in_berlin, "day") == time_bin("2014-03-05", "day")
    assert time_bin(midnight_in_berlin, "month") == time_bin("2014-03", "month")
    assert time_bin(midnight_in_berlin, "hour") == time_bin("2014-03-04T23", "hour")
    assert time_bin("2014-03-05T23:30:00-02:00", "hour") == time_bin("2014-03-06T01", "hour")


@pytest.mark.parametrize("label", ["2014-Q3", "2014Q3", "2014 Q3"])
def test_a_quarter_has_three_months(label):
    number = time_bin(label, "quarter")
    assert {time_bin(f"2014-{month:02d}", "quarter") for month in (7, 8, 9)} == {number}
    assert time_bin("2014-06-30", "quarter") + 1 == number == time_bin("2014-10-01", "quarter", before=True)
    assert TimeAxis("quarter", number, 2).labels == ["2014-Q3", "2014-Q4"]
    assert time_bin(label, "month") is None
    assert time_bin(label, "year") == 2014


@pytest.mark.parametrize(
    "label", ["", "soon", "2014-13", "2014-02-30", "0000", "2014-W60", "12:30", "2014-1-2-3", "٢٠١٤"]
)
def test_other_text_is_no_date(label):
    assert moment(label) is None


@pytest.mark.parametrize(
    ("end", "grain", "last"),
    [
        ("2014-04", "month", "2014-03"),
        ("2014-04-01", "month", "2014-03"),
        ("2014-04-02", "month", "2014-04"),
        ("2014", "year", "2013"),
        ("2014-03-05", "day", "2014-03-04"),
        ("2014-03-05T13", "hour", "2014-03-05T12"),
        ("7", "ordinal", "6"),
        ("2015-W01", "year", "2014"),
        ("2015-W02", "year", "2015"),
    ],
)
def test_an_interval_ends_in_the_last_bin_before_its_end(end, grain, last):
    assert time_bin(end, grain, before=True) == time_bin(last, grain)


def test_ordinals_advance_by_their_common_step():
    axis = TimeAxis.spanning("ordinal", [0, 48, 24, 4368])
    assert (axis.step, len(axis), axis.labels[:3]) == (24, 183, ["0", "24", "48"])
    assert axis.index("48") == axis.index(48) == 2
    with pytest.raises(UserError, match="time '50' is not on this axis; it runs from 0 to 4368"):
        axis.index("50")


def test_an_axis_accepts_finer_labels_and_refuses_coarser_and_outer_ones():
    axis = TimeAxis.spanning("month", [time_bin(label, "month") for label in ("2014-01", "2014-12")])
    assert axis.index("2014-12-25") == axis.index(date(2014, 12, 1)) == 11
    with pytest.raises(UserError, match="cannot read time '2014' as a month; write it like '2014-01'"):
        axis.index("2014")
    with pytest.raises(UserError, match="time '2015-01' is not on this axis; it runs from 2014-01 to 2014-12"):
        axis.index("2015-01")
    with pytest.raises(UserError, match="cannot read time 'soon'"):
        axis.index("soon")


@pytest.mark.parametrize(
    ("axis", "text"),
    [
        (TimeAxis("day", 16071, 365), "TimeAxis(365 times, day, 2014-01-01 to 2014-12-31)"),
        (TimeAxis("ordinal", 0, 183, 24), "TimeAxis(183 times, ordinal, 0 to 4368 by 24)"),
        (TimeAxis("year", 2014, 0), "TimeAxis(0 times, year)"),
    ],
)
def test_an_axis_prints_its_size_and_span(axis, text):
    assert repr(axis) == text


def test_an_axis_too_long_is_refused():
    with pytest.raises(UserError, match="span 1,000,000,001 steps"):
        TimeAxis.spanning("ordinal", [0, 1, 10**9])
