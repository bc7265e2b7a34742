"""Published files as they are: counts, dates, and an evaluation checked by plain loops."""

from __future__ import annotations

import random

import torch

from recollect import Learning, Recipe, read
from recollect.known import Known
from recollect.ranks import rank


def test_icews14_counts(real_data):
    graph = read(real_data / "icews14")
    assert {name: len(facts) for name, facts in graph.splits.items()} == {"train": 72826, "valid": 8941, "test": 8963}
    assert graph.sizes == {"entity": 7128, "predicate": 230, "time": 365}
    assert (graph.times.label(0), graph.times.label(364), graph.duplicates) == ("2014-01-01", "2014-12-31", 0)


def test_icews05_15_counts(real_data):
    graph = read(real_data / "icews05-15")
    assert {name: len(facts) for name, facts in graph.splits.items()} == {
        "train": 368962,
        "valid": 46275,
        "test": 46092,
    }
    assert graph.sizes == {"entity": 10488, "predicate": 251, "time": 4017}


def test_ranks_on_icews14_equal_loops_over_the_text_files(real_data):
    """40 test queries a slot, ranked by a loop that reads the published text and filters by itself."""
    graph = read(real_data / "icews14")
    learning = Learning(graph, model="complex", rank=8, recipe=Recipe(epochs=1, validate_every=9))
    next(iter(learning))
    rows = {}
    for split in ("train", "valid", "test"):
        text = (real_data / "icews14" / f"icews_2014_{split}.txt").read_text(encoding="utf-8")
        rows[split] = [tuple(line.split("\t")) for line in text.splitlines()]
    known = {row for part in rows.values() for row in part}
    chosen = random.Random(0).sample(sorted(rows["test"]), 40)
    facts = graph.split("test")
    position = {row: i for i, row in enumerate(graph.table(facts).rows())}
    for at, slot in enumerate("spot"):
        ours = rank(learning.model, facts, slot, known=Known(graph.facts, graph.sizes))
        axis = graph.axis(slot)
        labels = list(axis.labels)
        for row in chosen:
            fact = facts[torch.tensor([position[row]])]
            with torch.no_grad():
                scores = learning.model.score_against(fact, slot)[0].tolist()
            true = scores[axis.index(row[at])]
            greater = sum(
                score > true
                for label, score in zip(labels, scores, strict=True)
                if label != row[at] and (*row[:at], label, *row[at + 1 :]) not in known
            )
            # one matrix product a chunk and one a query may round differently: allow what lies within that
            close = sum(abs(score - true) < 1e-6 * max(1.0, abs(true)) for score in scores) - 1
            assert abs(ours["filtered"].ranks()[position[row]].item() - (1 + greater)) <= close
