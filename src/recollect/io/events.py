"""Raw events of ICEWS and GDELT, streamed into an episodic graph.

Files of any size are cut into blocks of whole rows. A block becomes the wanted columns, every row is kept or
dropped for one named reason, and kept rows are counted per (subject, predicate, object, time). So memory
grows with the graph and the event ids, not with the files, and rows = facts + duplicates + what was dropped.
"""

from __future__ import annotations

import array
import math
import os
import re
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Lock

import numpy as np
import numpy.typing as npt
import polars as pl
import torch
from pyroaring import BitMap64

from recollect.errors import UserError
from recollect.graph.facts import EpisodicGraph, Facts, Vocabulary
from recollect.graph.times import GRAINS, TimeAxis, check_limits, moment, time_bin, within
from recollect.io.blocks import Block, blocks, event_files, first_lines
from recollect.io.fields import split_block

PENDING_ROWS = 1 << 22  # kept rows between two counts, at least

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
    counts: bool = False  # the number of its events as the weight of a fact; else only presence

    def __post_init__(self) -> None:
        for name, choices in (("actors", tuple(ICEWS.actors)), ("predicates", ("code", "name", "root"))):
            if (given := getattr(self, name)) not in choices:
                raise UserError(f"unknown {name} {given!r}; choose one of {', '.join(choices)}")
        if self.grain not in GRAINS[:4]:
            raise UserError(f"events are dated by day, so not by {self.grain!r}; choose one of {', '.join(GRAINS[:4])}")
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
) -> EpisodicGraph:
    """An episodic graph of raw ICEWS or GDELT event files: paths, folders or patterns, plain, gzipped or zipped.

    `graph.rows`, `graph.duplicates` and `graph.dropped` account for every row. Of events with the same id the
    first counts, files in the order of their names. `names` gives the names of CAMEO codes, or a function that does,
    for GDELT leaves them out.
    """
    recipe = recipe or EventRecipe()
    files = event_files([sources] if isinstance(sources, str | Path) else sources)
    form = _common_form(files)
    told: Mapping[str, str] = {}
    if recipe.predicates == "name" and form.text is None:
        if names is None:
            raise UserError(f"{form.name} has codes but no names of events; give names= from CAMEO codes to names")
        told = names() if callable(names) else names
    task = _BlockTask(form, recipe, told)
    tally = _Tally(task.entities, task.predicates)
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


class _Names:
    """Labels numbered as they come; threads share it, so numbers differ from run to run."""

    def __init__(self) -> None:
        self._ids: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._ids)

    def id(self, label: str) -> int:
        return self._ids.setdefault(label, len(self._ids))

    @property
    def labels(self) -> list[str]:
        return list(self._ids)


_UNREAD, _OUTSIDE, _UNSEEN = -(2**62), -(2**61), -(2**60)  # in place of a number


class _Texts:
    """The distinct texts of a column, which are few beside its rows, and the number that each stands for."""

    def __init__(self, meaning: Callable[[str], int]) -> None:
        self._meaning = meaning
        self._type = pl.Categorical(pl.Categories.random())
        self._kept = pl.Series(dtype=self._type)  # without a column of theirs polars would begin to code anew
        self._numbers = np.zeros(0, np.int64)

    def numbers(self, texts: pl.Series) -> npt.NDArray[np.int64]:
        """What texts stand for; each distinct one is looked at once, by one thread at a time."""
        codes = texts.cast(self._type).to_physical().to_numpy()
        if len(codes) and not self._all_seen(codes):
            with _READING:
                distinct, rows = np.unique(codes, return_index=True)
                grown = np.full(max(len(self._numbers), int(distinct[-1]) + 1), _UNSEEN)
                grown[: len(self._numbers)] = self._numbers
                new = grown[distinct] == _UNSEEN
                # texts of this block only: what another thread is coding cannot be read back yet
                grown[distinct[new]] = [self._meaning(text) for text in texts.gather(rows[new])]
                self._numbers = grown
        return self._numbers[codes]

    def _all_seen(self, codes: npt.NDArray[np.uint32]) -> bool:
        numbers = self._numbers
        return int(codes.max()) < len(numbers) and not bool((numbers[codes] == _UNSEEN).any())


