"""The data model: facts (subject, predicate, object, time) as integer ids, and graphs with splits.

`Facts` is a table of four id columns. An `EpisodicGraph` holds facts by split together with the vocabularies and the
time axis of their ids.
"""

from __future__ import annotations

import hashlib
import math
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import polars as pl
import torch
from torch import Tensor

from recollect.errors import UserError, check_process
from recollect.graph.times import TimeAxis
from recollect.graph.vocabulary import Vocabulary

SLOTS = "spot"
SLOT_NAMES = {"s": "subject", "p": "predicate", "o": "object", "t": "time"}
KINDS = {"s": "entity", "p": "predicate", "o": "entity", "t": "time"}
ORDER = "tpso"  # of sorted batches, queries and known facts: neighbours share the factors of time and predicate
SPLITS = ("train", "valid", "test")


def parse_slot(name: str) -> str:
    """Return the letter of a slot, given its letter or its name.

    >>> parse_slot("object"), parse_slot("t")
    ('o', 't')
    """
    for slot, word in SLOT_NAMES.items():
        if name in (slot, word):
            return slot
    raise UserError(f"unknown slot {name!r}; choose among {SLOTS} or {', '.join(SLOT_NAMES.values())}")


def parse_slots(text: str) -> str:
    """Return the distinct slot letters of `text`, which has letters, or letters and words separated by commas.

    >>> parse_slots("spot"), parse_slots("subject,time")
    ('spot', 'st')
    """
    is_list = "," in text or text in SLOT_NAMES.values()
    names = text.split(",") if is_list else list(text)
    slots = [parse_slot(name.strip()) for name in names]
    return "".join(dict.fromkeys(slots))


@dataclass(frozen=True, eq=False, repr=False)
class Facts:
    """A table of n facts: one id per slot s, p, o, t; optionally a value (default True) and a weight (default 1).

    Examples:
        >>> facts = Facts.of([(0, 1, 2, 3), (4, 1, 2, 5)])
        >>> facts
        Facts(2 facts)
        >>> facts.t.tolist(), len(facts[facts.s == 4])
        ([3, 5], 1)
    """

    ids: Tensor  # (n, 4) int64, columns in the order of SLOTS
    value: Tensor | None = None  # (n,) bool; None: every fact is True
    weight: Tensor | None = None  # (n,) float32; None: every fact has weight 1

    @classmethod
    def of(cls, rows: Sequence[Sequence[int]]) -> Facts:
        """Return facts from n rows of four ids (s, p, o, t)."""
        return cls(torch.tensor(rows, dtype=torch.int64).reshape(-1, len(SLOTS)))

    @classmethod
    def from_columns(cls, s: Tensor, p: Tensor, o: Tensor, t: Tensor) -> Facts:
        """Return facts from four columns of ids, (n,) each."""
        return cls(torch.stack([s, p, o, t], dim=1))

    @classmethod
    def concat(cls, parts: Iterable[Facts]) -> Facts:
        """Concatenate facts. Defaults fill in the values or weights that only some of the parts have."""
        parts = list(parts)
        if not parts:
            return cls.of([])
        value = weight = None
        if any(part.value is not None for part in parts):
            value = torch.cat([part.truth for part in parts])
        if any(part.weight is not None for part in parts):
            weight = torch.cat([part.weight if part.weight is not None else torch.ones(len(part)) for part in parts])
        return cls(torch.cat([part.ids for part in parts]), value, weight)

    def __len__(self) -> int:
        return len(self.ids)

    def __repr__(self) -> str:
        columns = {"values": self.value, "weights": self.weight}
        extras = [name for name, column in columns.items() if column is not None]
        return f"Facts({len(self):,} facts{' with ' if extras else ''}{' and '.join(extras)})"

    def __getitem__(self, rows: Tensor | slice) -> Facts:
        """Return the selected rows: by a slice, a mask (n,) bool, or indices (m,) int64."""
        if isinstance(rows, Tensor) and rows.dtype == torch.int64 and rows.dim() == 1:
            return self._map(lambda column: column.index_select(0, rows))  # several times as fast as indexing
        return self._map(lambda column: column[rows])

    def column(self, slot: str) -> Tensor:
        """Return the ids of one slot: (n,)."""
        return self.ids[:, SLOTS.index(slot)]

    @property
    def s(self) -> Tensor:
        return self.column("s")

    @property
    def p(self) -> Tensor:
        return self.column("p")

    @property
    def o(self) -> Tensor:
        return self.column("o")

    @property
    def t(self) -> Tensor:
        return self.column("t")

    @property
    def truth(self) -> Tensor:
        """The values with the default filled in: (n,) bool."""
        return torch.ones(len(self), dtype=torch.bool) if self.value is None else self.value

    def true(self) -> Facts:
        """Return the facts whose value is True."""
        return self if self.value is None else self[self.value]

    def with_slot(self, slot: str, ids: Tensor | int) -> Facts:
        """Return a copy with the ids of one slot replaced, by a column (n,) or by one id for all facts."""
        columns = self.ids.clone()
        columns[:, SLOTS.index(slot)] = ids
        return replace(self, ids=columns)

    def split(self, rows: int) -> Iterator[Facts]:
        """Yield consecutive chunks of at most `rows` facts."""
        for start in range(0, len(self), rows):
            yield self[start : start + rows]

    def to(self, device: torch.device) -> Facts:
        """Return the facts on another device."""
        return self._map(lambda column: column.to(device))

    def _map(self, change: Callable[[Tensor], Tensor]) -> Facts:
        """Return the facts with `change` applied to ids, value and weight."""
        value = None if self.value is None else change(self.value)
        weight = None if self.weight is None else change(self.weight)
        return Facts(change(self.ids), value, weight)


