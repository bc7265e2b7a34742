"""Facts (subject, predicate, object, time) as ids, and the labels behind the ids.

Everything here is plain data: `Facts` are rows of four ids, a `Vocabulary` and a `TimeAxis` turn
labels into ids and back, and an `EpisodicGraph` is all three with named splits.
"""

from __future__ import annotations

import difflib
import hashlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import polars as pl
import torch
from torch import Tensor

from recollect.errors import UserError
from recollect.graph.times import TimeAxis

SLOTS = "spot"
SLOT_NAMES = {"s": "subject", "p": "predicate", "o": "object", "t": "time"}
KINDS = {"s": "entity", "p": "predicate", "o": "entity", "t": "time"}
ORDER = "tpso"  # of batches, ranked and known facts: one time, then predicate, together, so large factors stay in place
SPLITS = ("train", "valid", "test")


def parse_slot(name: str) -> str:
    """The slot letter of `name`, given as a letter or a word.

    >>> parse_slot("object"), parse_slot("t")
    ('o', 't')
    """
    for slot, word in SLOT_NAMES.items():
        if name in (slot, word):
            return slot
    raise UserError(f"unknown slot {name!r}; choose among {SLOTS} or {', '.join(SLOT_NAMES.values())}")


def parse_slots(text: str) -> str:
    """Slot letters of `text`, given together or as words between commas, each once.

    >>> parse_slots("spot"), parse_slots("subject,time")
    ('spot', 'st')
    """
    words = text.split(",") if "," in text or text in SLOT_NAMES.values() else list(text)
    return "".join(dict.fromkeys(parse_slot(word.strip()) for word in words))


@dataclass(frozen=True, eq=False)
class Facts:
    """Rows of ids with named columns s p o t; a fact may carry a value (True) and a weight (1).

    >>> facts = Facts.of([(0, 1, 2, 3), (4, 1, 2, 5)])
    >>> facts.t.tolist(), len(facts[facts.s == 4])
    ([3, 5], 1)
    """

    ids: Tensor  # (n, 4) int64, columns in the order of SLOTS
    value: Tensor | None = None  # (n,) bool; None: every fact is True
    weight: Tensor | None = None  # (n,) float32; None: every fact weighs 1

    @classmethod
    def of(cls, rows: Sequence[Sequence[int]]) -> Facts:
        return cls(torch.tensor(rows, dtype=torch.int64).reshape(-1, len(SLOTS)))

    @classmethod
    def from_columns(cls, s: Tensor, p: Tensor, o: Tensor, t: Tensor) -> Facts:
        return cls(torch.stack([s, p, o, t], dim=1))

    @classmethod
    def concat(cls, parts: Iterable[Facts]) -> Facts:
        """All rows of `parts`, in order; an absent value or weight is filled in where another part has one."""
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

    def __getitem__(self, rows: Tensor | slice) -> Facts:
        if isinstance(rows, Tensor) and rows.dtype == torch.int64 and rows.dim() == 1:
            return self._map(lambda column: column.index_select(0, rows))  # several times as fast
        return self._map(lambda column: column[rows])

    def column(self, slot: str) -> Tensor:
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
        """The value of each fact, (n,) bool."""
        return torch.ones(len(self), dtype=torch.bool) if self.value is None else self.value

    def true(self) -> Facts:
        """Only the facts whose value is True."""
        return self if self.value is None else self[self.value]

    def with_slot(self, slot: str, ids: Tensor | int) -> Facts:
        """The same facts with one slot replaced: fact b gets id ids[b], or all the one id."""
        columns = self.ids.clone()
        columns[:, SLOTS.index(slot)] = ids
        return replace(self, ids=columns)

    def split(self, rows: int) -> Iterator[Facts]:
        """Consecutive pieces of at most `rows` facts."""
        for start in range(0, len(self), rows):
            yield self[start : start + rows]

    def to(self, device: torch.device) -> Facts:
        return self._map(lambda column: column.to(device))

    def _map(self, change: Callable[[Tensor], Tensor]) -> Facts:
        return Facts(change(self.ids), *(None if x is None else change(x) for x in (self.value, self.weight)))


def number(facts: Facts, sizes: Mapping[str, int], order: str = SLOTS) -> Tensor:
    """One number a fact, the slots of `order` read as digits, most significant first: (n,).

    >>> number(Facts.of([(1, 0, 2, 3)]), {"entity": 10, "predicate": 10, "time": 10}).item()
    1023
    """
    if math.prod(sizes[KINDS[slot]] for slot in order) >= 2**62:
        raise UserError(
            f"a graph of {dict(sizes)} has more cells than 64 bits can number; keep fewer entities or times"
        )
    numbers = torch.zeros(len(facts), dtype=torch.int64, device=facts.ids.device)
    for slot in order:
        numbers = numbers * sizes[KINDS[slot]] + facts.column(slot)
    return numbers


def stable_sort(numbers: Tensor) -> tuple[Tensor, Tensor]:
    """Whole numbers from 0 in order, and where each of them stood, equal ones as they came: (n,), (n,)."""
    bits = len(numbers).bit_length()
    if numbers.device.type != "cpu" or not bits or int(numbers.max()).bit_length() + bits > 62:
        return torch.sort(numbers, stable=True)
    both = np.sort((numbers.numpy() << bits) | np.arange(len(numbers)))  # several times as fast as PyTorch's
    return torch.from_numpy(both >> bits), torch.from_numpy(both & ((1 << bits) - 1))


def is_sorted(numbers: Tensor) -> bool:
    return bool((numbers[1:] >= numbers[:-1]).all())


