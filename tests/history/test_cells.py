"""Rates of cells: the expected number of facts of every (s, p, o, t), given nothing."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from backends import EACH_BACKEND, running
from recollect import Facts
from recollect.history.bins import COUNT
from recollect.history.cells import CellRates, _total_widths
from recollect.history.edges import CLASS
from recollect.history.history import History
from recollect.history.reference import NOT_CUT, bin_at

SIZES = {"entity": 6, "predicate": 3, "time": 12}


def random_facts(seed: int, count: int = 120) -> Facts:
    g = torch.Generator().manual_seed(seed)
    columns = [torch.randint(SIZES[kind], (count,), generator=g) for kind in ("entity", "predicate", "entity", "time")]
    return Facts.from_columns(*columns)


def fitted(seed: int = 0) -> CellRates:
    return CellRates.fit(History.fit(random_facts(seed), SIZES, asked=""))


@pytest.mark.parametrize("seed", range(3))
def test_exposure_counts_every_time_from_which_an_edge_is_in_a_bin(seed):
    history = History.fit(random_facts(seed), SIZES, asked="")
    wanted = np.zeros((2 * SIZES["predicate"], COUNT))
    for row in history.edges.table:
        for t in range(SIZES["time"]):
            wanted[row[CLASS], bin_at(row, history.bins.by_lag, NOT_CUT, np.array(t))] += 1
    assert _total_widths(history, past=False) == pytest.approx(wanted)


def test_the_rate_of_a_cell_is_the_sum_of_the_kernel_over_the_facts_of_its_pair():
    cells = fitted()
    history, time = cells.history, 5
    pairs = cells.pairs()
    rates = cells.at(time, pairs)
    for pair, row in zip(pairs, rates, strict=True):
        edges = history.edges.table[cells.first[pair] : cells.last[pair]]
        for p in range(SIZES["predicate"]):
            total = 0.0
            for edge in edges:
                itself = edge[1] == p or (cells.subject[pair] == cells.object[pair] and edge[1] == p + 3)
                if edge[3] != time or not itself:
                    b = bin_at(edge, history.bins.by_lag, NOT_CUT, np.array(time))
                    total += cells.kernel[history.classes[p], edge[CLASS], b]
            assert row[p] == pytest.approx(total, rel=1e-5)


@EACH_BACKEND
def test_rates_of_some_predicates_are_columns_of_all_rates(backend):
    with running(backend):
        cells = fitted()
        every = cells.at(5, cells.pairs())
        for asked in ([1], [2, 0], []):
            assert np.array_equal(cells.at(5, cells.pairs(), np.array(asked, dtype=np.int64)), every[:, asked])


def test_rates_add_up_to_about_the_number_of_facts():
    # facts in runs of one pair: their number is what the rates of all cells were fitted to
    facts = Facts.of([(s, 0, s + 1, t) for s in (0, 2, 4) for t in range(12) if (t // 3 + s) % 2])
    cells = CellRates.fit(History.fit(facts, SIZES, asked=""))
    total = sum(float(cells.at(t, cells.pairs()).sum()) for t in range(12))
    assert total == pytest.approx(len(facts), rel=0.25)


def test_only_pairs_with_the_given_entities_are_rated():
    cells = fitted()
    pairs = cells.pairs(subject=2)
    rates = cells.at(3, pairs)
    assert set(cells.subject[pairs]) == {2}
    assert rates.shape == (len(pairs), SIZES["predicate"])
    assert len(cells.pairs(subject=2, object=4)) <= 1
    facts = cells.facts(pairs[:2], np.array([0, 1]), 3)
    assert facts.ids.tolist() == [
        [2, p, int(o), 3] for p, o in zip((0, 1), cells.object[pairs[:2]], strict=True)
    ]  # fmt: skip


def test_the_kernel_is_saved_and_checked():
    cells = fitted()
    again = CellRates.from_tensors(cells.tensors(), cells.history)
    assert np.array_equal(again.kernel, cells.kernel)
    kernel = cells.tensors()["kernel"]
    for wrong in (kernel[1:], kernel.double(), -kernel, kernel * torch.nan):
        with pytest.raises(ValueError, match="kernel of its cells"):
            CellRates.from_tensors({"kernel": wrong}, cells.history)
