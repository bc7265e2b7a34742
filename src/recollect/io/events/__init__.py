"""Build an episodic graph from raw ICEWS or GDELT events, with every row accounted for.

rows = facts + duplicates + dropped rows of every reason
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

import polars as pl

from recollect.errors import UserError, check_process
from recollect.graph.facts import EpisodicGraph, Facts, sort_facts
from recollect.graph.times import GRAINS, TimeAxis, check_limits
from recollect.graph.vocabulary import Vocabulary
from recollect.io.events.files import ICEWS, EventFormat, common_format, event_files, unpack

__all__ = ["ENGINES", "EventRecipe", "Progress", "check_engine", "event_files", "read_events"]

ENGINES = ("duckdb", "spark")

Progress: TypeAlias = Callable[[int, int], None]  # bytes read so far, bytes in all

REPEATED = "repeated event id"
INFREQUENT = "entity not among the most frequent"


@dataclass(frozen=True, kw_only=True)
class EventRecipe:
    """How raw events become facts: actors, predicates, time grain, and which events are kept.

    Examples:
        >>> EventRecipe(actors="name", grain="week", since="2018-01").grain
        'week'
    """

    actors: str = "country"  # name, country or sector
    predicates: str = "root"  # CAMEO code, name or root
    grain: str = "day"
    since: str | None = None
    until: str | None = None  # included
    entities: int | None = None  # keep this many entities, the most frequent ones
    self_loops: bool = True
    counts: bool = False  # weight of a fact = its number of events; else every fact has weight 1

    def __post_init__(self) -> None:
        for name, choices in (("actors", tuple(ICEWS.actors)), ("predicates", ("code", "name", "root"))):
            given = getattr(self, name)
            if given not in choices:
                raise UserError(f"unknown {name} {given!r}; choose one of {', '.join(choices)}")
        if self.grain not in GRAINS[:5]:
            raise UserError(f"events are dated by day, so not by {self.grain!r}; choose one of {', '.join(GRAINS[:5])}")
        check_limits(self.since, self.until, "day")
        if self.entities is not None and self.entities < 1:
            raise UserError(f"cannot keep the {self.entities} most frequent entities; wanted at least 1")


def read_events(
    sources: str | Path | Sequence[str | Path],
    recipe: EventRecipe | None = None,
    *,
    names: Mapping[str, str] | Callable[[], Mapping[str, str]] | None = None,
    name: str = "events",
    progress: Progress | None = None,
    engine: str = "duckdb",
    master: str | None = None,
) -> EpisodicGraph:
    """Return the episodic graph of raw ICEWS or GDELT event files.

    `sources` are paths, folders or glob patterns of plain, gzipped or zipped files. `graph.rows`,
    `graph.duplicates` and `graph.dropped` account for every row. Of rows with the same event id one counts: that of
    the first file by name, and inside a file the first by subject, predicate, object and time.
    `names` maps CAMEO codes to event names, or is a function that returns such a mapping; GDELT files have no names.
    `engine` is duckdb or spark, which give the same graph; `master` is the address of a Spark cluster, whose machines
    must find the files at the same paths. By default Spark runs in the session that is active, or on this machine.

    Examples:
        >>> from pathlib import Path
        >>> from tempfile import TemporaryDirectory
        >>> event = ["2018-10-04", "A (USA)", "Social", "USA", "Visit", "042", "1.9", "B (RUS)", "Social", "RUS"]
        >>> with TemporaryDirectory() as folder:
        ...     file = Path(folder) / "events.tab"
        ...     lines = [["Event ID", "Event Date", *["x"] * 18], ["1", *event, *["x"] * 9]]
        ...     _ = file.write_text("\\n".join("\\t".join(line) for line in lines) + "\\n")
        ...     read_events(file).entities.labels
        ('RUS', 'USA')
    """
    check_process()
    check_engine(engine, master)
    recipe = recipe or EventRecipe()
    files = event_files([sources] if isinstance(sources, str | Path) else sources)
    event_format = common_format(files)
    code_names = _code_names(event_format, recipe, names)
    with tempfile.TemporaryDirectory(prefix="recollect-events-") as folder:
        if engine == "spark":
            from recollect.io.events.on_spark import run_on_spark

            table = run_on_spark(files, event_format, recipe, code_names, Path(folder), progress, master)
        else:
            from recollect.io.events.on_duckdb import run_on_duckdb

            table = run_on_duckdb(unpack(files, Path(folder)), event_format, recipe, code_names, Path(folder), progress)
    return _graph(table, recipe, event_format, name)


def check_engine(engine: str, master: str | None = None) -> None:
    """Raise UserError for an engine that does not exist or is not installed."""
    if engine not in ENGINES:
        raise UserError(f"unknown engine {engine!r}; choose one of {', '.join(ENGINES)}")
    if engine != "spark" and master is not None:
        raise UserError(f"{engine} has no master; leave out {master}, or choose the engine spark")
    if engine == "spark":
        from recollect.io.events.on_spark import check_spark

        check_spark()


def _code_names(
    event_format: EventFormat, recipe: EventRecipe, names: Mapping[str, str] | Callable[[], Mapping[str, str]] | None
) -> Mapping[str, str] | None:
    """Return the event names of CAMEO codes where the recipe needs them and the files have none, else None."""
    if recipe.predicates != "name" or event_format.text is not None:
        return None
    if names is None:
        raise UserError(f"{event_format.name} has codes but no names of events; give names= from CAMEO codes to names")
    return names() if callable(names) else names


def _graph(table: pl.DataFrame, recipe: EventRecipe, event_format: EventFormat, name: str) -> EpisodicGraph:
    """Return the graph of a table of facts and dropped rows."""
    rows = int(table["rows"].sum())
    drops = table.filter(pl.col("reason").is_not_null()).group_by("reason").agg(pl.col("rows").sum()).sort("reason")
    dropped: dict[str, int] = dict(drops.iter_rows())
    facts = _label_columns(table.filter(pl.col("reason").is_null()))
    dropped[REPEATED] = int((facts["rows"] - facts["events"]).sum())
    if recipe.entities is not None:
        kept = _most_frequent(facts, recipe.entities)
        inside = facts.filter(pl.col("subject").is_in(kept) & pl.col("object").is_in(kept))
        dropped[INFREQUENT] = int(facts["events"].sum()) - int(inside["events"].sum())
        facts = inside
    dropped = {reason: count for reason, count in dropped.items() if count}
    if facts.is_empty():
        why = "; ".join(f"{reason}: {count:,}" for reason, count in dropped.items()) or "there are none"
        raise UserError(f"no event is left of {rows:,} {event_format.name} rows ({why}); widen what is kept")
    entities = Vocabulary.of("entity", pl.concat([facts["subject"], facts["object"]]).unique())
    predicates = Vocabulary.of("predicate", facts["predicate"].unique())
    times = TimeAxis.spanning(recipe.grain, [facts["time"].min(), facts["time"].max()])  # type: ignore[list-item]
    duplicates = int(facts["events"].sum()) - facts.height
    graph = EpisodicGraph(entities, predicates, times, {}, name, duplicates, {"train": rows}, dropped)
    train = Facts.from_columns(
        entities.ids(facts["subject"]),
        predicates.ids(facts["predicate"]),
        entities.ids(facts["object"]),
        (facts["time"] - times.first).to_torch(),
    )
    if recipe.counts:
        train = replace(train, weight=facts["events"].cast(pl.Float32).to_torch())
    return replace(graph, splits={"train": sort_facts(train, graph.sizes)})


def _label_columns(facts: pl.DataFrame) -> pl.DataFrame:
    """Split the column `fact` into subject, predicate, object and time."""
    names = ["subject", "predicate", "object", "time"]
    columns = pl.col("fact").str.split_exact("\t", 3).struct.rename_fields(names)
    return facts.select(columns, "rows", "events").unnest("fact").with_columns(pl.col("time").cast(pl.Int64))


def _most_frequent(facts: pl.DataFrame, count: int) -> list[str]:
    """Return the entities with the most events; ties are broken by label."""
    sides = [facts.select("events", entity=role) for role in ("subject", "object")]
    events = pl.concat(sides).group_by("entity").agg(pl.col("events").sum())
    return events.sort("events", "entity", descending=[True, False]).head(count)["entity"].to_list()
