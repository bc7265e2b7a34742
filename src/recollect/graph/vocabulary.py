"""Labels and their ids, and labels that are similar to an unknown one, among hundreds of thousands, in a moment."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice

import numpy as np
import polars as pl
from numpy.typing import NDArray
from torch import Tensor

from recollect.errors import UserError

COMPARED_LABELS = 200  # difflib takes 0.1 ms for two labels
COMPARED_CHARACTERS = 60  # of each label: difflib takes quadratic time
_END = "\0"  # of a label


@dataclass(frozen=True, eq=False, repr=False)
class Vocabulary:
    """A two-way map between labels and ids 0, 1, …; `of` sorts by code point, so ids do not depend on row order.

    Examples:
        >>> people = Vocabulary.of("entity", ["Syria", "Turkey", "Syria"])
        >>> people
        Vocabulary(entity, 2 labels: 'Syria', 'Turkey')
        >>> people.index("Turkey")
        1
    """

    kind: str
    labels: tuple[str, ...]

    @classmethod
    def of(cls, kind: str, labels: Iterable[str]) -> Vocabulary:
        """Return the vocabulary of the distinct labels, sorted by code point."""
        return cls(kind, tuple(sorted(set(labels))))

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        examples = [repr(label if len(label) <= 40 else label[:39] + "…") for label in self.labels[:3]]
        dots = ", …" if len(self) > len(examples) else ""
        return f"Vocabulary({self.kind}, {len(self):,} labels: {', '.join(examples)}{dots})"

    @cached_property
    def _ids(self) -> dict[str, int]:
        return {label: i for i, label in enumerate(self.labels)}

    def index(self, label: str) -> int:
        """Return the id of a label, or raise UserError with similar labels."""
        label = str(label)
        if label in self._ids:
            return self._ids[label]
        raise UserError(f"unknown {self.kind} {label!r}; {self._suggestion(label)}")

    def find(self, labels: Iterable[str]) -> list[int]:
        """Return the id of each label, −1 for labels that are not in the vocabulary."""
        return [self._ids.get(label, -1) for label in labels]

    def ids(self, labels: pl.Series) -> Tensor:
        """Return the ids of a column of labels, all of them in the vocabulary: (n,) -> (n,)."""
        return labels.cast(pl.Enum(list(self.labels))).to_physical().cast(pl.Int64).to_torch()

    def take(self, ids: Tensor) -> list[str]:
        """Return the labels of ids (n,)."""
        return [self.labels[i] for i in ids.tolist()]

    def _suggestion(self, label: str) -> str:
        """Return a hint with up to three labels that are similar to `label` or contain it."""
        close = similar_labels(label, self.labels)
        if not close:
            return f"there are {len(self):,}, such as {', '.join(map(repr, self.labels[:3]))}"
        return f"did you mean {' or '.join(map(repr, close))}?"


def similar_labels(label: str, labels: Sequence[str], n: int = 3) -> list[str]:
    """Return up to `n` labels that are similar to `label`, best first, or else contain it; upper case does not matter.

    >>> similar_labels("Turky", ["Syria", "Turkey", "Turkmenistan"])
    ['Turkey']
    """
    wanted = label.casefold()
    folded = [known.casefold() for known in labels]
    compared = {folded[i][:COMPARED_CHARACTERS]: labels[i] for i in reversed(_most_alike(wanted, folded))}
    close = difflib.get_close_matches(wanted[:COMPARED_CHARACTERS], compared, n, cutoff=0.6)
    if close:
        return [compared[each] for each in close]
    containing = (known for known, text in zip(labels, folded, strict=True) if wanted and wanted in text)
    return list(islice(containing, n))


def _most_alike(wanted: str, labels: Sequence[str]) -> list[int]:
    """Return the indices of the COMPARED_LABELS labels that share most pairs of neighbouring characters with `wanted`.

    More precisely, those with the largest Dice coefficient: 2 · shared / (pairs of one + pairs of the other).
    """
    if len(labels) <= COMPARED_LABELS:
        return list(range(len(labels)))
    is_shared = np.zeros(1 << 16, dtype=np.uint8)  # by the hash of a pair
    is_shared[_pairs(wanted + _END)] = 1
    lengths = np.fromiter(map(len, labels), dtype=np.int64, count=len(labels)) + 1
    shared = np.add.reduceat(is_shared[_pairs(_END.join([*labels, ""]))], lengths.cumsum() - lengths, dtype=np.int64)
    dice = shared / (lengths + len(wanted) + 1)
    best = np.argpartition(-dice, COMPARED_LABELS)[:COMPARED_LABELS]
    return sorted(best.tolist())


def _pairs(text: str) -> NDArray[np.uint16]:
    """Return a hash of every character and its right neighbour: (length,)."""
    characters = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype=np.uint32).astype(np.uint16)
    pairs = characters * np.uint16(40_503)  # modulo 2¹⁶
    pairs[:-1] += characters[1:]
    return pairs
