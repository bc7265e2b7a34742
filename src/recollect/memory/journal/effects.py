"""Find the effect of a change on a graph: what is not stored yet is added, what is stored is removed.

Only the train split is stored; the cost is that of reading it once, whatever is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray

from recollect.errors import UserError
from recollect.graph.facts import EpisodicGraph, Facts, encode
from recollect.graph.runs import Runs, has_runs, stored
from recollect.graph.vocabulary import Vocabulary
from recollect.io.tables.reading import Source
from recollect.memory.journal.changes import (
    ADDED,
    FOREVER,
    REMOVED,
    SCHEMA,
    TRIPLE,
    Delta,
    bins_frame,
    last_bins,
    sweep,
)
from recollect.memory.journal.inputs import Bins, FactParts, asked_fact, asked_facts
from recollect.memory.learning.learn import Learned

Ints = NDArray[np.int64]
Effect = Callable[[EpisodicGraph], Delta]


def addition_of(facts: Source, parts: FactParts, options: Mapping[str, Any]) -> Effect:
    """Return the effect of remembering facts, with options of `asked_facts`, or one fact by its parts."""
    if (facts is None) == parts.is_empty:
        raise UserError("give facts, or one fact by its parts: subject, predicate, object and time")

    def effect(graph: EpisodicGraph) -> Delta:
        if facts is None:
            return addition(graph, asked_fact(graph, parts, inclusive_end=options["inclusive_end"]))
        return addition(graph, asked_facts(graph, facts, **options))

    return effect


def removal_of(facts: Source, entity: str | None, parts: FactParts, options: Mapping[str, Any]) -> Effect:
    """Return the effect of forgetting facts, facts with some parts, or an entity."""
    if [facts is not None, entity is not None, not parts.is_empty].count(True) != 1:
        raise UserError("give facts, or parts of facts, or an entity to forget")

    def effect(graph: EpisodicGraph) -> Delta:
        if entity is not None:
            return erasure(graph, entity)
        if facts is None:
            return matching(graph, parts.triple, parts.bins(graph.times, inclusive_end=options["inclusive_end"]))
        return removal(graph, asked_facts(graph, facts, **options, forget=True))

    return effect


def reversal_of(delta: Delta) -> Effect:
    """Return the effect of taking a change back, as far as what it did is still as it left it."""

    def effect(graph: EpisodicGraph) -> Delta:
        back, gone = addition(graph, delta.removed), removal(graph, delta.added)
        bins = [number for each in (back, gone) if each.reach is not None for number in each.reach]
        reach = (min(bins), max(bins)) if bins else None
        return replace(back, frame=pl.concat([gone.frame, back.frame]), reach=reach)

    return effect


def addition(graph: EpisodicGraph, asked: pl.DataFrame) -> Delta:
    """Return the delta that stores facts, given in the columns of ASKED without a null in `first`."""
    rows = _split_by_store(graph, asked, is_stored=False)
    if rows.is_empty():
        return Delta(SCHEMA.to_frame(), step=graph.times.step)
    entities = _unknown(graph.entities, [rows["subject"], rows["object"]])
    predicates = _unknown(graph.predicates, [rows["predicate"]])
    last = pl.coalesce("last", "first").max()
    first_bin, last_bin = rows.select(pl.col("first").min(), last).row(0)
    return Delta.from_rows(
        ADDED, rows, entities=entities, predicates=predicates, reach=(first_bin, last_bin), step=graph.times.step
    )


def removal(graph: EpisodicGraph, asked: pl.DataFrame) -> Delta:
    """Return the delta that removes facts, given in the columns of ASKED; null bins mean no limit."""
    return _removed(graph, _split_by_store(graph, asked, is_stored=True))


def matching(graph: EpisodicGraph, parts: Mapping[str, str], bins: Bins) -> Delta:
    """Return the delta that removes all facts with the given ones of subject, predicate and object, in some bins."""
    ids = {name: graph.axis(name[0]).find([label])[0] for name, label in parts.items()}  # type: ignore[union-attr]
    store = _Store.of(graph)
    chosen = np.ones(len(store.first), dtype=bool)
    for name, label_id in ids.items():
        chosen &= store.facts.column(name[0]).numpy() == label_id
    low, high = bins
    first = store.first if low is None else np.maximum(store.first, low)
    last = store.last if high is None else np.minimum(store.last, high)
    chosen &= first <= last
    rows = np.flatnonzero(chosen)
    codes = encode(store.facts[torch.from_numpy(rows)], graph.sizes, "spo").numpy()
    _, one_row, group = np.unique(codes, return_index=True, return_inverse=True)
    pieces = sweep(group, first[rows], last[rows], np.ones((len(rows), 1), dtype=np.int64), graph.times.step)
    covered = pieces.counts[:, 0] > 0
    triples = store.facts[torch.from_numpy(rows[one_row[pieces.group[covered]]])]
    bins_of = bins_frame(pieces.first[covered], pieces.last[covered])
    return _removed(graph, pl.concat([_labels(graph, triples), bins_of], how="horizontal"))


def _removed(graph: EpisodicGraph, rows: pl.DataFrame) -> Delta:
    """Return the delta that removes stored runs.

    The axis reaches what is left of intervals without an end: the bin before a hole, and the one after it.
    """
    axis, store, reach = graph.times, stored(graph, "train"), None
    end = axis.first + (len(axis) - 1) * axis.step
    if isinstance(store, Runs) and store.has_ongoing:
        holes = rows.filter((pl.col("first") > end) | (pl.col("last") >= end))
        holes = holes.join(_labels(graph, store.first[store.goes_on]), on=TRIPLE, how="semi")
        around = pl.concat([holes["first"] - axis.step, holes["last"].drop_nulls() + axis.step])
        around = around.filter(around > end)
        if len(around):
            reach = int(around.min()), int(around.max())  # type: ignore[arg-type]
    return Delta.from_rows(REMOVED, rows, reach=reach, step=axis.step)


def erasure(graph: EpisodicGraph, entity: str) -> Delta:
    """Return the delta that removes an entity altogether, if there is one of this label."""
    erased = (entity,) if graph.entities.find([entity])[0] >= 0 else ()
    if erased and len(graph.entities) == 1:
        raise UserError(f"{entity} is the only entity of this memory; delete the memory, or remember others first")
    return Delta(SCHEMA.to_frame(), erased, step=graph.times.step)


def fresh_facts(learned: Learned, delta: Delta) -> Facts:
    """Return the stored facts that a delta added, in the ids of the graph; of runs, their first ones."""
    graph, rows = learned.graph, delta.added
    ids = [_ids(graph.axis(name[0]), rows[name]) for name in TRIPLE]  # type: ignore[arg-type]
    time = (rows["first"].to_numpy() - graph.times.first) // graph.times.step
    last = np.minimum((last_bins(rows) - graph.times.first) // graph.times.step, len(graph.times) - 1)
    first = Facts(torch.from_numpy(np.stack([*ids, time], axis=1)))
    return first if has_runs(graph) else Runs(first, torch.from_numpy(last)).expand("what was remembered")


@dataclass(frozen=True, eq=False)
class _Store:
    """The n true facts or runs of the train split, with absolute bins."""

    facts: Facts
    first: Ints  # (n,)
    last: Ints  # (n,): FOREVER for a run without an end

    @classmethod
    def of(cls, graph: EpisodicGraph) -> _Store:
        found, axis = stored(graph, "train").true(), graph.times
        if not isinstance(found, Runs):
            bins = axis.first + axis.step * found.t.numpy()
            return cls(found, bins, bins)
        first, last = (axis.first + axis.step * ids.numpy() for ids in (found.first.t, found.last))
        return cls(found.first, first, np.where(found.goes_on.numpy(), FOREVER, last))

    def of_triples(self, graph: EpisodicGraph, triples: Facts) -> tuple[Ints, Ints, Ints]:
        """Return the stored intervals of distinct triples (m,): number of the triple, first and last bin, (k,) each."""
        wanted, order = encode(triples, graph.sizes, "spo").sort()
        codes = encode(self.facts, graph.sizes, "spo")
        position = torch.searchsorted(wanted, codes).clamp(max=max(0, len(wanted) - 1))
        found = (wanted[position] == codes).nonzero()[:, 0] if len(wanted) else position[:0]
        rows = found.numpy()
        return order[position[found]].numpy(), self.first[rows], self.last[rows]


def _split_by_store(graph: EpisodicGraph, asked: pl.DataFrame, *, is_stored: bool) -> pl.DataFrame:
    """Return the parts of asked intervals that are stored, or those that are not: columns of ASKED."""
    triples = asked.select(TRIPLE).unique(maintain_order=True).with_row_index("group")
    group = asked.join(triples, on=TRIPLE, how="left", maintain_order="left")["group"].cast(pl.Int64).to_numpy()
    ids = np.stack([_ids(graph.axis(name[0]), triples[name]) for name in TRIPLE], axis=1)  # type: ignore[arg-type]
    known = np.flatnonzero((ids >= 0).all(axis=1))
    facts = Facts(torch.from_numpy(np.pad(ids[known], ((0, 0), (0, 1)))))
    number, first, last = _Store.of(graph).of_triples(graph, facts)
    weights = np.zeros((len(group) + len(number), 2), dtype=np.int64)
    weights[: len(group), 0] = weights[len(group) :, 1] = 1
    pieces = sweep(
        np.concatenate([group, known[number]]),
        np.concatenate([asked["first"].fill_null(-FOREVER).to_numpy(), first]),
        np.concatenate([last_bins(asked), last]),
        weights,
        graph.times.step,
    )
    chosen = (pieces.counts[:, 0] > 0) & ((pieces.counts[:, 1] > 0) == is_stored)
    labels = triples.select(TRIPLE)[pieces.group[chosen]]
    return pl.concat([labels, bins_frame(pieces.first[chosen], pieces.last[chosen])], how="horizontal")


def _ids(vocabulary: Vocabulary, labels: pl.Series) -> Ints:
    """Return the id of each label, −1 for new ones: (n,)."""
    distinct = labels.unique().to_list()
    id_of = dict(zip(distinct, vocabulary.find(distinct), strict=True))
    return np.array([id_of[label] for label in labels.to_list()], dtype=np.int64)


def _labels(graph: EpisodicGraph, facts: Facts) -> pl.DataFrame:
    """Return the labels of facts in the columns of TRIPLE."""
    labels = {name: graph.axis(name[0]).take(facts.column(name[0])) for name in TRIPLE}
    return pl.DataFrame(labels, schema=dict.fromkeys(TRIPLE, pl.String))


def _unknown(vocabulary: Vocabulary, columns: list[pl.Series]) -> tuple[str, ...]:
    """Return the labels that are not in a vocabulary, in order of rows, then columns."""
    labels = [pl.DataFrame({"label": column}).with_row_index("row") for column in columns]
    ordered = pl.concat(labels).sort("row", maintain_order=True)["label"].unique(maintain_order=True).to_list()
    return tuple(label for label, number in zip(ordered, vocabulary.find(ordered), strict=True) if number < 0)
