"""Metrics of intervals against sets of times, and intervals grown from scores."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from recollect.evaluation.intervals import aeiou, coalesce, fit_intervals, giou, interval_metrics, tac

INTERVAL = st.tuples(st.integers(0, 12), st.integers(0, 12)).map(sorted)


def of(*interval):
    return torch.tensor([interval])


@given(INTERVAL, INTERVAL)
def test_metrics_equal_their_definitions_on_sets(true, predicted):
    a, b = (set(range(first, last + 1)) for first, last in (true, predicted))
    hull = set(range(min(a | b), max(a | b) + 1))
    expected = {
        "aeiou": max(1, len(a & b)) / len(hull),
        "giou": (1 + len(a & b) / len(a | b) - len(hull - (a | b)) / len(hull)) / 2,
        "tac": (1 / (1 + abs(min(a) - min(b))) + 1 / (1 + abs(max(a) - max(b)))) / 2,
    }
    assert interval_metrics(of(*true), of(*predicted)) == pytest.approx(expected)


@pytest.mark.parametrize("metric", [aeiou, giou, tac])
def test_the_true_interval_scores_one_and_a_nearer_miss_more_than_a_farther(metric):
    true = of(5, 8)
    assert metric(true, true).item() == 1
    assert metric(true, of(10, 12)) > metric(true, of(20, 22)) > 0


def test_instants_nested_and_adjacent_intervals():
    assert aeiou(of(3, 3), of(5, 5)).item() == pytest.approx(1 / 3)
    assert aeiou(of(0, 9), of(4, 5)).item() == pytest.approx(2 / 10)
    assert giou(of(0, 1), of(2, 3)).item() == pytest.approx(1 / 2)  # no overlap and no gap
    assert tac(of(0, 9), of(0, 4)).item() == pytest.approx((1 + 1 / 6) / 2)


def grown(probability, threshold):
    """Return the interval by the definition, one time after another."""
    first = last = max(range(len(probability)), key=probability.__getitem__)
    while sum(probability[first : last + 1]) < threshold and (first > 0 or last + 1 < len(probability)):
        if last + 1 == len(probability) or (first > 0 and probability[first - 1] > probability[last + 1]):
            first -= 1
        else:
            last += 1
    return [first, last]


@given(st.lists(st.integers(0, 8), min_size=1, max_size=10, unique=True), st.integers(0, 40))
def test_an_interval_grows_towards_the_more_probable_neighbour(mass, threshold):
    found = coalesce(torch.tensor([mass], dtype=torch.float64), torch.tensor([float(threshold)]))
    assert found.tolist() == [grown(mass, threshold)]


def test_thresholds_of_frequent_predicates_are_their_own_and_rare_ones_take_the_common():
    long, short = [1.0] * 8 + [-9.0] * 2, [1.0] + [-2.0] * 9
    scores = torch.tensor([long] * 60 + [short] * 60 + [long])
    predicates = torch.tensor([0] * 60 + [1] * 60 + [2])
    true = torch.tensor([[0, 7]] * 60 + [[0, 0]] * 60 + [[0, 0]])
    fitted = fit_intervals(scores, predicates, true)
    assert fitted.predict(scores[:1], predicates[:1]).tolist() == [[0, 7]]
    assert fitted.predict(scores[60:61], predicates[60:61]).tolist() == [[0, 0]]
    assert fitted.thresholds[2] == fitted.default
    assert (
        fitted.predict(scores[:1], torch.tensor([7])).tolist() == fitted.predict(scores[:1], torch.tensor([2])).tolist()
    )
