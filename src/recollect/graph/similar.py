"""Find labels that are similar to one that is unknown, among hundreds of thousands, while a user waits."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from itertools import islice

import numpy as np
from numpy.typing import NDArray

COMPARED_LABELS = 200  # difflib takes 0.1 ms for two labels
COMPARED_CHARACTERS = 60  # of each label: difflib takes quadratic time
_END = "\0"  # of a label


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
