"""Precision and recall of scores, against all thresholds and all orders of equal scores."""

from __future__ import annotations

from itertools import combinations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from recollect import UserError
from recollect.evaluation.metrics import precision_recall


@given(st.lists(st.tuples(st.integers(-2, 2), st.booleans()), min_size=1, max_size=9))
def test_precision_and_recall_are_those_of_all_thresholds_and_all_orders(pairs):
    scores = torch.tensor([score for score, _ in pairs], dtype=torch.float32)
    truth = torch.tensor([true for _, true in pairs])
    total = sum(true for _, true in pairs)
    if not total:
        with pytest.raises(UserError, match="need at least one true fact; none was given"):
            precision_recall(scores, truth)
        return
    area, before = 0.0, 0.0
    for threshold in sorted({score for score, _ in pairs}, reverse=True):
        taken = [true for score, true in pairs if score >= threshold]
        area += (sum(taken) / total - before) * sum(taken) / len(taken)
        before = sum(taken) / total
    # all choices of the `total` best that keep what is better before what is worse
    recalls = []
    for chosen in combinations(range(len(pairs)), total):
        worst = min(pairs[i][0] for i in chosen)
        if all(i in chosen for i, (score, _) in enumerate(pairs) if score > worst):
            recalls.append(sum(pairs[i][1] for i in chosen) / total)
    found = precision_recall(scores, truth)
    assert found["auprc"] == pytest.approx(area)
    assert found["recall"] == pytest.approx(sum(recalls) / len(recalls))


def test_scores_that_are_no_numbers_are_refused():
    with pytest.raises(UserError, match="some scores are NaN"):
        precision_recall(torch.tensor([0.0, float("nan")]), torch.tensor([True, False]))
