"""Triples (s, p, o) as integer codes, to look them up in sorted tensors."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from recollect import Facts


def triple_codes(facts: Facts, sizes: Mapping[str, int]) -> Tensor:
    """Return one integer per fact that is the same exactly for facts of the same triple: (n,).

    >>> triple_codes(Facts.of([(0, 1, 2, 0), (0, 1, 2, 5), (1, 0, 0, 0)]), {"entity": 3, "predicate": 2}).tolist()
    [5, 5, 6]
    """
    return (facts.s * sizes["predicate"] + facts.p) * sizes["entity"] + facts.o
