"""Predicates that came after the fit share a class like those of the rarest fitted ones."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from recollect.graph.facts import Facts
from recollect.history.history import History
from recollect.history.new_predicates import more_classes, with_new_class, with_new_weights
from recollect.history.state import FITTED, kernel_shape, weights_shape
from tests.conftest import random_facts

SIZES = {"entity": 4, "predicate": 3, "time": 6}


def by_loops(kernel: np.ndarray) -> np.ndarray:
    """Return the kernel with one class more, each new number the mean over the rare classes that it stands for."""
    count = kernel.shape[1] // 2
    directions = kernel.shape[0] // count
    every, rare = range(count), range(count - max(1, count // 8), count)
    larger = np.zeros((directions * (count + 1), 2 * (count + 1), kernel.shape[2]))
    for a in range(len(larger)):
        for c in range(larger.shape[1]):
            (da, i), (dc, j) = divmod(a, count + 1), divmod(c, count + 1)
            if i == count and j == count:
                pairs = [(x, x) for x in rare]
            elif i == count:
                pairs = [(x, j) for x in rare if x != j] or [(x, j) for x in every if x != j]
            elif j == count:
                pairs = [(i, y) for y in rare if y != i] or [(i, y) for y in every if y != i]
            else:
                pairs = [(i, j)]
            values = [kernel[da * count + x, dc * count + y] for x, y in pairs]
            larger[a, c] = np.mean(values, axis=0) if values else 0
    return larger


@pytest.mark.parametrize("slot", "opt")
@pytest.mark.parametrize("classes", [2, 6, 40])
def test_the_new_class_is_the_mean_of_rare_ones(slot, classes):
    rng = np.random.default_rng(0)
    kernel = rng.uniform(size=kernel_shape(slot, classes)).astype(np.float32)
    larger = with_new_class(kernel)
    assert larger.shape == kernel_shape(slot, classes + 2)
    assert larger.dtype == np.float32
    np.testing.assert_allclose(larger, by_loops(kernel), rtol=1e-5)
    weights = rng.uniform(size=weights_shape(slot, classes)).astype(np.float32)
    assert with_new_weights({slot: weights})[slot].shape == weights_shape(slot, classes + 2)


def test_all_new_predicates_have_one_class_and_the_fitted_ones_keep_theirs():
    classes = np.array([1, 0, 2, 4, 3, 5])
    assert more_classes(classes, 3, 5).tolist() == [1, 0, 2, 3, 3, 5, 4, 6, 7, 7]
    assert more_classes(more_classes(classes, 3, 5), 3, 6).tolist() == more_classes(classes, 3, 6).tolist()


@pytest.fixture(scope="module")
def grown() -> History:
    facts = random_facts(60, SIZES)
    fitted = History.fit(facts, SIZES)
    larger = {**SIZES, "predicate": 5}
    return fitted.with_predicates(Facts.concat([facts, Facts.of([(0, 3, 1, 2), (1, 4, 0, 2)])]), larger)


def test_scores_of_fitted_predicates_stay_where_no_new_predicate_is_near(grown):
    facts = random_facts(60, SIZES)
    before = History.fit(facts, SIZES)
    asked = Facts.of([(2, 0, 3, 1), (3, 2, 2, 4)])
    np.testing.assert_allclose(grown.rates(asked, "o"), before.rates(asked, "o"), rtol=1e-6)


def test_the_number_of_fitted_predicates_is_saved(grown):
    tensors = grown.tensors()
    assert tensors[FITTED].tolist() == [3]
    again = History.from_tensors(tensors, grown.facts, grown.sizes)
    assert again.fitted == 3
    assert again.with_predicates(grown.facts, {**SIZES, "predicate": 7}).classes.tolist() == (
        grown.with_predicates(grown.facts, {**SIZES, "predicate": 7}).classes.tolist()
    )


@pytest.mark.parametrize("wrong", [torch.tensor([5]), torch.tensor([-1]), torch.tensor([2]), torch.tensor([3.0])])
def test_a_wrong_number_of_fitted_predicates_is_refused(grown, wrong):
    with pytest.raises(ValueError, match=r"history\.fitted|history\.classes"):
        History.from_tensors({**grown.tensors(), FITTED: wrong}, grown.facts, grown.sizes)
