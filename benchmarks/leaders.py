"""Ask a memory of the leaders of the world who led which country when, and compare with the table by itself.

The table has columns subject, predicate, object, start and end, one row a tenure. What is true of a year is read from
it with polars alone: a leader led a country in a year if the tenure has a day in that year. An answer about a year may
name any of them.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

import recollect

PREDICATE = "leader of"
YEARS = (1900, 1944, 2000, 2015)
PREDICTED = 10  # answers that are looked at
NEAR = 25  # years between a predicted holder's tenures and the asked year, at most, that a reader believes

Report = dict[str, Any]


@dataclass(frozen=True)
class Tenures:
    """The rows of the table with whole years: leader, country, first and last year."""

    frame: pl.DataFrame

    @classmethod
    def read(cls, path: Path) -> Tenures:
        """Return the tenures of a CSV file; an open end lasts to the last year of the table."""
        table = pl.read_csv(path, infer_schema=False)
        years = table.select(
            leader="subject",
            country="object",
            first=pl.col("start").str.slice(0, 4).cast(pl.Int32),
            last=pl.col("end").str.slice(0, 4).cast(pl.Int32, strict=False),
        )
        newest = max(int(years[name].max() or 0) for name in ("first", "last"))  # type: ignore[arg-type]
        return cls(years.with_columns(pl.col("last").fill_null(newest)))

    def country_years(self) -> pl.DataFrame:
        """Return every country and year that has a leader, with the list of all of them: country, year, leaders."""
        ranges = self.frame.with_columns(year=pl.int_ranges("first", pl.col("last") + 1)).explode("year")
        return ranges.group_by("country", "year").agg(leaders=pl.col("leader").unique()).sort("country", "year")

    def holds(self, leader: str, country: str, year: int) -> bool:
        """Return whether a leader led a country in a year."""
        row = (pl.col("leader") == leader) & (pl.col("country") == country)
        return not self.frame.filter(row & (pl.col("first") <= year) & (pl.col("last") >= year)).is_empty()

    def is_near(self, leader: str, country: str, year: int) -> bool:
        """Return whether a leader led this country within NEAR years of a year."""
        row = (pl.col("leader") == leader) & (pl.col("country") == country)
        return not self.frame.filter(
            row & (pl.col("first") - NEAR <= year) & (pl.col("last") + NEAR >= year)
        ).is_empty()


def measure(path: Path, years: Sequence[int] = YEARS) -> Report:
    """Learn the table with all defaults, ask who led every country in every year, and what held in some years."""
    started = time.perf_counter()
    memory = recollect.Memory.learn(recollect.read(path))
    learned = time.perf_counter()
    tenures = Tenures.read(path)
    report = {"memory": repr(memory), "seconds to learn": learned - started, "recall": recall_all(memory, tenures)}
    report["seconds to recall"] = time.perf_counter() - learned
    report["know"] = [known_in(memory, tenures, year) for year in years]
    return report


def recall_all(memory: recollect.Memory, tenures: Tenures) -> Report:
    """Ask who led every country in every year that has a leader; right is a stored leader of that year, first."""
    asked = tenures.country_years()
    questions = asked.select(predicate=pl.lit(PREDICATE), object="country", time=pl.col("year").cast(pl.String))
    answers = memory.recall_many(questions, top=1)
    joined = (
        asked.with_row_index("query")
        .with_columns(pl.col("query").cast(pl.Int64))
        .join(answers.select("query", "subject", "status"), on="query", how="left")
    )
    is_right = (pl.col("status") == "stored") & pl.col("subject").is_in(pl.col("leaders"))
    right = joined.select(is_right.fill_null(value=False).alias("right"))["right"]
    wrong = joined.filter(~right).select("country", "year", "leaders", "subject", "status")
    return {"questions": len(asked), "right": right.mean(), "wrong": wrong.head(20).to_dicts()}


def known_in(memory: recollect.Memory, tenures: Tenures, year: int) -> Report:
    """Ask what held in a year: the share of stored answers that did, of true facts that are listed, and predictions."""
    stored = memory.know(predicate=PREDICATE, as_of=str(year), top=10_000, include="stored")
    holds = [tenures.holds(row["subject"], row["object"], year) for row in stored.iter_rows(named=True)]
    predicted = memory.know(predicate=PREDICATE, as_of=str(year), top=PREDICTED, include="predicted")
    rows = predicted.select("subject", "object", "probability").to_dicts()
    true = tenures.frame.filter((pl.col("first") <= year) & (pl.col("last") >= year)).select("leader", "country")
    return {
        "year": year,
        "stored": len(stored),
        "precision of stored": sum(holds) / max(len(holds), 1),
        "tenures in the year": true.n_unique(),
        "predicted": [row | {"near": tenures.is_near(row["subject"], row["object"], year)} for row in rows],
    }


def format_report(report: Report) -> list[str]:
    """Return the report as lines of text."""
    recall = report["recall"]
    lines = [
        f"{report['memory']}, learned in {report['seconds to learn']:.1f} s",
        f"who led X in Y? {recall['right']:.4f} of {recall['questions']:,} right, {report['seconds to recall']:.1f} s",
        *(f"  wrong: {row}" for row in recall["wrong"]),
    ]
    for known in report["know"]:
        lines.append(
            f"as of {known['year']}: {known['stored']} stored, precision {known['precision of stored']:.3f}; "
            f"{known['tenures in the year']} tenures have a day in that year"
        )
        lines += [
            f"  predicted {row['probability']:.3f}: {row['subject']}, {row['object']}"
            + ("" if row["near"] else ", far")
            for row in known["predicted"]
        ]
    return lines
