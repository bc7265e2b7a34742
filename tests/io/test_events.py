"""Raw events: facts and row accounting equal plain loops over the text; archives, odd rows, error messages."""

from __future__ import annotations

import gzip
import os
import random
import zipfile
from collections import Counter
from datetime import date
from pathlib import Path

import polars as pl
import pytest

from recollect import UserError
from recollect.graph.times import time_bin
from recollect.io.events import EventRecipe, event_files, on_duckdb, query, read_events

COUNTRIES = ["USA", "GBR", "RUS", "CHN", "Côte d'Ivoire"]
SECTORS = ["Government,Police", "Police,Government", "Social", "Elite,Government,Elite"]
CODES = ["010", "042", "0311", "190", "1011", "20"]


def gdelt(event=1, day="20120105", s="USA", o="RUS", code="042", root="04", width=61):
    row = [""] * width
    row[0], row[1], row[5], row[6], row[7] = str(event), day, s + "GOV", s and f"{s} NAME", s
    row[12], row[15], row[16], row[17], row[22] = s and "GOV", o + "GOV", o and f"{o} NAME", o, o and "MIL"
    row[26], row[28] = code, root
    return "\t".join(row)


def icews(event=1, day="2018-10-04", s="USA", o="RUS", code="042", text="Make a visit", sectors="Social"):
    row = [str(event), day, f"Citizen ({s})", sectors, s, text, code, "1.9", f"Police ({o})", "Social", o]
    return "\t".join(row + ["x"] * 9)


HEADER = "\t".join(["Event ID", "Event Date", *["Something"] * 18])


def write(path: Path, rows, end="\n", last=True) -> Path:
    data = [row if isinstance(row, bytes) else row.encode() for row in rows]
    path.write_bytes(end.encode().join(data) + (end.encode() if last and rows else b""))
    return path


def adds_up(graph) -> bool:
    return sum(graph.rows.values()) == len(graph.facts) + graph.duplicates + sum(graph.dropped.values())


def labelled(graph):
    facts = graph.facts
    weights = [None] * len(facts) if facts.weight is None else facts.weight.tolist()
    return dict(zip(graph.table(facts).rows(), weights, strict=True))


def whole(code: str, root: str | None) -> str | None:
    """The code with its zeros, by trying both spellings."""
    if not code.isascii() or not code.isdecimal() or len(code) > 4:
        return None
    for spelling in (code, "0" + code):
        if root is not None:
            if spelling[:2] == root.zfill(2) and "01" <= spelling[:2] <= "20":
                return spelling
        elif len(spelling) >= 3 and "01" <= spelling[:2] <= "20":
            return spelling
    return None


def read_row(cells: list[bytes], recipe: EventRecipe, form: str):
    """Return (event id, s, p, o, date) of a row, or the reason why it is dropped."""
    columns = {"name": (6, 16), "country": (7, 17), "sector": (12, 22)}
    if form == "icews":
        columns = {"name": (2, 8), "country": (4, 10), "sector": (3, 9)}
    si, oi = columns[recipe.actors]
    code, root = (5, None) if recipe.predicates == "name" else (6, None)
    if form == "gdelt":
        code, root = (28 if recipe.predicates == "root" else 26), 28
    try:
        text = {i: cells[i].decode() for i in (0, 1, si, oi, code, root) if i is not None and i < len(cells)}
    except UnicodeDecodeError:
        return "text is not UTF-8"
    if len(cells) not in ((20,) if form == "icews" else (57, 58, 61)):
        return "malformed row"
    s, o = text[si], text[oi]
    if not s or not o:
        return "unknown actor"
    if not text[0].isdecimal():
        return "event id is no whole number"
    digits = text[1].replace("-", "")
    try:
        day = date(int(digits[:4]), int(digits[4:6]), int(digits[6:]))
    except ValueError:
        return "unreadable date"
    too_early = recipe.since and day.isoformat() < recipe.since
    too_late = recipe.until and day.isoformat()[: len(recipe.until)] > recipe.until
    if too_early or too_late:
        return "outside the dates"
    if form == "icews" and recipe.predicates == "name":
        p = text[code]
    else:
        p = whole(text[code].zfill(2) if code == root else text[code], None if root is None else text[root])
    if not p:
        return "unknown event code"
    if recipe.predicates == "root":
        p = p[:2]
    if recipe.actors == "sector" and form == "icews":
        s, o = (",".join(sorted(set(x.split(",")))) for x in (s, o))
    if s == o and not recipe.self_loops:
        return "self-loop"
    return int(text[0]), s, p, o, day


