"""Raw events of ICEWS and GDELT, streamed into an episodic graph.

Files of any size are cut into blocks of whole rows. A block becomes the wanted columns, every row is kept or
dropped for one named reason, and kept rows are counted per (subject, predicate, object, time). So memory
grows with the graph, not with the files, and rows = facts + duplicates + what was dropped.
"""

from __future__ import annotations

import array
import os
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import polars as pl
import torch
from pyroaring import BitMap64

from recollect.errors import UserError
from recollect.facts import EpisodicGraph, Facts, Vocabulary, in_order
from recollect.sources.blocks import Block, blocks, event_files, first_lines
from recollect.sources.fields import split_block
from recollect.times import GRAINS, TimeAxis, moment, time_bin

PENDING_ROWS = 1 << 20  # kept rows between two counts

# why a row is dropped, in the order in which it is asked
MALFORMED = "malformed row"
NO_ACTOR = "unknown actor"
BAD_TEXT = "text is not UTF-8"
BAD_ID = "event id is no whole number"
BAD_DATE = "unreadable date"
OUTSIDE = "outside the dates"
NO_CODE = "unknown event code"
SELF_LOOP = "self-loop"
REPEATED = "repeated event id"
INFREQUENT = "entity not among the most frequent"

Progress = Callable[[int, int], None]  # bytes of the files read so far, rows so far
_CELL = ("s", "p", "o", "t")
_SCHEMA = {"s": pl.Categorical, "p": pl.Categorical, "o": pl.Categorical, "t": pl.Int32, "n": pl.Int64}


@dataclass(frozen=True)
class Form:
    """How a publisher writes raw events: widths, and the positions of the columns that matter."""

    name: str
    widths: tuple[int, ...]
    header: str | None  # the first cell of the header line, where there is one
    date: int
    code: int
    root: int | None
    text: int | None  # the event's name
    actors: Mapping[str, tuple[int, int]]  # kind -> the columns of subject and object
    event: int = 0


ICEWS = Form(
    "ICEWS",
    (20,),
    "Event ID",
    date=1,
    code=6,
    root=None,
    text=5,
    actors={"name": (2, 8), "country": (4, 10), "sector": (3, 9)},
)
# version 1 has 58 columns, or 57 before it had addresses (April 2013); version 2 has 61, the first thirty alike
GDELT = Form(
    "GDELT",
    (57, 58, 61),
    None,
    date=1,
    code=26,
    root=28,
    text=None,
    actors={"name": (6, 16), "country": (7, 17), "sector": (12, 22)},
)
FORMS = (ICEWS, GDELT)


@dataclass(frozen=True, kw_only=True)
class EventRecipe:
    """What becomes of raw events: who counts as an actor, what as a predicate, how fine time is, what is kept."""

    actors: str = "country"  # name, country or sector
    predicates: str = "root"  # CAMEO code, name or root
    grain: str = "day"
    since: str | None = None
    until: str | None = None  # included
    entities: int | None = None  # keep so many, the most frequent
    self_loops: bool = True
    counts: bool = True  # the number of events as the weight of a fact; else only presence

    def __post_init__(self) -> None:
        for name, choices in (("actors", tuple(ICEWS.actors)), ("predicates", ("code", "name", "root"))):
            if (given := getattr(self, name)) not in choices:
                raise UserError(f"unknown {name} {given!r}; choose one of {', '.join(choices)}")
        if self.grain not in GRAINS[:4]:
            raise UserError(f"events are dated by day, so not by {self.grain!r}; choose one of {', '.join(GRAINS[:4])}")
        for limit in (self.since, self.until):
            if limit is not None and (moment(limit) or (None, "hour"))[1] == "hour":
                raise UserError(f"cannot read {limit!r} as a date; write it like 2018-10-04, 2018-10 or 2018")
        if self.entities is not None and self.entities < 1:
            raise UserError(f"cannot keep the {self.entities} most frequent entities; wanted at least 1")


