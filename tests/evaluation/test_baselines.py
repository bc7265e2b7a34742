"""Baselines without a model, against a loop."""

from __future__ import annotations

import pytest
import torch

from conftest import random_facts
from recollect.evaluation.baselines import Baseline

SIZES = {"entity": 4, "predicate": 2, "time": 6}


def loop_baseline(train: list, fact: tuple, slot: int, decay: float) -> list[float]:
    """Return the score of every candidate: decayed counts, then counts by predicate, then counts of all facts."""
    kinds, n = ("entity", "predicate", "entity", "time"), len(train)
    scores = []
    for candidate in range(SIZES[kinds[slot]]):
        first = second = third = 0.0
        for known in train:
            same = all(known[i] == fact[i] for i in range(3) if i != slot)
            at = candidate if slot == 3 else fact[3]
            if same and (slot == 3 or known[slot] == candidate):
                first += (1 + abs(at - known[3])) ** -decay
            if known[slot] == candidate:
                third += 1 / (n + 1)
                if slot != 1 and known[1] == fact[1]:
                    second += 1 / (n + 1)
        scores.append(first + 1e-5 * second + 1e-10 * third)
    return scores


@pytest.mark.parametrize("decay", [0.0, 1.0])
@pytest.mark.parametrize("slot", "spot")
def test_a_baseline_counts_as_a_loop_does(slot, decay):
    facts, queries = random_facts(300, SIZES), random_facts(10, SIZES, seed=9)
    baseline = Baseline(facts, SIZES, decay=decay)
    found = baseline.score_against(queries, slot)
    wanted = [
        loop_baseline(facts.ids.tolist(), tuple(fact), "spot".index(slot), decay) for fact in queries.ids.tolist()
    ]
    torch.testing.assert_close(found, torch.tensor(wanted, dtype=torch.float64))
    some = torch.tensor([1, 0])
    torch.testing.assert_close(baseline.score_against(queries, slot, some), found[:, some])