def oracle(paths, recipe: EventRecipe, form: str):
    """Return rows, facts with counts, duplicates and dropped rows by plain loops over the bytes."""
    rows, first, dropped = 0, {}, Counter()
    for number, path in enumerate(paths):
        for line in path.read_bytes().replace(b"\r", b"\n").split(b"\n"):
            cells = line.split(b"\t")
            if not line or cells[0] == b"Event ID":
                continue
            rows += 1
            found = read_row(cells, recipe, form)
            if isinstance(found, str):
                dropped[found] += 1
                continue
            event, s, p, o, day = found
            year, week, _ = day.isocalendar()
            t = {
                "day": day.isoformat(),
                "month": day.isoformat()[:7],
                "year": f"{day.year}",
                "week": f"{year}-W{week:02d}",
            }
            fact = (number, s, p, o, t[recipe.grain])
            dropped["repeated event id"] += event in first
            first[event] = min(fact, first.get(event, fact))
    counts = Counter(fact[1:] for fact in first.values())
    if recipe.entities is not None:
        busy = Counter()
        for (s, _, o, _), n in counts.items():
            busy[s] += n
            busy[o] += n
        kept = {x for x, _ in sorted(busy.items(), key=lambda item: (-item[1], item[0]))[: recipe.entities]}
        inside = {fact: n for fact, n in counts.items() if fact[0] in kept and fact[2] in kept}
        dropped["entity not among the most frequent"] += sum(counts.values()) - sum(inside.values())
        counts = inside
    return rows, counts, sum(counts.values()) - len(counts), {k: v for k, v in dropped.items() if v}


def agree(graph, expected, recipe) -> None:
    rows, counts, duplicates, dropped = expected
    assert adds_up(graph)
    assert graph.rows == {"train": rows}
    assert labelled(graph) == (dict(counts) if recipe.counts else dict.fromkeys(counts))
    assert (graph.duplicates, graph.dropped) == (duplicates, dropped)


def random_rows(dice: random.Random, form: str, n: int):
    """Rows of every kind, with the oddities of real files."""
    for _ in range(n):
        fields = {
            "event": dice.choice([dice.randrange(40), dice.randrange(40), dice.randrange(2**60), "x7", "", "-3"]),
            "s": dice.choice([*COUNTRIES, ""]),
            "o": dice.choice(COUNTRIES),
            "code": dice.choice([*CODES, "42", "311", "", "x", "---", "99", "12345"]),
        }
        if form == "gdelt":
            code = str(fields["code"])
            root = dice.choice([code[:2], code[:2].lstrip("0"), ("0" + code)[:2], "04"])
            day = dice.choice(["20120105", "20120106", "20120229", "20120230", "201201", "", "20130101"])
            row = gdelt(day=day, root=root, width=dice.choice([57, 58, 61, 61]), **fields)
        else:
            day = dice.choice(["2018-10-04", "2018-10-05", "2018-11-31", "2018", "soon", "2019-01-01"])
            row = icews(
                day=day,
                text=dice.choice(["Make a visit", "Consult", ""]),
                sectors=dice.choice([*SECTORS, ""]),
                **fields,
            )
        kind = dice.randrange(20)
        if kind == 0:
            row += "\tmore"
        elif kind == 1:
            row = row.rpartition("\t")[0]
        elif kind == 2:
            row = dice.choice(["", "junk", "\t\t", "\r"])
        data = row.encode()
        yield data.replace(b"USA", b"U\xffA") if kind == 3 else data


RECIPES = {
    "default": EventRecipe(),
    "counts": EventRecipe(counts=True),
    "names by month": EventRecipe(actors="name", predicates="code", grain="month", counts=True),
    "sectors by week, no loops": EventRecipe(actors="sector", grain="week", self_loops=False),
    "the busiest, in a window": EventRecipe(entities=3, since="2012-01-05", until="2018-10"),
    "by year": EventRecipe(predicates="code", grain="year", until="2012"),
}


@pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES)
@pytest.mark.parametrize("form", ["icews", "gdelt"])
def test_every_row_is_accounted_for(tmp_path, form, recipe):
    if recipe.until == "2012" and form == "icews":
        recipe = EventRecipe(predicates="name", grain="year")
    for seed in range(2):
        dice = random.Random(seed)
        first = [HEADER] if form == "icews" else [gdelt(10**6), gdelt(10**6 + 1, width=57)]
        paths = [
            write(tmp_path / f"{seed}-{i}.csv", [*first, *random_rows(dice, form, 240)], end, last)
            for i, (end, last) in enumerate([("\n", True), ("\r\n", True), ("\n", False)])
        ]
        graph = read_events(paths, recipe)
        agree(graph, oracle(paths, recipe, form), recipe)


def test_rows_across_read_buffers_are_accounted_for(tmp_path, monkeypatch):
    monkeypatch.setattr(on_duckdb, "CSV_OPTIONS", {**on_duckdb.CSV_OPTIONS, "buffer_size": 2048, "max_line_size": 1024})
    paths = [
        write(tmp_path / f"{i}.csv", [gdelt(10**6, width=57), *random_rows(random.Random(i), "gdelt", 2000)])
        for i in range(2)
    ]
    recipe = EventRecipe(counts=True)
    agree(read_events(paths, recipe), oracle(paths, recipe, "gdelt"), recipe)


def test_a_row_beyond_the_longest_line_is_malformed(tmp_path):
    path = write(tmp_path / "a.csv", [gdelt(1), "x" * 3_000_000, gdelt(2, s="GBR")])
    graph = read_events(path)
    assert (graph.rows, graph.dropped, len(graph.facts)) == ({"train": 3}, {"malformed row": 1}, 2)