def runs(begin: Tensor, sizes: Tensor) -> Tensor:
    """begin[0], begin[0] + 1, …, as many as sizes[0], then those of the next: (Σ sizes,).

    >>> runs(torch.tensor([5, 0]), torch.tensor([2, 3])).tolist()
    [5, 6, 0, 1, 2]
    """
    shift = torch.repeat_interleave(begin - (sizes.cumsum(0) - sizes), sizes)
    return shift.add_(torch.arange(len(shift)))


def check_ids(slot: str, ids: Tensor, count: int) -> None:
    """Ids of a slot that are not from 0 to count − 1: the kernels do not look."""
    low, high = map(int, ids.aminmax()) if ids.numel() else (0, count - 1)
    if low < 0 or high >= count:
        raise IndexError(f"{SLOT_NAMES[slot]} ids must be from 0 to {count - 1}")


def distinct(facts: Facts, sizes: Mapping[str, int]) -> Facts:
    """Each fact once, in the order of its number."""
    numbers, order = stable_sort(number(facts, sizes))
    new = torch.ones(len(order), dtype=torch.bool)
    new[1:] = numbers[1:] != numbers[:-1]
    return facts[order[new]]


def in_order(facts: Facts, sizes: Mapping[str, int]) -> Facts:
    """The same facts in the order of their numbers."""
    return facts[number(facts, sizes).argsort()]


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """Label ⇄ id, in code point order, so that ids do not depend on the order of rows.

    >>> Vocabulary.of("entity", ["Syria", "Turkey", "Syria"]).index("Turkey")
    1
    """

    kind: str
    labels: tuple[str, ...]

    @classmethod
    def of(cls, kind: str, labels: Iterable[str]) -> Vocabulary:
        return cls(kind, tuple(sorted(set(labels))))

    def __len__(self) -> int:
        return len(self.labels)

    @cached_property
    def _ids(self) -> dict[str, int]:
        return {label: i for i, label in enumerate(self.labels)}

    def index(self, label: str) -> int:
        label = str(label)
        if label in self._ids:
            return self._ids[label]
        raise UserError(f"unknown {self.kind} {label!r}; {self._suggestion(label)}")

    def ids(self, labels: pl.Series) -> Tensor:
        """The ids of a column of labels, all of them known: (n,) -> (n,)."""
        index = labels.cast(pl.Enum(list(self.labels))).to_physical()
        return torch.from_numpy(index.cast(pl.Int64).to_numpy(writable=True))

    def take(self, ids: Tensor) -> list[str]:
        return [self.labels[i] for i in ids.tolist()]

    def _suggestion(self, label: str) -> str:
        folded = {known.casefold(): known for known in reversed(self.labels)}
        close = difflib.get_close_matches(label.casefold(), folded, n=3, cutoff=0.6)
        if not close:
            close = [known for known in folded if label.casefold() in known][:3] if label else []
        if not close:
            return f"there are {len(self):,}, such as {', '.join(map(repr, self.labels[:3]))}"
        return f"did you mean {' or '.join(repr(folded[c]) for c in close)}?"


@dataclass(frozen=True, eq=False)
class EpisodicGraph:
    """Facts, the labels behind them, and their splits; an unsplit graph has only `train`."""

    entities: Vocabulary
    predicates: Vocabulary
    times: TimeAxis
    splits: Mapping[str, Facts]
    name: str = "graph"
    duplicates: int = 0  # facts merged into an equal one when the graph was read
    rows: Mapping[str, int] = field(default_factory=dict)  # read for each split, where that is known
    dropped: Mapping[str, int] = field(default_factory=dict)  # rows that gave no fact, by reason

    @property
    def facts(self) -> Facts:
        """The facts of all splits."""
        return Facts.concat(self.splits.values())

    def known_by(self, split: str) -> Facts:
        """What the filter of a split's ranks knows: all facts; of the test split only where that is ranked."""
        return Facts.concat([facts for name, facts in self.splits.items() if name != "test" or split == "test"])

    @property
    def sizes(self) -> dict[str, int]:
        """How many entities, predicates and times there are."""
        return {"entity": len(self.entities), "predicate": len(self.predicates), "time": len(self.times)}

    def split(self, name: str) -> Facts:
        if name not in self.splits:
            raise UserError(f"{self.name} has no {name!r} split; it has {', '.join(self.splits)}")
        return self.splits[name]

    def axis(self, slot: str) -> Vocabulary | TimeAxis:
        """What turns the labels of a slot into ids and back."""
        axes: dict[str, Vocabulary | TimeAxis] = {
            "entity": self.entities,
            "predicate": self.predicates,
            "time": self.times,
        }
        return axes[KINDS[slot]]

    def table(self, facts: Facts) -> pl.DataFrame:
        """`facts` by label, one column a slot."""
        return pl.DataFrame({name: self.axis(slot).take(facts.column(slot)) for slot, name in SLOT_NAMES.items()})

    def with_splits(self, splits: Mapping[str, Facts]) -> EpisodicGraph:
        return replace(self, splits=splits, rows=self.rows if splits.keys() == self.rows.keys() else {})

    @cached_property
    def fingerprint(self) -> str:
        """A digest of labels, times and facts: equal graphs have equal fingerprints."""
        digest = hashlib.sha256()
        for vocabulary in (self.entities, self.predicates):
            labels = "".join(f"{len(label)}:{label}" for label in vocabulary.labels)
            digest.update(labels.encode("utf-8", "surrogatepass") + b"\1")
        digest.update(repr(self.times).encode())
        for name, facts in self.splits.items():
            digest.update(name.encode() + facts.ids.contiguous().numpy().tobytes())
            for extra in (facts.value, facts.weight):
                digest.update(b"\2" if extra is None or not len(extra) else extra.contiguous().numpy().tobytes())
        return digest.hexdigest()
