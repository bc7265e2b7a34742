"""Published files as they are: counts, dates, and an evaluation checked by plain loops."""

from __future__ import annotations

import random
from dataclasses import replace

import torch

from recollect import RECIPES, ModelConfig, Recipe, TrainingRun, read
from recollect.evaluation.ranking import rank
from recollect.graph.fact_index import FactIndex


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
    run = TrainingRun(graph, ModelConfig(model="complex", dim=8), recipe=Recipe(epochs=1, validate_every=9))
    next(iter(run))
    rows = {}
    for split in ("train", "valid", "test"):
        text = (real_data / "icews14" / f"icews_2014_{split}.txt").read_text(encoding="utf-8")
        rows[split] = [tuple(line.split("\t")) for line in text.splitlines()]
    known = {row for part in rows.values() for row in part}
    chosen = random.Random(0).sample(sorted(rows["test"]), 40)
    facts = graph.split("test")
    position = {row: i for i, row in enumerate(graph.table(facts).rows())}
    for at, slot in enumerate("spot"):
        ours = rank(run.model, facts, slot, known=FactIndex(graph.facts, graph.sizes))
        axis = graph.axis(slot)
        labels = list(axis.labels)
        for row in chosen:
            fact = facts[torch.tensor([position[row]])]
            with torch.no_grad():
                scores = run.model.score_against(fact, slot)[0].tolist()
            true = scores[axis.index(row[at])]
            greater = sum(
                score > true
                for label, score in zip(labels, scores, strict=True)
                if label != row[at] and (*row[:at], label, *row[at + 1 :]) not in known
            )
            # one matrix product a chunk and one a query may round differently: allow what lies within that
            close = sum(abs(score - true) < 1e-6 * max(1.0, abs(true)) for score in scores) - 1
            assert abs(ours["filtered"].ranks()[position[row]].item() - (1 + greater)) <= close


def test_500_queries_of_a_modern_model_are_ranked_as_by_hand(real_data):
    """TNTComplEx with inverse predicates and knots, scored from its weights by hand, filtered by the published text."""
    graph = read(real_data / "icews14")
    recipe = replace(RECIPES["modern"], epochs=1, validate_every=9, batch_size=4096)
    config = ModelConfig(model="complex", dim=8, static=True, reciprocal=True, time_levels=(1, 5, 25))
    run = TrainingRun(graph, config, recipe=recipe)
    for _ in zip(range(6), run, strict=False):
        pass
    rows = []
    for split in ("train", "valid", "test"):
        text = (real_data / "icews14" / f"icews_2014_{split}.txt").read_text(encoding="utf-8")
        rows.append([tuple(line.split("\t")) for line in text.splitlines()])
    known, test = {row for part in rows for row in part}, rows[2]
    entities = sorted({label for part in rows for s, _, o, _ in part for label in (s, o)})
    predicates = sorted({p for part in rows for _, p, _, _ in part})
    days = sorted({t for part in rows for *_, t in part})
    e, p, q, knots = (
        (weights[..., 0] + 1j * weights[..., 1]).numpy()
        for weights in (
            run.model.state_dict()[name].double() for name in ("entity", "predicate", "static_predicate", "time")
        )
    )
    spacings, firsts = (1, 5, 25), (0, 365, 365 + 74)
    facts = graph.split("test")
    position = {row: i for i, row in enumerate(graph.table(facts).rows())}
    ranks = {
        slot: rank(run.model, facts, slot, known=FactIndex(graph.facts, graph.sizes))["filtered"].ranks()
        for slot in "so"
    }
    draw = random.Random(1)
    for row in draw.sample(test, 500):
        slot = draw.choice("so")
        subject, predicate, object_, day = row
        day_index, inverse = days.index(day), 0
        a_t = 0
        for spacing, first in zip(spacings, firsts, strict=True):
            below, over = divmod(day_index, spacing)
            a_t = a_t + (1 - over / spacing) * knots[first + below]
            if over:
                a_t = a_t + over / spacing * knots[first + below + 1]
        given, wanted = (subject, object_) if slot == "o" else (object_, subject)
        inverse = 0 if slot == "o" else len(predicates)
        at = predicates.index(predicate) + inverse
        scores = ((e[entities.index(given)] * (p[at] * a_t + q[at])) * e.conj()).sum(axis=1).real
        true = scores[entities.index(wanted)]
        greater = close = 0
        for label, score in zip(entities, scores.tolist(), strict=True):
            fact = (subject, predicate, label, day) if slot == "o" else (label, predicate, object_, day)
            if label != wanted and fact not in known:
                near = abs(score - true) < 1e-5 * max(1.0, abs(true))  # weights have single precision
                greater, close = greater + (score > true and not near), close + near
        assert 1 + greater <= ranks[slot][position[row]].item() <= 1 + greater + close