def read_events(
    sources: Sequence[str | Path],
    recipe: EventRecipe | None = None,
    *,
    names: Mapping[str, str] | None = None,
    name: str = "events",
    progress: Progress | None = None,
) -> EpisodicGraph:
    """An episodic graph of raw ICEWS or GDELT event files: paths, folders or patterns, plain, gzipped or zipped.

    `graph.rows`, `graph.duplicates` and `graph.dropped` account for every row. Of events with the same id the
    first counts, files in the order of their names. `names` gives the names of CAMEO codes, which GDELT leaves out.
    """
    recipe = recipe or EventRecipe()
    files = event_files(sources)
    form = _common_form(files)
    if recipe.predicates == "name" and form.text is None and names is None:
        raise UserError(f"{form.name} has codes but no names of events; give names= from CAMEO codes to names")
    tally = _Tally()
    task = _BlockTask(form, recipe, names)
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        running: deque[Future[_Kept]] = deque()
        for block in blocks(files, form.header):
            running.append(pool.submit(task, block))
            if len(running) > 2 * (os.cpu_count() or 1):
                tally.add_(running.popleft().result())
                _tell(progress, tally)
        while running:
            tally.add_(running.popleft().result())
            _tell(progress, tally)
    return _graph(tally, recipe, form, name)


@dataclass
class _Kept:
    """What one block gave: kept rows with event, s, p, o and t, and why the others were dropped."""

    rows: int
    frame: pl.DataFrame
    dropped: Counter[str]
    advance: int


@dataclass(frozen=True)
class _BlockTask:
    """From a block to kept rows; runs in worker threads and shares nothing but its settings."""

    form: Form
    recipe: EventRecipe
    names: Mapping[str, str] | None
    dates: dict[str, int | None] = field(default_factory=dict)  # as they were read

    def __call__(self, block: Block) -> _Kept:
        form, recipe = self.form, self.recipe
        subject, object_ = form.actors[recipe.actors]
        roles = {"event": form.event, "date": form.date, "s": subject, "o": object_, **self._predicate_roles()}
        split = split_block(*block.bytes(), sorted(set(roles.values())), (subject, object_), form.widths)
        dropped = Counter({MALFORMED: split.malformed, NO_ACTOR: split.incomplete})
        frame = split.frame.select(**{role: pl.col(str(column)) for role, column in roles.items()})

        def keep(reason: str, condition: pl.Expr) -> pl.DataFrame:
            kept = frame.filter(condition)
            dropped[reason] += frame.height - kept.height
            return kept

        frame = keep(BAD_TEXT, pl.all_horizontal(pl.all().is_not_null()))
        frame = frame.with_columns(
            pl.col("event").cast(pl.UInt64, strict=False), s=self._actor("s"), o=self._actor("o")
        )
        frame = keep(BAD_ID, pl.col("event").is_not_null())
        frame = _with_distinct(frame, "t", ["date"], self._times)
        frame = keep(BAD_DATE, pl.col("t").is_not_null())
        frame = keep(OUTSIDE, pl.col("t") != _OUTSIDE_BIN)
        frame = _with_distinct(frame, "p", list(self._predicate_roles()), self._predicates)
        frame = keep(NO_CODE, pl.col("p").is_not_null())
        if not recipe.self_loops:
            frame = keep(SELF_LOOP, pl.col("s") != pl.col("o"))
        kept = frame.select("event", pl.col("s", "p", "o").cast(pl.Categorical), "t")  # lets go of the block's text
        return _Kept(split.rows, kept, dropped, block.advance)

    def _predicate_roles(self) -> dict[str, int]:
        form = self.form
        if self.recipe.predicates == "name" and form.text is not None:
            return {"text": form.text}
        if self.recipe.predicates == "root" and form.root is not None:
            return {"root": form.root}
        return {"code": form.code} | ({} if form.root is None else {"root": form.root})

    def _actor(self, role: str) -> pl.Expr:
        actor = pl.col(role)
        if self.recipe.actors == "sector" and self.form is ICEWS:  # a list in any order
            actor = actor.str.split(",").list.sort().list.unique(maintain_order=True).list.join(",")
        return actor

    def _predicates(self, told: pl.DataFrame) -> pl.Series:
        """The event's name, its code with the leading zeros it may have lost, or its root; null if unknown."""
        if "text" in told.columns:
            return told.select(pl.when(pl.col("text") != "").then("text")).to_series()
        code = whole_codes(told)
        if self.recipe.predicates == "root":
            return code.str.head(2)
        if self.recipe.predicates == "name":
            return code.replace_strict(dict(self.names or {}), default=None, return_dtype=pl.String)
        return code

    def _times(self, told: pl.DataFrame) -> pl.Series:
        """The bin of every date at the recipe's grain; null where it cannot be read."""
        for label in told["date"]:
            if label not in self.dates:
                self.dates[label] = self._read_date(label)
        return pl.Series([self.dates[label] for label in told["date"]], dtype=pl.Int32)

    def _read_date(self, label: str) -> int | None:
        read = moment(label)
        if read is None or read[1] != "day":
            return None
        for limit, order in ((self.recipe.since, 1), (self.recipe.until, -1)):
            if limit is not None:
                grain = (moment(limit) or read)[1]
                at, edge = time_bin(label, grain), time_bin(limit, grain)
                if at is not None and edge is not None and order * (at - edge) < 0:
                    return _OUTSIDE_BIN
        return time_bin(label, self.recipe.grain)