def test_packed_files_give_the_same_graph(tmp_path):
    dice = random.Random(1)
    parts = [[gdelt(10**6 + i), *random_rows(dice, "gdelt", 200)] for i in range(3)]
    plain = [write(tmp_path / f"{i}.export.CSV", rows) for i, rows in enumerate(parts)]
    expected = read_events(plain)
    packed = tmp_path / "packed"
    packed.mkdir()
    with zipfile.ZipFile(packed / "0.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.write(plain[0], "0.export.CSV")
        archive.write(plain[1], "1.export.CSV")
    (packed / "2.CSV.gz").write_bytes(gzip.compress(plain[2].read_bytes()))
    graph = read_events([packed])
    assert graph.fingerprint == expected.fingerprint
    assert (graph.rows, graph.dropped, graph.duplicates) == (expected.rows, expected.dropped, expected.duplicates)


def test_progress_grows_to_the_size_of_the_files(tmp_path):
    path = write(tmp_path / "a.csv", [gdelt(1)])
    seen = []
    read_events(path, progress=lambda done, total: seen.append((done, total)))
    assert seen == sorted(seen)
    assert seen[-1] == (path.stat().st_size, path.stat().st_size)


def test_builds_do_not_depend_on_threads_or_memory(tmp_path, monkeypatch):
    rows = [
        gdelt(i % 5900, s=f"A{i * 7919 % 3001}", o=f"B{i % 997}", day=f"20{10 + i % 9}0{1 + i % 9}1{i % 10}")
        for i in range(6000)
    ]
    path = write(tmp_path / "a.csv", rows)
    recipe = EventRecipe(counts=True)
    expected = oracle([path], recipe, "gdelt")
    monkeypatch.setattr(on_duckdb, "CSV_OPTIONS", {**on_duckdb.CSV_OPTIONS, "buffer_size": 8192, "max_line_size": 4096})
    fingerprints = set()
    for limit in ("2GiB", "128MiB"):
        monkeypatch.setattr(on_duckdb, "MEMORY_LIMIT", limit)
        graph = read_events(path, recipe)
        agree(graph, expected, recipe)
        fingerprints.add(graph.fingerprint)
    assert len(fingerprints) == 1


def test_a_file_name_with_glob_characters(tmp_path):
    path = write(tmp_path / "a[1]*.csv", [gdelt(1)])
    write(tmp_path / "a1.csv", [gdelt(2)])
    assert read_events(path).rows == {"train": 1}


def test_files_are_read_through_links_and_relative_paths(tmp_path, monkeypatch):
    write(tmp_path / "a.csv", [gdelt(1)])
    (tmp_path / "link").symlink_to(tmp_path, target_is_directory=True)
    monkeypatch.chdir(tmp_path)
    assert read_events(f"../{tmp_path.name}/link/a.csv").rows == {"train": 1}


def test_too_little_memory_is_reported(tmp_path, monkeypatch):
    path = write(tmp_path / "a.csv", [gdelt(1)])
    monkeypatch.setattr(on_duckdb, "MEMORY_LIMIT", "1MB")
    with pytest.raises(UserError, match=r"a\.csv and others: DuckDB stopped \(Out of Memory Error"):
        read_events(path)


@pytest.mark.parametrize("grain", ["year", "quarter", "month", "week", "day"])
def test_time_bins_are_those_of_the_time_axis(grain):
    import ibis

    days = [
        date(1, 1, 1),
        date(1969, 12, 28),
        date(1969, 12, 29),
        date(1970, 1, 1),
        date(2024, 2, 29),
        date(9999, 12, 31),
    ]
    table = ibis.memtable(pl.DataFrame({"day": days}))
    backend = ibis.duckdb.connect()
    found = backend.to_polars(table.mutate(bin=query.time_bins(table.day, grain)).order_by("day"))
    backend.disconnect()
    assert found["bin"].to_list() == [time_bin(day.isoformat(), grain) for day in days]


def test_a_mark_before_the_first_row_costs_nothing(tmp_path):
    data = b"\xef\xbb\xbf" + gdelt(1).encode() + b"\n" + gdelt(2, s="GBR").encode() + b"\n"
    (tmp_path / "a.csv").write_bytes(data)
    (tmp_path / "b.csv.gz").write_bytes(gzip.compress(data.replace(b"USA", b"FRA")))
    (tmp_path / "c.tab").write_bytes(b"\xef\xbb\xbf" + f"{HEADER}\n{icews(1)}\n".encode())
    assert read_events(tmp_path / "a.csv").dropped == {}
    assert read_events(tmp_path / "b.csv.gz").dropped == {}
    assert read_events(tmp_path / "c.tab").rows == {"train": 1}


def test_an_empty_root_decides_too(tmp_path):
    path = write(tmp_path / "a.csv", [gdelt(1), gdelt(2, root="")])
    for predicates in ("code", "root"):
        assert read_events(path, EventRecipe(predicates=predicates)).dropped == {"unknown event code": 1}


def test_sectors_without_a_name_are_no_actor(tmp_path):
    path = write(tmp_path / "a.tab", [icews(1), icews(2, sectors=",")])
    assert read_events(path, EventRecipe(actors="sector")).dropped == {"unknown actor": 1}


def test_members_of_one_name_and_hidden_ones(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("x.CSV", gdelt(1))
        with pytest.warns(UserWarning, match="Duplicate name"):
            archive.writestr("x.CSV", gdelt(2, s="GBR"))
        archive.writestr("__MACOSX/._x.CSV", "junk")
        archive.writestr("folder/", "")
    assert read_events(tmp_path / "a.zip").entities.labels == ("GBR", "RUS", "USA")


def test_blank_lines_first_and_a_file_without_lines(tmp_path):
    assert read_events(write(tmp_path / "a.csv", [""] * 5000 + [gdelt(1)])).rows == {"train": 1}
    with (tmp_path / "zeros.csv").open("wb") as file:
        file.truncate(1 << 30)
    with pytest.raises(UserError, match=r"zeros\.csv, line 1: 1 tab-separated columns"):
        read_events(tmp_path / "zeros.csv")


def test_pipes_are_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe.csv")
    with pytest.raises(UserError, match=r"pipe\.csv: a pipe or a device"):
        read_events(tmp_path / "pipe.csv")
    with pytest.raises(UserError, match="no event files were given"):
        read_events([])


def test_of_two_names_for_a_file_the_first_in_order(tmp_path):
    write(tmp_path / "b.csv", [gdelt(1)])
    (tmp_path / "a.csv").symlink_to(tmp_path / "b.csv")
    for order in (["a.csv", "b.csv"], ["b.csv", "a.csv"]):
        assert event_files([tmp_path / name for name in order]) == [tmp_path / "a.csv"]


def test_icews_knows_its_names(tmp_path):
    path = write(tmp_path / "a.tab", [icews(1)])
    graph = read_events(path, EventRecipe(predicates="name"), names=lambda: pytest.fail("not needed"))
    assert graph.predicates.labels == ("Make a visit",)


def test_files_are_taken_in_the_order_of_their_names_and_once(tmp_path):
    write(tmp_path / "b.csv", [gdelt(7, s="GBR")])
    write(tmp_path / "a.csv", [gdelt(7, s="USA")])
    graph = read_events([tmp_path / "b.csv", str(tmp_path / "*.csv"), tmp_path])
    assert set(labelled(graph)) == {("USA", "04", "RUS", "2012-01-05")}
    assert graph.dropped == {"repeated event id": 1}


def test_leading_zeros_come_back(tmp_path):
    path = write(
        tmp_path / "a.tab", [icews(1, code="42"), icews(2, code="311"), icews(3, code="10"), icews(4, code="190")]
    )
    graph = read_events([path], EventRecipe(predicates="code"))
    assert graph.predicates.labels == ("010", "0311", "042", "190")
    assert read_events([path]).predicates.labels == ("01", "03", "04", "19")


def test_names_of_codes_that_gdelt_leaves_out(tmp_path):
    path = write(tmp_path / "a.csv", [gdelt(1), gdelt(2, code="0311", root="03")])
    graph = read_events([path], EventRecipe(predicates="name"), names={"042": "Make a visit"})
    assert graph.predicates.labels == ("Make a visit",)
    assert graph.dropped == {"unknown event code": 1}
    with pytest.raises(UserError, match="GDELT has codes but no names"):
        read_events([path], EventRecipe(predicates="name"))


@pytest.mark.parametrize(
    ("rows", "complaint"),
    [
        (["a\tb"], "line 1: 2 tab-separated columns that begin with 'a'; wanted ICEWS"),
        (["\t".join("x" * 20)], "line 1: 20 tab-separated columns that begin with 'x'"),
        ([], "no rows; give ICEWS or GDELT"),
        ([gdelt(s="")], r"no event is left of 1 GDELT rows \(unknown actor: 1\); widen"),
        ([HEADER], r"no event is left of 0 ICEWS rows \(there are none\)"),
    ],
)
def test_files_that_hold_no_events(tmp_path, rows, complaint):
    with pytest.raises(UserError, match=complaint):
        read_events([write(tmp_path / "a.csv", rows)])


def test_other_complaints(tmp_path):
    a = write(tmp_path / "a.csv", [gdelt()])
    b = write(tmp_path / "b.tab", [HEADER, icews()])
    with pytest.raises(UserError, match=r"a\.csv is GDELT and .*b\.tab is ICEWS; build a graph of each"):
        read_events([a, b])
    with pytest.raises(UserError, match="no event files here"):
        read_events([tmp_path / "none*.csv"])
    (tmp_path / "bad.zip").write_bytes(b"PK no archive")
    with pytest.raises(UserError, match=r"bad\.zip: cannot be unpacked"):
        read_events([tmp_path / "bad.zip"])
    whole_file = gzip.compress(b"\n".join(gdelt(i).encode() for i in range(999)))
    (tmp_path / "cut.gz").write_bytes(whole_file[: len(whole_file) // 2])
    with pytest.raises(UserError, match=r"cut\.gz: cannot be unpacked"):
        read_events([tmp_path / "cut.gz"])


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"actors": "planets"}, "unknown actors 'planets'; choose one of name, country, sector"),
        ({"predicates": "x"}, "unknown predicates 'x'; choose one of code, name, root"),
        ({"grain": "hour"}, "dated by day"),
        ({"since": "soon"}, "cannot read 'soon' as a time; wanted a date like"),
        ({"since": "2019", "until": "2018-10"}, "nothing lies between 2019 and 2018-10"),
        ({"entities": 0}, "wanted at least 1"),
    ],
)
def test_recipes_are_checked(options, complaint):
    with pytest.raises(UserError, match=complaint):
        EventRecipe(**options)


def test_icews_raw_by_loops(real_data):
    paths = sorted((real_data / "icews-raw").glob("*.tab"))
    for recipe in (EventRecipe(), EventRecipe(actors="name", predicates="name", grain="month", entities=100)):
        agree(read_events([real_data / "icews-raw"], recipe), oracle(paths, recipe, "icews"), recipe)


@pytest.mark.parametrize("name", ["20191024143000.export.CSV", "gdelt-demo_events.csv"])
def test_gdelt_raw_by_loops(real_data, name):
    path = real_data / "gdelt-raw" / name
    for recipe in (EventRecipe(), EventRecipe(actors="name", predicates="code", grain="week", self_loops=False)):
        agree(read_events([path], recipe), oracle([path], recipe, "gdelt"), recipe)