def check_cells(sizes: Mapping[str, int], slots: str = SLOTS) -> None:
    """Raise UserError if a graph of these sizes has more cells of the given slots than `encode` can number."""
    if math.prod(sizes[KINDS[slot]] for slot in slots) >= 2**62:
        raise UserError(
            f"a graph of {dict(sizes)} has more cells than 64 bits can number; keep fewer entities or times"
        )


def encode(facts: Facts, sizes: Mapping[str, int], order: str = SLOTS) -> Tensor:
    """Encode the given slots of each fact as one integer: (n,).

    The ids are the digits of a mixed-radix number, the first slot of `order` the most significant. Equal codes mean
    equal slots, and sorting by code sorts by the slots in turn.

    >>> encode(Facts.of([(1, 0, 2, 3)]), {"entity": 10, "predicate": 10, "time": 10}).item()
    1023
    """
    check_cells(sizes, order)
    codes = torch.zeros(len(facts), dtype=torch.int64, device=facts.ids.device)
    for slot in order:
        codes = codes * sizes[KINDS[slot]] + facts.column(slot)
    return codes


def stable_sort(numbers: Tensor) -> tuple[Tensor, Tensor]:
    """Return `torch.sort(numbers, stable=True)` of non-negative integers: sorted values (n,), indices (n,)."""
    index_bits = len(numbers).bit_length()
    if numbers.device.type != "cpu" or not index_bits or int(numbers.max()).bit_length() + index_bits > 62:
        return torch.sort(numbers, stable=True)
    # (value, index) packed into one integer: NumPy sorts those several times as fast as PyTorch sorts pairs
    packed = np.sort((numbers.numpy() << index_bits) | np.arange(len(numbers)))
    return torch.from_numpy(packed >> index_bits), torch.from_numpy(packed & ((1 << index_bits) - 1))


def is_sorted(numbers: Tensor) -> bool:
    """Return whether numbers (n,) are in ascending order."""
    return bool((numbers[1:] >= numbers[:-1]).all())


def concat_ranges(starts: Tensor, lengths: Tensor) -> Tensor:
    """Concatenate the ranges starts[i], …, starts[i] + lengths[i] − 1: (k,), (k,) -> (Σ lengths,).

    >>> concat_ranges(torch.tensor([5, 0]), torch.tensor([2, 3])).tolist()
    [5, 6, 0, 1, 2]
    """
    shift = torch.repeat_interleave(starts - (lengths.cumsum(0) - lengths), lengths)
    return shift.add_(torch.arange(len(shift)))


def check_ids(slot: str, ids: Tensor, count: int) -> None:
    """Raise IndexError unless every id is in [0, count). Compiled kernels do no bounds checks."""
    if not ids.numel():
        return
    low, high = map(int, ids.aminmax())
    if low < 0 or high >= count:
        raise IndexError(f"{SLOT_NAMES[slot]} ids must be from 0 to {count - 1}")


def distinct(facts: Facts, sizes: Mapping[str, int]) -> Facts:
    """Return each distinct fact once, its first occurrence, sorted by (s, p, o, t)."""
    codes, order = stable_sort(encode(facts, sizes))
    is_first = torch.ones(len(order), dtype=torch.bool)
    is_first[1:] = codes[1:] != codes[:-1]
    return facts[order[is_first]]


def merge_equal(facts: Facts, sizes: Mapping[str, int]) -> tuple[Facts, Tensor]:
    """Return each distinct fact once, sorted, with weights added, and the position of each fact among them: (n,)."""
    merged = distinct(facts, sizes)
    position = torch.searchsorted(encode(merged, sizes), encode(facts, sizes))
    if facts.weight is not None:
        weight = torch.zeros(len(merged)).index_add_(0, position, facts.weight)
        merged = replace(merged, weight=weight)
    return merged, position


def sort_facts(facts: Facts, sizes: Mapping[str, int]) -> Facts:
    """Return the facts sorted by (s, p, o, t)."""
    return facts[encode(facts, sizes).argsort()]


class LazySplits(Mapping[str, Facts]):
    """Splits whose facts are built when they are first read, from something smaller."""

    @abstractmethod
    def counts(self) -> dict[str, int]:
        """Return the number of facts of each split, without building them."""

    @abstractmethod
    def describe(self, name: str) -> str:
        """Return the size of a split in words."""

    @abstractmethod
    def columns(self, name: str) -> list[Tensor | None]:
        """Return the tensors that a split is built from."""


