"""The indicator function of a model: one multilinear equation, parsed once, from which all scoring is derived.

Notation: slots with their latent axes, then the axes of shared cores.

    s:i p:j o:k t:l | lijk      θ = Σ_ijkl a_s[i] a_p[j] a_o[k] a_t[l] G[l,i,j,k]

Lower-case letters are latent axes. A slot may occur twice (Tree's time); its occurrences are then multiplied out
when the slot is open.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from recollect.graph.facts import SLOTS


@dataclass(frozen=True)
class Equation:
    """θ as a sum over latent axes of a product of core tensors and one factor per slot.

    >>> tree = Equation.parse("t:a s:b p:cd o:e t:f | abc def")
    >>> tree.einsum(), tree.einsum(open="t"), tree.axes("t")
    ('Ba,Bb,Bcd,Be,Bf,abc,def->B', 'Bb,Bcd,Be,abc,def->Baf', 'af')
    """

    factors: tuple[tuple[str, str], ...]  # (slot, axes), in the order written
    cores: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> Equation:
        left, _, right = text.partition("|")
        factors = []
        for word in left.split():
            slot, colon, axes = word.partition(":")
            if slot not in SLOTS or not colon or not _is_axes(axes):
                raise ValueError(f"cannot read factor {word!r} of {text!r}; write it like s:i or p:ij")
            factors.append((slot, axes))
        cores = tuple(right.split())
        if not factors or not all(map(_is_axes, cores)):
            raise ValueError(f"cannot read {text!r}; write it like 's:i p:j o:k t:l | lijk'")
        seen = Counter("".join([*(axes for _, axes in factors), *cores]))
        if lonely := [axis for axis, times in seen.items() if times == 1]:
            raise ValueError(f"axis {', '.join(lonely)} of {text!r} occurs once; every axis joins two factors")
        terms = [axes for _, axes in factors] + list(cores)
        if twice := [axes for axes in terms if len(set(axes)) < len(axes)]:
            raise ValueError(f"{twice[0]!r} of {text!r} names an axis twice; give each of its axes a letter")
        joined, rest = set(terms[0]), terms[1:]
        while near := [axes for axes in rest if joined & set(axes)]:
            joined, rest = joined.union(*near), [axes for axes in rest if axes not in near]
        if rest:
            raise ValueError(f"{text!r} falls apart: no axis joins {rest[0]!r} to the rest")
        return cls(tuple(factors), cores)

    @property
    def slots(self) -> str:
        """Return the slots of the equation, in the order s p o t."""
        present = {slot for slot, _ in self.factors}
        return "".join(slot for slot in SLOTS if slot in present)

    @property
    def terms(self) -> tuple[tuple[str, str], ...]:
        """Return factors as (slot, axes), then cores as ("", axes)."""
        return (*self.factors, *(("", axes) for axes in self.cores))

    @property
    def is_diagonal(self) -> bool:
        """Return whether θ is a sum over one axis of a product of numbers."""
        return len({axes for _, axes in self.terms}) == 1

    def occurrences(self, slot: str) -> list[str]:
        return [axes for other, axes in self.factors if other == slot]

    def axes(self, slot: str) -> str:
        """Return the latent axes of a slot, those of all its occurrences together."""
        return "".join(dict.fromkeys("".join(self.occurrences(slot))))

    def order(self, slot: str) -> int:
        """Return the number of axes of a row of a slot: 1 for a vector, 3 for the core of a time, 0 without slot."""
        return max(map(len, self.occurrences(slot)), default=0)

    def einsum(self, open: str | None = None) -> str:
        """Return the einsum of a score (B,), or of the query (B, axes) of the open slot."""
        terms = ["B" + axes for slot, axes in self.factors if slot != open]
        return ",".join([*terms, *self.cores]) + "->B" + (self.axes(open) if open else "")


def _is_axes(text: str) -> bool:
    return text.isascii() and text.isalpha() and text.islower()
