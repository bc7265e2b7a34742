"""Tables as people have them, from file to a right answer by two commands: `train FILE [one option]`, then a question.

Every table imitates the form of a real one, with invented names and numbers: its delimiter, header, dates, open ends
and columns that say nothing. `answers` are what a reader of the file would say; each must be stored.
"""

from __future__ import annotations

import gzip
import json
import shlex
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest


@dataclass(frozen=True)
class Wild:
    """A table, the one option that reads it, a question, and the column and values of its stored answers."""

    name: str
    content: str | Callable[[Path], None]
    question: str
    column: str
    answers: set[str]
    option: str

    def __str__(self) -> str:
        return self.name


def zipped(path: Path) -> None:
    """Write matches with the time of day, numbered and quoted as R does, compressed."""
    rows = [
        '"","HomeTeam","AwayTeam","HomeGoals","AwayGoals","Round","Date"',
        '"1","Rovers","United",3,2,1,1963-08-24 09:30:00',
        '"2","Albion","County",1,1,1,1963-08-24 09:30:00',
        '"3","United","Albion",0,1,2,1963-08-31 15:00:00',
        '"4","County","Rovers",2,2,2,1963-08-31 15:00:00',
        '"5","Rovers","Albion",4,0,3,1963-09-07 15:00:00',
    ]
    path.write_bytes(gzip.compress("\n".join(rows).encode()))


def database(path: Path) -> None:
    """Write a table of memberships into an SQLite file."""
    rows = [
        ("Aldland", "Northern Pact", "1990-01-01", "1999-12-31"),
        ("Borland", "Northern Pact", "1990-01-01", None),
        ("Corland", "Southern League", "1995-06-01", None),
        ("Aldland", "Southern League", "2001-03-01", None),
    ]
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE memberships (country TEXT, alliance TEXT, since TEXT, until TEXT)")
        connection.executemany("INSERT INTO memberships VALUES (?, ?, ?, ?)", rows)
    connection.close()


