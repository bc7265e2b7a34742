"""Dates as people write them come back exactly; ambiguous columns are refused; mixed ones name the first bad line."""

from __future__ import annotations

import random
import re
from datetime import date, datetime, timedelta

import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recollect import UserError, read
from recollect.graph.times import time_bin
from recollect.io.table import Table
from recollect.io.times.axis import find_times

DAYS = 10_000
MONTHS = "January February March April May June July August September October November December".split()  # noqa: SIM905
EPOCH = date(1970, 1, 1)


def named(form):
    """Return a writer of dates by a form with {y}, {m}, {d}, zero-padded {M} and {D}, names {mon} and {month}, {q}."""
    return lambda day: form.format(
        y=day.year, m=day.month, d=day.day, M=f"{day.month:02d}", D=f"{day.day:02d}",
        mon=MONTHS[day.month - 1][:3], month=MONTHS[day.month - 1], q=(day.month + 2) // 3,
    )  # fmt: skip


DAY_FORMS = {
    form: named(form)
    for form in (
        "{y}-{M}-{D}", "{y}/{m}/{d}", "{y}.{M}.{D}", "{y}{M}{D}", "  {y}-{M}-{D} ", "{D}.{M}.{y}", "{d}/{m}/{y}",
        "{M}/{D}/{y}", "{m}-{d}-{y}", "{d} {mon} {y}", "{d} {month} {y}", "{D}-{mon}-{y}", "{month} {d}, {y}",
        "{mon} {d} {y}", "{D}{mon}{y}", "{y}-{mon}-{D}", "{d}th {month}, {y}", "{y}-{M}-{D}T00:00:00+01:00",
        "{y}-{M}-{D} 00:00:00", "{d} {month} {y}[nb 7]", "{D}/{M}/{y} 00:00", "{m}/{d}/{y} 12:00:00 AM",
        "{y}{M}{D}000000",
    )
}  # fmt: skip
DAY_FORMS |= {
    "unix": lambda day: str((day - EPOCH).days * 86_400),
    "unix-ms": lambda day: str((day - EPOCH).days * 86_400_000),
    "excel": lambda day: str((day - date(1899, 12, 30)).days),
    "excel with .0": lambda day: f"{(day - date(1899, 12, 30)).days}.0",
}
COARSE_FORMS = {
    "{y}": "year", "{y}.0": "year", "{y}Q{q}": "quarter", "{y}-Q{q}": "quarter", "Q{q} {y}": "quarter",
    "{y} Q{q}": "quarter", "{y}-{M}": "month", "{y}{M}": "month", "{M}/{y}": "month", "{mon} {y}": "month",
    "{month} {y}": "month", "{y} {mon}": "month", "{mon}-{y}": "month", "{y}-##-##": "year", "{y}-{M}-00": "month",
}  # fmt: skip


def dated(labels, **columns):
    """Return a table of one fact per label, at that date."""
    return pl.DataFrame({"s": [f"e{i}" for i in range(len(labels))], "p": "r", "o": "x", "date": labels} | columns)


def times_of(graph):
    """Return the time label of every fact, in the order of the subjects e0, e1, …."""
    table = graph.table(graph.facts)
    return table.sort(pl.col("subject").str.slice(1).cast(pl.Int64))["time"].to_list()


def random_days(first, last, n=DAYS, seed=0):
    draw = random.Random(seed)
    return [first + timedelta(days=draw.randrange((last - first).days + 1)) for _ in range(n)]


