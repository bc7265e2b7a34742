"""Empty cells, weights and dates out of range, and Parquet files that lie are refused or warned of, by row."""

from __future__ import annotations

from types import SimpleNamespace

import polars as pl
import pytest

from recollect import DataWarning, UserError, read

ROWS = [("Turkey", "Fight", "Syria", "2014-12-25"), ("Iran", "Consult", "China", "2014-12-26")]


def write(path, text):
    path.write_text(text, encoding="utf-8")
    return path


def test_an_empty_cell_is_a_label_if_that_is_allowed(tmp_path, run):
    path = write(tmp_path / "a.csv", "s,p,o,t\n,b,c,2014\na,b,c,2015\n")
    assert read(path, allow_empty=True).entities.labels == ("", "a", "c")
    code, _, err = run("data", "show", path)
    assert (code, "a.csv, line 2: the subject is empty" in err) == (2, True)
    assert run("data", "export", path, "--allow-empty", "--out", tmp_path / "graph")[0] == 0
    assert read(tmp_path / "graph").entities.labels == ("", "a", "c")


def test_a_null_is_no_label_even_if_empty_cells_are():
    with pytest.raises(UserError, match="row 1 of the table: no object"):
        read(pl.DataFrame({"s": ["a"], "p": ["b"], "o": [None], "t": [1]}), allow_empty=True)


@pytest.mark.parametrize("weight", ["1e39", "inf", "1e400", "nan", "-1"])
def test_a_weight_that_float32_cannot_hold_is_refused(tmp_path, weight):
    path = write(tmp_path / "a.csv", f"s,p,o,t,w\na,b,c,2014,3e38\na,b,d,2014,{weight}\n")
    with pytest.raises(UserError, match=rf"a\.csv, line 3: cannot read '{weight}' as a weight; wanted .* to 3\.4e\+38"):
        read(path, columns={"weight": "w"})


def test_weights_that_add_up_to_more_than_float32_holds_are_refused(tmp_path):
    path = write(tmp_path / "a.csv", "s,p,o,t,w\na,b,d,2014,1\na,b,c,2014,3e38\na,b,c,2014,3e38\n")
    with pytest.raises(UserError, match=r"a\.csv, line 3: the weights of this fact add up to more than 3\.4e\+38"):
        read(path, columns={"weight": "w"})


def dated(path, strays, hour=""):
    """Write 300 facts of 2014, and one of each stray date after them."""
    dates = [f"2014-{i % 12 + 1:02d}-{i % 28 + 1:02d}{hour}" for i in range(300)] + strays
    return write(path, "s,p,o,t\n" + "".join(f"a{i},b,c,{date}\n" for i, date in enumerate(dates)))


def test_stray_dates_are_read_with_a_warning_that_names_their_rows(tmp_path):
    path = dated(tmp_path / "a.csv", ["0001-01-01", "9999-12-31"])
    with pytest.warns(DataWarning) as caught:
        graph = read(path)
    assert len(graph.times) == 3_652_059
    assert str(caught[0].message) == (
        f"{path}, line 302 (0001-01-01); {path}, line 303 (9999-12-31): far from all other times, so that the time "
        "axis has 3,652,059 steps of one day, where the others span 362; correct them if they are wrong"
    )


def test_an_axis_too_long_to_read_is_refused_after_the_rows_are_named(tmp_path):
    path = dated(tmp_path / "a.csv", ["0001-01-01T01", "9999-12-31T01"], hour="T05")
    with pytest.warns(DataWarning, match="line 302"), pytest.raises(UserError, match="the times span"):
        read(path)


@pytest.mark.parametrize("strays", [[], ["2015-06-01", "2010-01-01"], ["1914-01-01"] * 50])
def test_dates_that_are_near_or_many_give_no_warning(tmp_path, strays):
    assert read(dated(tmp_path / "a.csv", strays)).times.size > 300


def test_the_command_line_prints_the_warning_as_one_line(tmp_path, run):
    code, _, err = run("data", "show", dated(tmp_path / "a.csv", ["0101-01-01"]))
    assert code == 0
    assert err.startswith("warning: ")
    assert err.count("\n") == 1
    assert "line 302 (0101-01-01): far from all other times" in err


def test_a_parquet_file_whose_column_names_are_not_text_is_refused(tmp_path):
    pl.DataFrame(ROWS, schema=["s", "p", "o", "wxyz"], orient="row").write_parquet(tmp_path / "a.parquet")
    content = (tmp_path / "a.parquet").read_bytes()
    (tmp_path / "a.parquet").write_bytes(content.replace(b"wxyz", b"\x80xyz"))
    with pytest.raises(UserError, match=r"a\.parquet: not a readable Parquet file \('utf-8' codec can't decode"):
        read(tmp_path / "a.parquet")


def test_a_parquet_file_of_more_rows_than_memory_holds_is_refused_before_it_is_read(tmp_path, monkeypatch):
    pl.DataFrame(ROWS * 500, schema=["s", "p", "o", "t"], orient="row").write_parquet(tmp_path / "a.parquet")
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(available=300_000))
    with pytest.raises(UserError, match=r"a\.parquet: the number of rows is 1,000, which need 400,000 bytes"):
        read(tmp_path / "a.parquet")


def test_more_than_three_stray_rows_are_counted(tmp_path):
    path = dated(tmp_path / "a.csv", [f"{year}-01-01" for year in (1014, 1114, 1214)])
    with pytest.warns(DataWarning, match=r"line 302 \(1014-01-01\); .*line 304 \(1214-01-01\): far from all"):
        read(path)
    rows = path.read_text() + "".join(f"c{i},b,c,2014-05-01\n" for i in range(200))
    with pytest.warns(DataWarning, match=r"line 304 \(1214-01-01\), and 2 more rows: far from all"):
        read(write(path, rows + "x,b,c,9999-12-31\ny,b,c,9999-12-31\n"))


def test_the_end_of_an_interval_can_be_the_stray_time(tmp_path):
    rows = "".join(f"a{i},b,c,{2000 + i % 9},{2003 + i % 9}\n" for i in range(100))
    path = write(tmp_path / "a.csv", f"s,p,o,start,end\n{rows}x,b,c,2001,9900\n")
    with pytest.warns(DataWarning, match=r"a\.csv, line 102 \(9899\): far from all other times"):
        assert len(read(path).times) == 7_900