_READING = Lock()


@dataclass(frozen=True)
class _Kept:
    """What one block gave: events and the numbers of their s, p, o, t, and why other rows were dropped."""

    rows: int
    events: npt.NDArray[np.uint64]  # distinct
    ids: npt.NDArray[np.int64]  # (n, 4)
    dropped: Counter[str]
    advance: int


class _BlockTask:
    """From a block to kept rows; runs in worker threads, which share what texts stand for."""

    def __init__(self, form: Form, recipe: EventRecipe, names: Mapping[str, str]) -> None:
        self._form, self._recipe, self._names = form, recipe, names
        self.entities, self.predicates = _Names(), _Names()
        self._actors, self._events, self._dates = _Texts(self._actor), _Texts(self._predicate), _Texts(self._bin)
        self._told = self._told_columns()

    def __call__(self, block: Block) -> _Kept:
        form, recipe = self._form, self._recipe
        subject, object_ = form.actors[recipe.actors]
        wanted = {form.event, form.date, subject, object_, *self._told}
        split = split_block(*block.bytes(), sorted(wanted), (subject, object_), form.widths)
        dropped = Counter({MALFORMED: split.malformed, NO_ACTOR: split.incomplete})
        readable = split.frame.drop_nulls()
        dropped[BAD_TEXT] = split.frame.height - readable.height
        event = readable[str(form.event)].cast(pl.UInt64, strict=False)
        told = readable.select(pl.concat_str([str(column) for column in self._told], separator="\t")).to_series()
        ids = np.stack(
            [
                self._actors.numbers(readable[str(subject)]),
                self._events.numbers(told),
                self._actors.numbers(readable[str(object_)]),
                self._dates.numbers(readable[str(form.date)]),
            ],
            axis=1,
        )
        s, p, o, t = ids.T
        asked = {
            NO_ACTOR: (s == _UNREAD) | (o == _UNREAD),
            BAD_ID: event.is_null().to_numpy(),
            BAD_DATE: t == _UNREAD,
            OUTSIDE: t == _OUTSIDE,
            NO_CODE: p == _UNREAD,
            SELF_LOOP: (s == o) & (not recipe.self_loops),
        }
        kept = np.ones(len(ids), bool)
        for reason, holds in asked.items():
            dropped[reason] += int((kept & holds).sum())
            kept &= ~holds
        # the first row of every event, in the order of events
        events, first = np.unique(event.fill_null(0).to_numpy()[kept], return_index=True)
        dropped[REPEATED] = int(kept.sum()) - len(events)
        return _Kept(split.rows, events, ids[kept][first], dropped, block.advance)

    def _told_columns(self) -> tuple[int, ...]:
        """The columns that tell the predicate."""
        form = self._form
        if self._recipe.predicates == "name" and form.text is not None:
            return (form.text,)
        if form.root is None:
            return (form.code,)
        return (form.root,) if self._recipe.predicates == "root" else (form.code, form.root)

    def _actor(self, text: str) -> int:
        if self._recipe.actors == "sector":  # in ICEWS a list in any order
            text = ",".join(sorted({part for part in text.split(",") if part}))
        return self.entities.id(text) if text else _UNREAD

    def _predicate(self, text: str) -> int:
        """The number of the event's name, code or root."""
        if self._told == (self._form.text,):
            return self.predicates.id(text) if text else _UNREAD
        code, both, root = text.partition("\t")
        whole = whole_code(code, root if both else code if self._told == (self._form.root,) else None)
        if whole is not None and self._recipe.predicates == "root":
            whole = whole[:2]
        if whole is not None and self._recipe.predicates == "name":
            whole = self._names.get(whole)
        return _UNREAD if whole is None else self.predicates.id(whole)

    def _bin(self, text: str) -> int:
        """The bin of a date at the recipe's grain."""
        read = moment(text)
        if read is None or read[1] != "day":
            return _UNREAD
        if not within(text, self._recipe.since, self._recipe.until, "day"):
            return _OUTSIDE
        found = time_bin(text, self._recipe.grain)
        return _UNREAD if found is None else found