@pytest.mark.parametrize("form", DAY_FORMS)
def test_every_form_of_a_day_comes_back_exactly(form):
    days = random_days(date(1974, 1, 1), date(2049, 12, 31))
    if not form.startswith(("unix", "excel")):
        days[: DAYS // 2] = random_days(date(1000, 1, 1), date(2999, 12, 31), DAYS // 2)
    if form == "{y}{M}{D}000000":
        days = random_days(date(1800, 1, 1), date(2199, 12, 31))
    graph = read(dated([DAY_FORMS[form](day) for day in days]))
    assert graph.times.grain == "day"
    assert times_of(graph) == [day.isoformat() for day in days]


@pytest.mark.parametrize("form", COARSE_FORMS)
def test_every_form_of_a_year_quarter_or_month_comes_back_exactly(form):
    grain = COARSE_FORMS[form]
    days = random_days(date(1800, 1, 1), date(2199, 12, 31))
    graph = read(dated([named(form)(day) for day in days]))
    label = {"year": named("{y}"), "quarter": named("{y}-Q{q}"), "month": named("{y}-{M}")}[grain]
    assert graph.times.grain == grain
    assert times_of(graph) == [label(day) for day in days]


@pytest.mark.parametrize("unit", [1, 1000, 10**6, 10**9])
def test_unix_times_come_back_by_the_hour(unit):
    draw = random.Random(1)
    seconds = [draw.randrange(130_000_000, 4_000_000_000) for _ in range(DAYS)]
    graph = read(dated([str(second * unit) for second in seconds]))
    assert times_of(graph) == [(datetime(1970, 1, 1) + timedelta(seconds=s)).strftime("%Y-%m-%dT%H") for s in seconds]


@pytest.mark.parametrize("separator", ["/", ".", "-"])
def test_dates_that_are_valid_both_ways_are_refused_with_both_readings(separator):
    draw = random.Random(2)
    for _ in range(20):
        labels = [separator.join(f"{draw.randint(1, 12):02d}" for _ in "dm") + f"{separator}2014" for _ in range(5)]
        example = next((label for label in labels if label[:2] != label[3:5]), None)
        if example is None:
            continue
        dmy, mdy = f"2014-{example[3:5]}-{example[:2]}", f"2014-{example[:2]}-{example[3:5]}"
        message = f"row {labels.index(example) + 1} of the table: '{example}' can be read as {dmy} (dmy) or {mdy} (mdy)"
        with pytest.raises(UserError, match=re.escape(message) + ".*--dates dmy"):
            read(dated(labels))
        for order, place in (("dmy", 0), ("mdy", 1)):
            found = times_of(read(dated(labels), dates=order, grain="day"))
            assert found == [
                f"2014-{label[3:5]}-{label[:2]}" if place == 0 else f"2014-{label[:2]}-{label[3:5]}" for label in labels
            ]


def test_dates_that_are_the_same_both_ways_need_no_order():
    assert times_of(read(dated(["01/01/2014", "02/02/2014", "12/12/2014"]))) == [
        "2014-01-01",
        "2014-02-02",
        "2014-12-12",
    ]


def test_the_order_is_found_over_all_time_columns_and_splits():
    frame = pl.DataFrame(
        {"s": ["a", "b"], "p": "r", "o": "x", "start": ["8/4/1914", "8/1/1914"], "end": ["11/11/1918", "12/15/1917"]}
    )
    assert read(frame).times.label(0) == "1914-08-01"
    graph = read({"train": dated(["01/02/2014"]), "test": dated(["25/12/2014"], p=["q"])})
    assert graph.times.label(0) == "2014-02-01"


@settings(max_examples=50, deadline=None)
@given(
    days=st.lists(
        st.dates(date(1900, 1, 1), date(2100, 1, 1)).filter(lambda day: day.day > 12), min_size=2, max_size=30
    ),
    forms=st.sampled_from(
        [("{d}/{m}/{y}", "{m}/{d}/{y}"), ("{y}-{M}-{D}", "{d}.{m}.{y}"), ("{m}/{d}/{y}", "{y}/{m}/{d}")]
    ),
    at=st.integers(1, 29),
)
def test_mixed_forms_name_the_first_line_that_does_not_fit(tmp_path_factory, days, forms, at):
    at = min(at, len(days) - 1)
    labels = [named(forms[0] if i < at else forms[1])(day) for i, day in enumerate(days)]
    path = tmp_path_factory.mktemp("mixed") / "a.csv"
    path.write_text("s,p,o,date\n" + "".join(f"e{i},r,x,{label}\n" for i, label in enumerate(labels)))
    with pytest.raises(
        UserError, match=rf"a\.csv, line {at + 2}: cannot read '{re.escape(labels[at])}' as the date|time"
    ):
        read(path)


@pytest.mark.parametrize(
    ("label", "format", "read_as"),
    [
        ("20/01/09", "%d/%m/%y", "2009-01-20"),
        ("2009 020", "%Y %j", "2009-01-20"),
        ("01 09", "%m %y", "2009-01"),
        ("20.1.2009 13h", "%d.%m.%Y %Hh", "2009-01-20T13"),
        ("20090120 23 -0200", "%Y%m%d %H %z", "2009-01-21T01"),
    ],
)
def test_any_format_of_strftime_can_be_given(label, format, read_as):
    assert times_of(read(dated([label]), dates=format)) == [read_as]


@pytest.mark.parametrize(
    ("labels", "options", "message"),
    [
        (["20/01/09"], {}, r"years of two digits give the format, like dates='%d/%m/%y'"),
        (["2014-01-05", "soon"], {}, r"row 2 of the table: cannot read 'soon' as the time; wanted a date"),
        (["22.11.2005", "11.22.2005"], {}, r"row 2 .*; all dates before it are dmy: write all dates in one way"),
        (["2014-01-05"], {"dates": "dmyy"}, r"unknown dates 'dmyy'; choose ymd, dmy, mdy, unix, unix-ms, excel or"),
        (["2014-01-05"], {"dates": "%d/%m"}, r"does not tell the year|is no format"),
        (["2014-01-05"], {"dates": "dmy"}, r"cannot read '2014-01-05' as the time"),
        (["present"], {}, r"cannot read 'present' as the time"),
        (["31/02/2014"], {}, r"cannot read '31/02/2014'"),
        (["2014-W60", "2015-W53"], {}, r"cannot read '2014-W60'"),
        (["19 December 2018?"], {}, r"row 1 .*cannot read '19 December 2018\?'"),
    ],
)  # fmt: skip
def test_what_is_no_date_is_refused_with_what_to_do(labels, options, message):
    with pytest.raises(UserError, match=message):
        read(dated(labels), **options)


@pytest.mark.parametrize(
    ("labels", "grain"),
    [
        (["1999", "2014"], "year"),
        (["1797.0", "1801.0"], "year"),
        (["0", "1", "71"], "ordinal"),
        (["3", "2014"], "ordinal"),
        (["0", "24", "4368"], "ordinal"),
        (["20140305", "20140306"], "day"),
        (["201312", "201401"], "month"),
        (["201312", "201413"], "ordinal"),
        (["2014-03-05T00:00:00", "2014-03-06T00:00:00"], "day"),
        (["2014-03-05T00:00:00", "2014-03-06T11:00:00"], "hour"),
        (["2014-03-05", "2014-03"], "month"),
        (["2014-03-05", "2014"], "year"),
        (["2014-03-05T11:00", "2014-03-06"], "day"),
        (["2014-01-01", "2014-02-01", "2014-04-01"], "month"),
        (["2012-01-01", "2013-01-01", "2014-01-01"], "year"),
        (["2012-01-01", "2013-01-01"], "day"),
        (["2012-01-01", "2013-01-01", "2014-01-02"], "day"),
        (["26 May 1900", "September 1903", "1889"], "year"),
    ],
)
def test_the_grain_is_the_coarsest_that_loses_nothing(labels, grain):
    graph = read(dated(labels))
    assert graph.times.grain == grain
    assert len(graph.notes) == (grain in ("month", "year", "day") and len({len(label) for label in labels}) > 1) or (
        "every date" in graph.notes[0]
    )


def intervals(starts, ends):
    return pl.DataFrame({"s": [f"e{i}" for i in range(len(starts))], "p": "r", "o": "x", "start": starts, "end": ends})


def held(graph):
    """Return the first and last time of each subject's facts."""
    table = graph.table(graph.facts).group_by("subject").agg(first=pl.col("time").min(), last=pl.col("time").max())
    return {subject: (first, last) for subject, first, last in table.rows()}


OPEN = "present|now|Today| - |∞|ongoing||9999|9999-12-31|31.12.9999|NaT|-9|####-##-##|Incumbent".split("|")  # noqa: SIM905


@pytest.mark.parametrize("label", [*OPEN, None])
def test_open_ends_and_unknown_starts_are_the_first_and_last_time(label):
    graph = read(intervals(["2001", "2003", label], ["2004", label, "2006"]))
    assert held(graph) == {"e0": ("2001", "2003"), "e1": ("2003", "2005"), "e2": ("2001", "2005")}


def test_intervals_on_the_edges_of_years_are_read_by_year():
    graph = read(intervals(["1828-01-01", "1841-01-01", "1850-01-01"], ["1902-12-31", "1893-12-31", "1861-01-01"]))
    assert graph.times.grain == "year"
    assert held(graph) == {"e0": ("1828", "1902"), "e1": ("1841", "1893"), "e2": ("1850", "1860")}
    assert "the time grain is year; --grain day keeps days" in graph.notes[0]
    assert (
        read(intervals(["1828-01-01", "1841-01-01"], ["1829-01-01", "1842-01-01"]), inclusive_end=True).times.grain
        == "day"
    )


def test_a_few_starts_less_exact_than_the_others_count_from_their_first_day():
    starts = [f"2001-03-{day:02d}" for day in range(1, 20)] + ["2001"]
    graph = read(intervals(starts, ["2001-05-05"] * 20))
    assert graph.times.grain == "day"
    assert held(graph)["e19"] == ("2001-01-01", "2001-05-04")
    assert graph.notes == (
        "1 of 40 starts and ends are less exact than a day, like '2001'; they count from the first day of theirs",
    )
    inclusive = read(intervals(["2001-03-05"] * 20, ["2001"] + ["2001-05-05"] * 19), inclusive_end=True)
    assert held(inclusive)["e0"] == ("2001-03-05", "2001-12-31")


def test_one_bad_year_does_not_stretch_open_ends():
    starts = [str(1950 + i % 60) for i in range(200)]
    ends = [None if i % 3 == 0 else str(1955 + i % 60) for i in range(200)]
    ends[7] = "2844"
    with pytest.warns(UserWarning, match=r"row 8 of the table \(2844\): the end is far after all other times.*2013"):
        graph = read(intervals(starts, ends))
    assert graph.times.label(len(graph.times) - 1) == "2013"
    assert held(graph)["e0"][1] == held(graph)["e7"][1] == "2013"


def test_midnight_in_berlin_is_not_the_day_before():
    for label in ("2014-03-05T00:00:00+01:00", "2014-03-05 00:00:00+0100"):
        assert times_of(read(dated([label]))) == ["2014-03-05"]
        assert times_of(read(dated([label]), grain="hour")) == ["2014-03-04T23"]
    instants = pd.to_datetime(["2014-03-05", "2014-07-06"]).tz_localize("Europe/Berlin")
    for frame in (
        dated(["x", "y"]).with_columns(date=pl.Series(instants)),
        dated(["x", "y"]).to_pandas().assign(date=instants),
    ):
        assert times_of(read(frame)) == ["2014-03-05", "2014-07-06"]
        assert times_of(read(frame, grain="hour")) == ["2014-03-04T23", "2014-07-05T22"]


def test_numbers_that_may_be_days_of_excel_are_refused_unless_their_column_is_a_date():
    frame = dated(["41703", "41704"])
    assert times_of(read(frame)) == ["2014-03-05", "2014-03-06"]
    frame = frame.rename({"date": "t"})
    with pytest.raises(UserError, match=r"row 1 .* the day 2014-03-05 of Excel and as a plain number.*--dates excel"):
        read(frame)
    assert times_of(read(frame, dates="excel")) == ["2014-03-05", "2014-03-06"]
    assert times_of(read(frame, grain="ordinal")) == ["41703", "41704"]
    assert times_of(read(dated(["41703.5"]), dates="excel")) == ["2014-03-05T12"]


@settings(max_examples=100, deadline=None)
@given(at=st.datetimes(datetime(1, 1, 8), datetime(9998, 12, 24)), end=st.booleans())
def test_bins_are_those_of_the_time_axis(at, end):
    label = at.isoformat()
    times = {"start": ["0001-01-02"], "end": [label]} if end else {"time": [label]}
    table = Table(pl.DataFrame({"subject": ["a"], "predicate": "r", "object": "x"} | times), str, "a table")
    for grain in ("year", "quarter", "month", "week", "day"):
        found = find_times({"train": table}, grain, None, inclusive_end=False).bins["train"]["last"].item()
        assert found == time_bin(label, grain, before=end)


@pytest.mark.parametrize("place", [0, 57, 199])
def test_a_few_dates_in_another_form_are_left_out_and_named(place):
    labels = [f"{13 + i % 15}/{1 + i % 12}/{1990 + i % 30}" for i in range(200)]
    labels[place] = "1/20/2009"
    with pytest.warns(
        UserWarning, match=rf"row {place + 1} of the table: cannot read '1/20/2009' as the time; this row is"
    ):
        graph = read(dated(labels))
    assert (len(graph.facts), graph.dropped) == (199, {"unreadable time": 1})


def matches(hours: list[int], days: int = 4000) -> pl.DataFrame:
    """Return rows at some hours of every tenth day of several years."""
    start = datetime(1990, 1, 1)
    at = [start + timedelta(days=10 * day, hours=hour) for day in range(days // 10) for hour in hours]
    return pl.DataFrame(
        {"subject": "Ann", "predicate": "meets", "object": [f"o{i % 7}" for i in range(len(at))], "time": at}
    )


def test_hours_of_a_long_and_mostly_empty_axis_are_days_unless_they_tell_rows_apart():
    graph = read(matches([15]))
    assert graph.times.grain == "day"
    assert "no subject has a predicate at two times of a day, so the time grain is day" in graph.notes[-1]
    assert len(graph.facts) == 400
    assert read(matches([15]), grain="hour").times.grain == "hour"
    assert read(matches([9, 15])).times.grain == "hour"  # two a day
    assert read(matches([15], days=1000)).times.grain == "hour"  # a short axis
    others = matches([9]).with_columns(subject=pl.lit("Bob"))
    assert read(pl.concat([matches([15]), others])).times.grain == "day"
