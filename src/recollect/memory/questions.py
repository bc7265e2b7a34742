"""Translate questions and facts by label into ids."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

import polars as pl
import torch
from torch import Tensor

from recollect.errors import UserError
from recollect.graph.facts import SLOT_NAMES, SLOTS, EpisodicGraph, Facts, parse_slots
from recollect.models.tensor_model import TensorModel

OPEN = -1  # the id of an open slot
SLOT_OF_KIND = {"entity": "s", "predicate": "p", "time": "t"}

Time = str | int | date
Table = pl.DataFrame | Mapping[str, Sequence[Any]]


def parse_question(graph: EpisodicGraph, slots: str, given: Mapping[str, Any]) -> tuple[Facts, str]:
    """Return one question as a fact with id 0 in its open slot, and that slot.

    `slots` are those of the model; `given` holds a label for each slot, None for the open one.
    """
    _check_time(slots, given["t"] is not None)
    open_slots = [slot for slot in slots if given[slot] is None]
    if len(open_slots) != 1:
        raise _wrong_number_of_open_slots(slots, len(open_slots))
    ids = [0 if given[slot] is None else graph.axis(slot).index(given[slot]) for slot in SLOTS]
    return Facts.of([ids]), open_slots[0]


def parse_questions(graph: EpisodicGraph, slots: str, table: Table) -> tuple[Facts, Tensor]:
    """Return questions as facts with id 0 in their open slots, and the index in SLOTS of each open slot: (n,).

    A question is a row with one null; a column that is missing is null in every row.
    """
    ids = _parse_ids(graph, slots, table)
    used = [SLOTS.index(slot) for slot in slots]
    is_open = ids[:, used] == OPEN
    counts = is_open.sum(dim=1)
    if bool((counts != 1).any()):
        row = int((counts != 1).nonzero()[0])
        raise _wrong_number_of_open_slots(slots, int(counts[row]), f"row {row}: ")
    open_slots = torch.tensor(used)[is_open.int().argmax(dim=1)] if len(ids) else torch.empty(0, dtype=torch.int64)
    return Facts(ids.clamp(min=0)), open_slots


def parse_facts(graph: EpisodicGraph, slots: str, table: Table) -> Facts:
    """Return the ids of facts by label; every slot of the model must be given in every row."""
    ids = _parse_ids(graph, slots, table)
    for slot in slots:
        missing = (ids[:, SLOTS.index(slot)] == OPEN).nonzero()
        if len(missing):
            names = ", ".join(SLOT_NAMES[slot] for slot in slots)
            raise UserError(f"row {int(missing[0])} has no {SLOT_NAMES[slot]}; give {names} of every fact")
    return Facts(ids.clamp(min=0))


def check_slots(model: TensorModel, slots: str | None) -> str:
    """Return the letters of some slots, by default of all; raise UserError if the model does not have them."""
    if slots is None:
        return model.slots
    wanted = parse_slots(slots)
    if not wanted:
        raise UserError(f"no slots to evaluate; choose some of {model.slots}")
    for slot in wanted:
        if slot not in model.slots:
            form = model.config.form
            raise UserError(f"a {form} memory has no {SLOT_NAMES[slot]}; choose slots among {model.slots}")
    return wanted


def slot_of_kind(kind: str) -> str:
    """Return a slot of a kind: "entity", "predicate" or "time"."""
    if kind not in SLOT_OF_KIND:
        raise UserError(f"unknown kind {kind!r}; choose one of {', '.join(SLOT_OF_KIND)}")
    return SLOT_OF_KIND[kind]


def slot_of_label(graph: EpisodicGraph, label: Time) -> str:
    """Return a slot of the one kind that a label has."""
    kinds = [kind for kind, slot in SLOT_OF_KIND.items() if str(label) in graph.axis(slot).labels]
    if not kinds:
        graph.entities.index(str(label))  # raises UserError with similar labels
    if len(kinds) > 1:
        raise UserError(f"{label!r} is {' and '.join(kinds)}; say which, like kind={kinds[0]!r}")
    return SLOT_OF_KIND[kinds[0]]


def _parse_ids(graph: EpisodicGraph, slots: str, table: Table) -> Tensor:
    """Return the ids of a table of labels, OPEN where a label is null: (n, 4)."""
    frame = table if isinstance(table, pl.DataFrame) else pl.DataFrame(table)
    names = {SLOT_NAMES[slot]: slot for slot in SLOTS}
    for name in frame.columns:
        if name not in names:
            raise UserError(f"unknown column {name!r}; name the columns {', '.join(names)}")
    ids = torch.full((frame.height, len(SLOTS)), OPEN)
    for name in frame.columns:
        ids[:, SLOTS.index(names[name])] = _label_ids(graph, names[name], frame[name])
    _check_time(slots, bool((ids[:, SLOTS.index("t")] != OPEN).any()))
    return ids


def _label_ids(graph: EpisodicGraph, slot: str, labels: pl.Series) -> Tensor:
    """Return the id of each label, OPEN where it is null: (n,)."""
    axis = graph.axis(slot)
    values = labels.to_list()
    id_of = {value: axis.index(value) for value in dict.fromkeys(values) if value is not None}
    return torch.tensor([OPEN if value is None else id_of[value] for value in values], dtype=torch.int64)


def _check_time(slots: str, time_given: bool) -> None:
    if "t" not in slots and time_given:
        raise UserError("this is a semantic memory, which has no times; leave the time out")


def _wrong_number_of_open_slots(slots: str, count: int, place: str = "") -> UserError:
    names = ", ".join(SLOT_NAMES[slot] for slot in slots)
    return UserError(f"{place}recall fills one slot, and {count} are open; give all but one of {names}")