_OUTSIDE_BIN = -(2**31)


def _with_distinct(
    frame: pl.DataFrame, name: str, columns: list[str], make: Callable[[pl.DataFrame], pl.Series]
) -> pl.DataFrame:
    """With a column that `make` gives for the distinct values of others: they are few, so each is looked at once."""
    distinct = frame.select(columns).unique()
    return frame.join(distinct.with_columns(make(distinct).alias(name)), on=columns, how="left", maintain_order="left")


def whole_codes(told: pl.DataFrame) -> pl.Series:
    """CAMEO codes with their leading zeros; null unless they begin with 01 to 20.

    A root in a column of its own decides. Without one, an event code has at least three digits, and its
    first two are a root: 42 is 042, and 311 is 0311.

    >>> whole_codes(pl.DataFrame({"code": ["42", "010", "311", "190", "x"]})).to_list()
    ['042', '010', '0311', '190', None]
    >>> whole_codes(pl.DataFrame({"code": ["10", "10"], "root": ["1", "10"]})).to_list()
    ['010', '10']
    """
    root = pl.col("root").str.zfill(2)
    code = pl.col("code") if "code" in told.columns else root
    digits = pl.when(code.str.contains("^[0-9]{1,4}$")).then(code)
    padded = pl.concat_str(pl.lit("0"), digits)
    if "root" not in told.columns:
        short = (digits.str.len_bytes() < 3) | (digits.str.head(2) > "20")
        whole = pl.when(short).then(padded).otherwise(digits)
    else:
        whole = pl.when(digits.str.head(2) == root).then(digits).when(padded.str.head(2) == root).then(padded)
    return told.select(pl.when(whole.str.head(2).is_between(pl.lit("01"), pl.lit("20"))).then(whole)).to_series()


@dataclass
class _Tally:
    """Kept rows counted per (s, p, o, t), and events that were seen; blocks must come in order."""

    rows: int = 0
    bytes: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    seen: BitMap64 = field(default_factory=BitMap64)
    cells: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=_SCHEMA))
    pending: list[pl.DataFrame] = field(default_factory=list)
    pending_rows: int = 0

    def add_(self, kept: _Kept) -> None:
        self.rows += kept.rows
        self.bytes += kept.advance
        self.dropped += kept.dropped
        frame = self._first_seen_(kept.frame)
        self.dropped[REPEATED] += kept.frame.height - frame.height
        self.pending.append(frame.select(*_CELL, n=pl.lit(1, pl.Int64)))
        self.pending_rows += frame.height
        if self.pending_rows >= PENDING_ROWS:
            self.count_()

    def count_(self) -> pl.DataFrame:
        """Fold the pending rows into the cells."""
        self.cells = pl.concat([self.cells, *self.pending]).group_by(_CELL).agg(pl.col("n").sum())
        self.pending, self.pending_rows = [], 0
        return self.cells

    def _first_seen_(self, frame: pl.DataFrame) -> pl.DataFrame:
        """The rows whose event was not seen before."""
        events = frame["event"].to_numpy()
        here = BitMap64(array.array("Q", events.tobytes()))
        if len(here) < len(events) or self.seen.intersection_cardinality(here):
            before = np.array((self.seen & here).to_array(), np.uint64)
            frame = frame.unique("event", keep="first", maintain_order=True)
            frame = frame.filter(~pl.Series(np.isin(frame["event"].to_numpy(), before)))
        self.seen |= here
        return frame


