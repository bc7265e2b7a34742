"""Translate questions and facts by label into ids."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

import polars as pl
import torch
from torch import Tensor

from recollect.errors import UserError
from recollect.graph.facts import SLOT_NAMES, SLOTS, EpisodicGraph, Facts, parse_slot, parse_slots
from recollect.graph.runs import Runs, stored_in
from recollect.graph.times import MAX_TIMES

SLOT_OF_KIND = {"entity": "s", "predicate": "p", "time": "t"}

Time = str | int | date
Table = pl.DataFrame | Mapping[str, Sequence[Any]]


def parse_questions(graph: EpisodicGraph, slots: str, table: Table) -> tuple[Facts, Tensor]:
    """Return questions as facts with id 0 in their open slots, and which slots are open: (n, 4) bool.

    A question is a row with one null among the slots of the model, `slots`.
    """
    labels, is_open = _read_table(slots, table)
    counts = is_open.sum(dim=1)
    wrong = (counts != 1).nonzero()[:, 0]
    if len(wrong):
        row = int(wrong[0])
        place = f"row {row}: " if len(is_open) > 1 else ""
        raise UserError(
            f"{place}recall fills one slot, and {int(counts[row])} are open; give all but one of {_names(slots)}"
        )
    return _parse_ids(graph, labels, len(is_open)), is_open


def parse_facts(graph: EpisodicGraph, slots: str, table: Table) -> Facts:
    """Return the ids of facts by label; every slot of the model must be given in every row."""
    labels, is_open = _read_table(slots, table)
    if bool(is_open.any()):
        row, column = is_open.nonzero()[0].tolist()
        raise UserError(f"row {row} has no {SLOT_NAMES[SLOTS[column]]}; give {_names(slots)} of every fact")
    return _parse_ids(graph, labels, len(is_open))


def check_slots(available: str, slots: str | None) -> str:
    """Return the letters of some slots, by default of all that are available; raise UserError for others."""
    if slots is None:
        return available
    wanted = parse_slots(slots)
    if not wanted:
        raise UserError(f"no slots to evaluate; choose some of {available}")
    for slot in wanted:
        if slot not in available:
            raise UserError(f"a semantic memory has no {SLOT_NAMES[slot]}; choose slots among {available}")
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


def _read_table(slots: str, table: Table) -> tuple[dict[str, list[Any]], Tensor]:
    """Return the labels of a table by slot, and which slots of the model are null or left out: (n, 4) bool."""
    frame = table if isinstance(table, pl.DataFrame) else pl.DataFrame(table)
    labels: dict[str, list[Any]] = {}
    is_open = torch.ones(frame.height, len(SLOTS), dtype=torch.bool)
    for name, column in frame.to_dict(as_series=False).items():
        if name not in SLOT_NAMES.values():
            raise UserError(f"unknown column {name!r}; name the columns {_names(SLOTS)}")
        slot = parse_slot(name)
        labels[slot] = column
        is_open[:, SLOTS.index(slot)] = torch.tensor([label is None for label in column], dtype=torch.bool)
    if "t" not in slots:
        if not bool(is_open[:, SLOTS.index("t")].all()):
            raise UserError("this is a semantic memory, which has no times; leave the time out")
        is_open[:, SLOTS.index("t")] = False
    return labels, is_open


def steps_ahead(graph: EpisodicGraph) -> int:
    """Return how far after the last time questions may be: as far as forecasts, or anywhere if something goes on."""
    return MAX_TIMES if holds_on(graph) else len(graph.times)


def holds_on(graph: EpisodicGraph) -> bool:
    """Return whether a stored interval has no end."""
    train = stored_in(graph, "train")
    return isinstance(train, Runs) and train.has_ongoing


def time_index(graph: EpisodicGraph, label: Time) -> int:
    """Return the index of a time, which may lie after the last."""
    return graph.times.index(label, ahead=steps_ahead(graph))


def _parse_ids(graph: EpisodicGraph, labels: Mapping[str, list[Any]], count: int) -> Facts:
    """Return `count` facts from labels by slot; where a label is null or left out, the id is 0."""

    def index(slot: str, label: Any) -> int:
        if label is None:
            return 0
        return time_index(graph, label) if slot == "t" else graph.axis(slot).index(label)

    facts = Facts(torch.zeros(count, len(SLOTS), dtype=torch.int64))
    for slot, column in labels.items():
        id_of = {label: index(slot, label) for label in dict.fromkeys(column)}
        facts = facts.with_slot(slot, torch.tensor([id_of[label] for label in column], dtype=torch.int64))
    return facts


def _names(slots: str) -> str:
    return ", ".join(SLOT_NAMES[slot] for slot in slots)