def whole_code(code: str, root: str | None = None) -> str | None:
    """A CAMEO code with its leading zeros; None unless it begins with 01 to 20.

    A root that is told decides. Without one, an event code has at least three digits, and its first two are a
    root: 42 is 042, and 311 is 0311.

    >>> [whole_code(code) for code in ("42", "010", "311", "190", "x")]
    ['042', '010', '0311', '190', None]
    >>> whole_code("10", root="1"), whole_code("10", root="10"), whole_code("4", root="4")
    ('010', '10', '04')
    """
    if not re.fullmatch("[0-9]{1,4}", code):
        return None
    for spelling in (code, "0" + code):
        right = len(spelling) >= 3 if root is None else spelling[:2] == root.zfill(2)
        if right and "01" <= spelling[:2] <= "20":
            return spelling
    return None


@dataclass
class _Cells:
    """Distinct facts by one number each, in order, and how often each was told.

    A number has the digits s, p, o and t, as `facts.number` has them; times count from `first`. Sorted numbers
    are counted and merged several times as fast as rows in a hash table.
    """

    sizes: tuple[int, int, int, int] = (1, 1, 1, 1)
    first: int = 0
    numbers: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    counts: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))

    def digits(self) -> list[npt.NDArray[np.int64]]:
        """The columns s, p, o and t of all cells."""
        left, columns = self.numbers, []
        for size in reversed(self.sizes):
            left, digits = np.divmod(left, size)
            columns.append(digits)
        columns[0] += self.first
        return columns[::-1]

    def number(self, columns: Iterable[npt.NDArray[np.int64]]) -> npt.NDArray[np.int64]:
        s, p, o, t = columns
        _, predicates, entities, times = self.sizes
        return ((s * predicates + p) * entities + o) * times + (t - self.first)

    def merged(self, rows: list[npt.NDArray[np.int64]], entities: int, predicates: int) -> _Cells:
        """These cells and rows of s, p, o and t."""
        times = [t for ids in rows if len(ids) for t in (int(ids[:, 3].min()), int(ids[:, 3].max()))]
        if len(self.numbers):
            times += [self.first, self.first + self.sizes[3] - 1]
        first, last = min(times), max(times)
        sizes = (entities, predicates, entities, last - first + 1)
        if math.prod(sizes) >= 2**62:
            raise UserError(
                f"{entities:,} entities and {last - first + 1:,} times are more than 64 bits can number; "
                "narrow the dates (since, until) or choose a coarser grain"
            )
        grown = _Cells(sizes, first)
        known = self.numbers if (sizes, first) == (self.sizes, self.first) else grown.number(self.digits())
        new, told = np.unique(np.concatenate([grown.number(ids.T) for ids in rows]), return_counts=True)
        both = np.concatenate([known, new])
        order = both.argsort(kind="stable")  # two sorted runs: one merge
        both, counts = both[order], np.concatenate([self.counts, told])[order]
        starts = np.flatnonzero(np.diff(both, prepend=-1))
        return _Cells(sizes, first, both[starts], np.add.reduceat(counts, starts))