def _tell(progress: Progress | None, tally: _Tally) -> None:
    if progress is not None:
        progress(tally.bytes, tally.rows)


def _graph(tally: _Tally, recipe: EventRecipe, form: Form, name: str) -> EpisodicGraph:
    cells = tally.count_().with_columns(pl.col("s", "p", "o").cast(pl.String))
    dropped = Counter(tally.dropped)
    if recipe.entities is not None:
        every = int(cells["n"].sum())
        cells = _among_most_frequent(cells, recipe.entities)
        dropped[INFREQUENT] = every - int(cells["n"].sum())
    dropped = Counter({reason: count for reason, count in dropped.items() if count})
    if not cells.height:
        why = "; ".join(f"{reason}: {count:,}" for reason, count in dropped.items()) or "there are none"
        raise UserError(f"no event is left of {tally.rows:,} {form.name} rows ({why}); widen what is kept")
    entities = Vocabulary.of("entity", pl.concat([cells["s"], cells["o"]]).unique().to_list())
    predicates = Vocabulary.of("predicate", cells["p"].unique().to_list())
    times = TimeAxis.spanning(recipe.grain, cells["t"].unique().to_list())
    bins = torch.from_numpy(cells["t"].cast(pl.Int64).to_numpy(writable=True))
    facts = Facts.from_columns(
        entities.ids(cells["s"]), predicates.ids(cells["p"]), entities.ids(cells["o"]), bins - times.first
    )
    weight = torch.from_numpy(cells["n"].cast(pl.Float32).to_numpy(writable=True)) if recipe.counts else None
    sizes = {"entity": len(entities), "predicate": len(predicates), "time": len(times)}
    return EpisodicGraph(
        entities,
        predicates,
        times,
        {"train": in_order(Facts(facts.ids, None, weight), sizes)},
        name,
        duplicates=int(cells["n"].sum()) - cells.height,
        rows={"train": tally.rows},
        dropped=dict(dropped),
    )


def _among_most_frequent(cells: pl.DataFrame, entities: int) -> pl.DataFrame:
    """The cells among the entities with the most events, ties by label."""
    both = pl.concat([cells.select(label=role, n="n") for role in ("s", "o")])
    counts = both.group_by("label").agg(pl.col("n").sum()).sort("n", "label", descending=[True, False])
    kept = counts["label"].head(entities).implode()
    return cells.filter(pl.col("s").is_in(kept) & pl.col("o").is_in(kept))


def _common_form(files: Sequence[Path]) -> Form:
    """The one form in which all files are written."""
    found = {form.name: (form, path) for path in files for lines in first_lines(path) if (form := _form(lines, path))}
    if not found:
        raise UserError(f"{files[0]}: no rows; give ICEWS or GDELT event files")
    if len(found) > 1:
        both = " and ".join(f"{path} is {name}" for name, (_, path) in found.items())
        raise UserError(f"{both}; build a graph of each")
    return next(iter(found.values()))[0]


def _form(lines: list[bytes], path: Path) -> Form | None:
    """The form of the first line that has one; None where there are no lines."""
    for line in lines:
        cells = line.decode("utf-8-sig", "replace").split("\t")
        for form in FORMS:
            if len(cells) in form.widths and (cells[form.event].isdecimal() or cells[form.event] == form.header):
                return form
    if not lines:
        return None
    cells = lines[0].decode("utf-8", "replace").split("\t")
    raise UserError(
        f"{path}, line 1: {len(cells)} tab-separated columns that begin with {cells[0][:40]!r}; "
        "wanted ICEWS events (20 columns) or GDELT events (57, 58 or 61)"
    )