@dataclass(frozen=True, eq=False, repr=False)
class EpisodicGraph:
    """Facts by split, with the vocabularies and the time axis of their ids. An unsplit graph has only `train`.

    Examples:
        >>> from recollect import dataset
        >>> graph = dataset("world", countries=4, years=1)
        >>> graph.counts
        {'train': 270, 'valid': 33, 'test': 33}
        >>> graph.sizes
        {'entity': 12, 'predicate': 7, 'time': 12}
        >>> graph.times.span
        'month, 2000-01 to 2000-12'
        >>> graph.table(graph.split("train")).columns
        ['subject', 'predicate', 'object', 'time']
    """

    entities: Vocabulary
    predicates: Vocabulary
    times: TimeAxis
    splits: Mapping[str, Facts]
    name: str = "graph"
    duplicates: int = 0  # facts merged into an equal one when the graph was read
    rows: Mapping[str, int] = field(default_factory=dict)  # rows read per split, where that is known
    dropped: Mapping[str, int] = field(default_factory=dict)  # rows that gave no fact, by reason
    notes: tuple[str, ...] = ()  # sentences about choices that were made when the graph was read

    def __repr__(self) -> str:
        lazy = self.splits if isinstance(self.splits, LazySplits) else None
        sizes_of = {name: lazy.describe(name) if lazy else f"{len(self.splits[name]):,}" for name in self.splits}
        splits = ", ".join(f"{name} {size}" for name, size in sizes_of.items())
        sizes = f"{len(self.entities):,} entities × {len(self.predicates):,} predicates × {len(self.times):,} times"
        return f"EpisodicGraph({self.name!r}, facts: {splits or 'none'}; {sizes} ({self.times.span}))"

    @property
    def counts(self) -> dict[str, int]:
        """The number of facts of each split."""
        if isinstance(self.splits, LazySplits):
            return self.splits.counts()
        return {name: len(facts) for name, facts in self.splits.items()}

    @property
    def facts(self) -> Facts:
        """The facts of all splits."""
        check_process()
        return Facts.concat(self.splits.values())

    def filter_splits(self, split: str) -> list[str]:
        """Return the splits that filtered ranks of a split leave out: all, but test only for test."""
        return [name for name in self.splits if name != "test" or split == "test"]

    @property
    def sizes(self) -> dict[str, int]:
        """The number of entities, predicates and times, by kind."""
        return {"entity": len(self.entities), "predicate": len(self.predicates), "time": len(self.times)}

    def split(self, name: str) -> Facts:
        """Return the facts of one split, or raise UserError with the names of those there are."""
        self.check_split(name)
        return self.splits[name]

    def check_split(self, name: str) -> None:
        """Raise UserError with the names of the splits unless there is one of this name."""
        check_process()
        if name not in self.splits:
            raise UserError(f"{self.name} has no {name!r} split; it has {', '.join(self.splits)}")

    def axis(self, slot: str) -> Vocabulary | TimeAxis:
        """Return the map between labels and ids of a slot."""
        axes: list[Vocabulary | TimeAxis] = [self.entities, self.predicates, self.entities, self.times]
        return axes[SLOTS.index(slot)]

    def table(self, facts: Facts) -> pl.DataFrame:
        """Return facts as labels, with columns subject, predicate, object and time."""
        return pl.DataFrame({name: self.axis(slot).take(facts.column(slot)) for slot, name in SLOT_NAMES.items()})

    def with_splits(self, splits: Mapping[str, Facts]) -> EpisodicGraph:
        """Return the graph with these splits; `rows` (rows read per split) is cleared if the names differ."""
        return replace(self, splits=splits, rows=self.rows if splits.keys() == self.rows.keys() else {})

    @cached_property
    def fingerprint(self) -> str:
        """The SHA-256 of labels, times and facts: equal graphs have equal fingerprints. Saved files depend on it."""
        digest = hashlib.sha256()
        for vocabulary in (self.entities, self.predicates):
            for start in range(0, len(vocabulary), 2**16):  # in blocks: a text of all labels may take gigabytes
                labels = "".join(f"{len(label)}:{label}" for label in vocabulary.labels[start : start + 2**16])
                digest.update(labels.encode("utf-8", "surrogatepass"))
            digest.update(b"\1")
        times = self.times
        axis = f"TimeAxis(grain={times.grain!r}, first={times.first}, size={times.size}, step={times.step})"
        digest.update(axis.encode())
        for name in self.splits:
            ids, *extras = self._columns(name)
            digest.update(name.encode() + (b"" if ids is None else ids.contiguous().numpy().tobytes()))
            for extra in extras:
                digest.update(b"\2" if extra is None or not len(extra) else extra.contiguous().numpy().tobytes())
        return digest.hexdigest()

    def _columns(self, name: str) -> list[Tensor | None]:
        """Return the tensors that a split consists of: ids, then what is optional."""
        if isinstance(self.splits, LazySplits):
            return self.splits.columns(name)
        facts = self.splits[name]
        return [facts.ids, facts.value, facts.weight]
