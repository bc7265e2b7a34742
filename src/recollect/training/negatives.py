"""Negatives: ids that replace one slot of a true fact, so that the result is taken for false."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from recollect.errors import UserError
from recollect.graph.fact_index import FactIndex, draw_other
from recollect.graph.facts import SLOT_NAMES, SLOTS, Facts, parse_slot


def sample_negatives(
    facts: Facts, slot: str, count: int, *, known: FactIndex, generator: torch.Generator, avoid_known: bool = False
) -> Tensor:
    """Return ids (B, count) that replace `slot` of each fact, never its own id.

    With `avoid_known`, no id completes a known fact.
    """
    if known.size(slot) < 2:
        raise UserError(f"cannot corrupt the {SLOT_NAMES[slot]}: this graph has only one; set its negatives to 0")
    if avoid_known:
        return known.draw_unknown(facts, slot, count, generator)
    fraction = torch.rand(len(facts), count, dtype=torch.float64, generator=generator)
    return draw_other(facts, slot, known.size(slot), fraction)


def parse_negatives(text: str) -> dict[str, int]:
    """Return the number of negatives per fact and slot from text.

    >>> parse_negatives("s=1,o=1"), parse_negatives("object=3,time=2")
    ({'s': 1, 'o': 1}, {'o': 3, 't': 2})
    """
    counts: dict[str, int] = {}
    for word in filter(None, text.replace(" ", "").split(",")):
        name, equals, count = word.partition("=")
        if not equals or not count.isdecimal():
            raise UserError(f"cannot read negatives {word!r} in {text!r}; write slot=count, like s=1,o=1")
        counts[parse_slot(name)] = int(count)
    return check_negatives(counts)


def check_negatives(counts: Mapping[str, int]) -> dict[str, int]:
    """Return the slots with negatives, at least one, in the order s p o t, which random draws depend on."""
    if not isinstance(counts, Mapping) or not all(map(is_count, counts.values())):
        raise UserError(f"cannot read negatives {counts!r}; give slots whole numbers from 0, like s=1,o=1")
    by_slot = {parse_slot(slot): count for slot, count in counts.items()}
    if not by_slot or max(by_slot.values()) < 1:
        raise UserError(f"negatives {dict(counts)} corrupt nothing; give at least one slot a count, like s=1,o=1")
    return {slot: by_slot[slot] for slot in SLOTS if by_slot.get(slot)}


def is_count(value: object) -> bool:
    """Return whether a value is a whole number from 0; a bool is not."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