@dataclass
class _Tally:
    """What all blocks gave, and the events that were seen; blocks must come in order."""

    entities: _Names
    predicates: _Names
    rows: int = 0
    bytes: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    seen: BitMap64 = field(default_factory=BitMap64)
    cells: _Cells = field(default_factory=_Cells)
    pending: list[npt.NDArray[np.int64]] = field(default_factory=list)
    pending_rows: int = 0

    def add_(self, kept: _Kept) -> None:
        self.rows += kept.rows
        self.bytes += kept.advance
        self.dropped += kept.dropped
        ids = kept.ids
        here = BitMap64(array.array("Q", kept.events.tobytes()))
        if repeated := self.seen.intersection_cardinality(here):
            ids = ids[~np.isin(kept.events, np.array((self.seen & here).to_array(), np.uint64))]
            self.dropped[REPEATED] += repeated
        self.seen |= here
        self.pending.append(ids)
        self.pending_rows += len(ids)
        if self.pending_rows >= max(PENDING_ROWS, len(self.cells.numbers)):
            self.count_()

    def count_(self) -> None:
        """Fold the pending rows into the cells."""
        if self.pending_rows:
            self.cells = self.cells.merged(self.pending, len(self.entities), len(self.predicates))
            self.pending, self.pending_rows = [], 0


def _tell(progress: Progress | None, tally: _Tally) -> None:
    if progress is not None:
        progress(tally.bytes, tally.rows)


def _graph(tally: _Tally, recipe: EventRecipe, form: Form, name: str) -> EpisodicGraph:
    tally.count_()
    (s, p, o, t), counts = tally.cells.digits(), tally.cells.counts
    names, dropped = tally.entities.labels, tally.dropped
    if recipe.entities is not None:
        kept = _most_frequent(s, o, counts, names, recipe.entities)
        inside = kept[s] & kept[o]
        dropped[INFREQUENT] = int(counts[~inside].sum())
        s, p, o, t, counts = (column[inside] for column in (s, p, o, t, counts))
    told = {reason: count for reason, count in dropped.items() if count}
    if not len(counts):
        why = "; ".join(f"{reason}: {count:,}" for reason, count in told.items()) or "there are none"
        raise UserError(f"no event is left of {tally.rows:,} {form.name} rows ({why}); widen what is kept")
    entities, new_entity = _vocabulary("entity", names, s, o)
    predicates, new_predicate = _vocabulary("predicate", tally.predicates.labels, p)
    times = TimeAxis.spanning(recipe.grain, [int(t.min()), int(t.max())])
    # numbered anew by label, so that ids and the order of facts do not depend on the order of rows
    cells = _Cells((len(entities), len(predicates), len(entities), len(times)), times.first)
    numbers = cells.number((new_entity[s], new_predicate[p], new_entity[o], t))
    order = torch.from_numpy(numbers).argsort().numpy()  # faster than numpy's
    s, p, o, t = replace(cells, numbers=numbers[order], first=0).digits()
    weight = torch.from_numpy(counts[order].astype(np.float32)) if recipe.counts else None
    ids = Facts.from_columns(*(torch.from_numpy(column) for column in (s, p, o, t))).ids
    return EpisodicGraph(
        entities,
        predicates,
        times,
        {"train": Facts(ids, None, weight)},
        name,
        duplicates=int(counts.sum()) - len(counts),
        rows={"train": tally.rows},
        dropped=told,
    )


def _vocabulary(
    kind: str, names: list[str], *columns: npt.NDArray[np.int64]
) -> tuple[Vocabulary, npt.NDArray[np.int64]]:
    """The vocabulary of the numbers in use, and the id of every one of them."""
    used = np.flatnonzero(np.sum([np.bincount(column, minlength=len(names)) for column in columns], axis=0)).tolist()
    vocabulary = Vocabulary.of(kind, (names[number] for number in used))
    ids = np.full(len(names), -1)
    ids[used] = [vocabulary.index(names[number]) for number in used]
    return vocabulary, ids


def _most_frequent(
    s: npt.NDArray[np.int64], o: npt.NDArray[np.int64], counts: npt.NDArray[np.int64], names: list[str], entities: int
) -> npt.NDArray[np.bool_]:
    """Which entities have the most events, ties by label."""
    busy = np.sum([np.bincount(column, weights=counts, minlength=len(names)) for column in (s, o)], axis=0)
    order = sorted(range(len(names)), key=lambda number: (-busy[number], names[number]))
    kept = np.zeros(len(names), bool)
    kept[order[:entities]] = True
    return kept


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