TABLES = [
    # office holders: semicolons, day-first dates, an office without an end
    Wild(
        "ministers.csv",
        "Name;Office;Party;From;To\n"
        "Anna Berg;Foreign Minister;Blue;22.11.2005;27.11.2005\n"
        "Carl Dorn;Foreign Minister;Yellow;28.11.2005;16.12.2005\n"
        "Eva Falk;Foreign Minister;Red;17.12.2005;present\n"
        "Gert Holm;Minister of Finance;Red;22.11.2005;27.11.2005\n"
        "Ida Jung;Minister of Finance;Blue;28.11.2005;present\n",
        "recall --predicate Office --object 'Foreign Minister' --time 2005-12-05",
        "subject",
        {"Carl Dorn"},
        "--columns subject=Name,object=Office",
    ),
    # a war's coalitions: month-first dates without zeros, a flag
    Wild(
        "coalitions.csv",
        "country,enter,exit,side\n"
        "Aldland,8/4/1914,9/11/1914,West\nBorland,8/1/1914,9/11/1914,East\nCorland,8/29/1914,8/30/1914,East\n"
        "Dorland,7/28/1914,8/25/1914,West\nErland,8/23/1914,9/11/1914,West\n",
        "know --predicate side --object West --as-of 1914-08-10",
        "subject",
        {"Aldland", "Dorland"},
        "--columns subject=country,object=side,start=enter,end=exit",
    ),
    # managers of a club: month names, a month, a year, a footnote-free open end, an empty column
    Wild(
        "managers.csv",
        "Image,Name,Nationality,From,To,P,W\n"
        ",Al Gray,Aldland,1889,26 May 1900,351,156\n"
        ",Jim Best,Aldland,27 May 1900,September 1903,113,46\n"
        ",Ern Dale,Borland,10 October 1903,9 September 1912,373,202\n"
        ",Tom Wall,Corland,9 September 1912,Present,6,3\n",
        "recall --predicate Nationality --object Aldland --time 1902",
        "subject",
        {"Jim Best"},
        "--columns subject=Name,object=Nationality",
    ),
    # another club: ISO dates and a role
    Wild(
        "coaches.csv",
        "manager_name,date_from,date_to,role\n"
        "Bert Cook,1921-08-27,1921-09-06,Secretary\nJack Carr,1921-09-02,1921-09-12,Manager\n"
        "Jim Know,1921-09-10,1921-09-18,Secretary\nJim Mort,1921-09-18,1921-09-28,Manager\n"
        "Bill Ridd,1921-10-02,1921-10-09,Manager\n",
        "recall --predicate role --object Manager --time 1921-09-20",
        "subject",
        {"Jim Mort"},
        "--columns subject=manager_name,object=role",
    ),
    # software: rows shorter than the header, ends in the future
    Wild(
        "releases.csv",
        "version,codename,series,created,release,eol,eol-lts\n"
        "4.10,Wary Wolf,wary,2004-03-05,2004-10-20,2004-11-30\n"
        "5.04,Happy Hen,happy,2004-10-20,2004-11-08,2004-12-03\n"
        "5.10,Brave Bear,brave,2004-11-08,2004-11-12,2004-12-13\n"
        "6.06,Deft Duck,deft,2004-11-12,2004-12-01,2004-12-24,2005-06-01\n",
        "know --as-of 2004-12-05",
        "subject",
        {"Brave Bear", "Deft Duck"},
        "--columns subject=codename,object=version,start=release,end=eol",
    ),
    # software: an object of records, keyed by version
    Wild(
        "schedule.json",
        json.dumps(
            {
                "v4": {"start": "2015-09-08", "end": "2015-09-30", "codename": "Argon"},
                "v6": {"start": "2015-09-26", "end": "2015-11-03", "codename": "Boron"},
                "v8": {"start": "2015-10-05", "end": "2015-11-10", "codename": "Carbon"},
            }
        ),
        "know --as-of 2015-10-20",
        "subject",
        {"v6", "v8"},
        "--columns subject=key,object=codename",
    ),
    # matches: a list of records
    Wild(
        "football.json",
        json.dumps(
            [
                {"date": "2013-07-20", "home_team": "Rovers", "away_team": "United", "home_score": 2},
                {"date": "2013-07-20", "home_team": "Albion", "away_team": "County", "home_score": 1},
                {"date": "2013-07-27", "home_team": "United", "away_team": "Albion", "home_score": 0},
                {"date": "2013-08-03", "home_team": "Rovers", "away_team": "County", "home_score": 3},
            ]
        ),
        "recall --subject Rovers --predicate away_team --time 2013-08-03",
        "object",
        {"County"},
        "--columns subject=home_team,object=away_team",
    ),
    # events: a line of JSON each, Unix seconds
    Wild(
        "logins.jsonl",
        '{"user": "ann", "host": "alpha", "timestamp": 1262304000}\n'
        '{"user": "bob", "host": "beta", "timestamp": 1262390400}\n'
        '{"user": "ann", "host": "gamma", "timestamp": 1262476800}\n'
        '{"user": "cat", "host": "alpha", "timestamp": 1262563200}\n',
        "recall --subject ann --predicate host --time 2010-01-03",
        "object",
        {"gamma"},
        "--columns subject=user,object=host",
    ),
    # matches: compressed, numbered rows, times of day
    Wild(
        "league.csv.gz",
        zipped,
        "recall --subject Rovers --predicate AwayTeam --time 1963-09-07",
        "object",
        {"Albion"},
        "--columns subject=HomeTeam,object=AwayTeam",
    ),
    # memberships: a database with one table
    Wild(
        "pacts.sqlite",
        database,
        "know --subject Aldland",
        "object",
        {"Southern League"},
        "--columns subject=country,object=alliance",
    ),
    # a clinical table: numbered patients, names with dots
    Wild(
        "trial.csv",
        "rownames,id,inst,trt,entry.dt,end.dt,fev\n"
        "1,P1,North,placebo,1992-03-20,1992-09-04,28.8\n2,P2,North,active,1992-03-24,1992-09-09,64\n"
        "3,P3,South,active,1992-06-24,1992-12-08,67.2\n4,P4,South,placebo,1992-07-26,1993-01-10,57.6\n",
        "know --predicate trt --object active --as-of 1992-11",
        "subject",
        {"P3"},
        "--columns subject=id,object=trt,start=entry.dt,end=end.dt",
    ),
    # follow-up: states from and to are no dates, days since the start are no years
    Wild(
        "states.csv",
        "rownames,id,from,to,trans,Tstart,Tstop,status,treat\n"
        "1,a,well,ill,1,0,151,1,Placebo\n2,a,ill,dead,2,151,251,1,Placebo\n"
        "3,b,well,ill,1,0,90,1,Drug\n4,b,ill,well,3,90,400,0,Drug\n",
        "know --subject b --as-of 200",
        "object",
        {"ill"},
        "--columns subject=id,object=from,start=Tstart,end=Tstop",
    ),
    # awards: a year alone
    Wild(
        "awards.csv",
        "rownames,no,year,award,name,movie,age\n"
        "1,1,1929,Best actress,Jane Gay,Seventh,22\n2,1,1929,Best actor,Emil Jan,The Way,44\n"
        "3,2,1930,Best actress,Mary Pick,Coquette,37\n4,2,1930,Best actor,Warner Bax,Old,38\n",
        "recall --predicate award --object 'Best actress' --time 1930",
        "subject",
        {"Mary Pick"},
        "--columns subject=name,object=award",
    ),
    # heads of state: years that a spreadsheet made decimal numbers, an empty end
    Wild(
        "heads.csv",
        "rownames,head,party,start,end,deputy\n"
        "1,Ann Ash,Blue,1789,1797.0,Bob Birch\n2,Bob Birch,Red,1797,1801.0,Cat Cedar\n3,Cat Cedar,Red,1801,,Dan Doe\n",
        "know --as-of 1799 --predicate party",
        "subject",
        {"Bob Birch"},
        "--columns subject=head,object=party",
    ),
    # quarters
    Wild(
        "suppliers.tsv",
        "Quarter\tCompany\tSupplier\n1981 Q1\tAcme\tNorth\n1981 Q2\tAcme\tSouth\n1981 Q2\tBest\tNorth\n"
        "1981 Q3\tAcme\tEast\n1981 Q4\tBest\tEast\n",
        "recall --subject Acme --predicate Supplier --time 1981-Q2",
        "object",
        {"South"},
        "--columns subject=Company,object=Supplier",
    ),
    # a sensor: a state for every hour
    Wild(
        "station.csv",
        "station,timestamp,weather\n"
        "Hill,2012-01-01T00:00:00Z,drizzle\nHill,2012-01-01T01:00:00Z,rain\nHill,2012-01-01T02:00:00Z,sun\n"
        "Dale,2012-01-01T00:00:00Z,sun\nDale,2012-01-01T01:00:00Z,fog\n",
        "recall --subject Hill --predicate weather --time 2012-01-01T01",
        "object",
        {"rain"},
        "--columns subject=station,object=weather",
    ),
    # company officers: an end in the year 9999
    Wild(
        "officers.csv",
        "company,position,officer,appointed,resigned\n"
        "Acme,CEO,Ann Ash,2001-02-01,2001-02-20\nAcme,CEO,Bob Birch,2001-02-21,9999-12-31\n"
        "Best,CEO,Cat Cedar,2001-01-11,9999-12-31\nAcme,CFO,Dan Doe,2001-02-05,2001-03-14\n",
        "recall --predicate CEO --object Acme --time 2001-03",
        "subject",
        {"Bob Birch"},
        "--columns subject=officer,predicate=position,object=company,start=appointed,end=resigned",
    ),
    # neighbours: two codes, months without a dash
    Wild(
        "borders.csv",
        "dyad,statelno,statelab,statehno,statehab,conttype,begin,end,notes,version\n"
        '2020,2,"ALD",20,"BOR",1,192001,192112,"from the start",3.2\n'
        '2031,2,"ALD",31,"COR",4,192107,192112,"across the sea, at most 24 miles",3.2\n'
        '2040,20,"BOR",40,"DOR",1,191905,192012,,3.2\n',
        "know --subject ALD --as-of 1921-03",
        "object",
        {"BOR"},
        "--columns subject=statelab,object=statehab",
    ),
    # states: unknown dates and empty cells
    Wild(
        "states-of-old.csv",
        "COWID,StateName,OtherName,Region,Start,End,Capital\n"
        "ABJ,Abuja,Suleja,West,1828-01-01,1902-12-31,Abuja\nACH,Aceh,,East,1816-01-01,1874-12-31,Kutaraja\n"
        "AFG,Afghania,,East,1816-01-01,2011-12-31,Kabul\nALB,Albia,,North,1913-01-01,2011-12-31,\n",
        "know --predicate Capital --as-of 1850",
        "object",
        {"Abuja", "Kutaraja", "Kabul"},
        "--columns subject=StateName,object=Capital",
    ),
]


@pytest.mark.parametrize("wild", TABLES, ids=str)
def test_a_table_as_people_have_it_answers_after_two_commands(run, tmp_path, monkeypatch, wild):
    monkeypatch.chdir(tmp_path)
    if callable(wild.content):
        wild.content(tmp_path / wild.name)
    else:
        (tmp_path / wild.name).write_text(wild.content, encoding="utf-8")
    option = shlex.split(wild.option)
    assert len(option) <= 2
    code, _, error = run("train", wild.name, *option)
    assert code == 0, error
    (memory,) = tmp_path.glob("*.memory")
    verb, *question = shlex.split(wild.question)
    code, out, error = run(verb, memory.name, *question, "--json")
    assert code == 0, error
    stored = [row for row in json.loads(out) if row["status"] == "stored"]
    assert wild.answers == {row[wild.column] for row in stored}, out
