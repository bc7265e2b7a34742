"""The current facts of the ids whose rows are solved for: their questions, and which of these ids share facts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

from recollect.graph.facts import KINDS, Facts, distinct
from recollect.models.new_rows.tables import Layout, RowKey
from recollect.models.tensor_model import TensorModel

Masks = dict[str, Tensor]  # kind -> (ids,) bool


def asked(model: TensorModel, facts: Facts) -> list[tuple[Facts, str]]:
    """Return the questions of facts for subjects and for objects: the facts that are asked, and the slot asked for."""
    return [model.as_query(facts, slot) for slot in "so"]


class OpenFacts:
    """The facts that have an open id, one whose row is solved for."""

    def __init__(self, model: TensorModel, layout: Layout, facts: Facts, open_ids: Mapping[str, Tensor]) -> None:
        self.model, self.layout = model, layout
        self.is_open: Masks = {}
        for kind, ids in open_ids.items():
            self.is_open[kind] = torch.zeros(layout.sizes[kind], dtype=torch.bool)
            self.is_open[kind][ids] = True
        self.facts = distinct(
            facts[self._having(facts, self.is_open)], layout.sizes
        )  # sorted: any order gives the same
        self._sorted = {slot: self.facts.column(slot).sort(stable=True) for slot in model.slots}

    def of(self, key: RowKey) -> Facts:
        """Return the facts of an id, sorted; those with the id in both slots once."""
        number = self.layout.time(key.number) if key.kind == "time" else key.number
        found = []
        for slot in self.model.slots:
            if KINDS[slot] == key.kind:
                values, order = self._sorted[slot]
                start, stop = torch.searchsorted(values, torch.tensor([number, number + 1])).tolist()
                found.append(order[start:stop])
        return self.facts[torch.cat(found).unique()]

    def questions(self, key: RowKey, facts: Facts) -> list[tuple[Facts, str]]:
        """Return the questions about facts of an id in which the row of its key occurs."""
        of_subjects, of_objects = asked(self.model, facts)
        if key.kind == "predicate" and self.model.config.reciprocal:
            return [of_subjects] if key.inverse else [of_objects]
        return [of_subjects, of_objects]

    def has_others(self, key: RowKey) -> bool:
        """Return whether some fact of an id has another open entity or predicate, or the same in both slots."""
        facts = self.of(key)
        if key.kind == "entity" and bool((facts.s == facts.o).any()):
            return True
        for slot in self.model.slots:
            kind, ids = KINDS[slot], facts.column(slot)
            is_other = self.is_open[kind][ids]
            if kind == key.kind:
                is_other = is_other & (ids != key.number)
            if kind != "time" and bool(is_other.any()):
                return True
        return False

    def among_trained(self, facts: Facts) -> Facts:
        """Return the facts of which no entity and no predicate is open."""
        return facts[~self._having(facts, _without_times(self.is_open))]

    def affected(self, changed: Facts, keys: Iterable[RowKey]) -> tuple[set[RowKey], set[RowKey]]:
        """Return the keys whose rows of the first, and of the second pass may differ after a change of facts.

        A time depends on its facts among trained ids, and on the times between it and the trained ones. The first pass
        of entities and predicates depends on times, and on the priors of the other entities in an id's facts, which
        depend on their facts; the second pass depends on the first.
        """
        touched = self._in(changed)
        trained = self.layout.earlier, self.layout.earlier + self.layout.trained["time"]
        times = _onwards(self._in(self.among_trained(changed))["time"], *trained) & self.is_open["time"]
        nearest = {kind: mask if kind == "entity" else torch.zeros_like(mask) for kind, mask in touched.items()}
        first = _union(touched, self._in(self.facts[self._having(self.facts, {**nearest, "time": times})]))
        second = _union(first, self._in(self.facts[self._having(self.facts, _without_times(first))]))
        return self._keys({**first, "time": times}, keys), self._keys({**second, "time": times}, keys)

    def _keys(self, masks: Masks, keys: Iterable[RowKey]) -> set[RowKey]:
        found = set()
        for key in keys:
            number = self.layout.time(key.number) if key.kind == "time" else key.number
            if masks[key.kind][number]:
                found.add(key)
        return found

    def _in(self, facts: Facts) -> Masks:
        """Return the open ids that occur in some facts."""
        found = {kind: torch.zeros_like(mask) for kind, mask in self.is_open.items()}
        for slot in self.model.slots:
            found[KINDS[slot]][facts.column(slot)] = True
        return {kind: mask & self.is_open[kind] for kind, mask in found.items()}

    def _having(self, facts: Facts, ids: Masks) -> Tensor:
        """Return which facts have one of some ids: (n,) bool."""
        found = torch.zeros(len(facts), dtype=torch.bool)
        for slot in self.model.slots:
            found |= ids[KINDS[slot]][facts.column(slot)]
        return found


def _union(a: Masks, b: Masks) -> Masks:
    return {kind: mask | b[kind] for kind, mask in a.items()}


def _without_times(masks: Masks) -> Masks:
    return {**masks, "time": torch.zeros_like(masks["time"])}


def _onwards(times: Tensor, first: int, end: int) -> Tensor:
    """Return times and those that are farther from the trained ones, [first, end), on the same side: (T,) bool."""
    before, after = times[:first], times[end:]
    return torch.cat([before.flip(0).cummax(0).values.flip(0), times[first:end], after.cummax(0).values])
