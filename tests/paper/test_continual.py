"""The studies of snapshots and of forgetting: what they read and what their figures mean."""

from __future__ import annotations

import pytest
import torch

from paper.continual import read_snapshots, reciprocal_ranks
from paper.continual_page import backward_transfer, weighted
from paper.forgetting import kolmogorov_smirnov
from recollect import Facts, UserError
from recollect.models.config import ModelConfig
from recollect.models.zoo import build_model


def test_ids_of_snapshots_are_numbered_as_labels_first_occur(tmp_path):
    for number in range(5):
        (tmp_path / str(number)).mkdir()
        for split in ("train", "valid", "test"):
            (tmp_path / str(number) / f"{split}.txt").write_text(f"a\tr\te{number}\n", encoding="utf-8")
    snapshots = read_snapshots(tmp_path)
    assert list(snapshots.entities) == [2, 3, 4, 5, 6]
    assert snapshots.until(1).ids.tolist() == [[0, 0, 1, 0], [0, 0, 2, 0]]
    assert snapshots.graph(2).sizes == {"entity": 4, "predicate": 1, "time": 1}


def test_missing_snapshots_are_named(tmp_path):
    with pytest.raises(UserError, match="0/train.txt is no file; set RECOLLECT_DATA"):
        read_snapshots(tmp_path)


def test_strict_ranks_have_all_entities_as_candidates_and_lenient_ones_fewer():
    sizes = {"entity": 6, "predicate": 2, "time": 1}
    model = build_model(ModelConfig(model="distmult", dim=4, form="semantic"), sizes)
    facts = Facts.of([(0, 1, 2, 0), (1, 0, 2, 0)])
    strict = reciprocal_ranks(model, facts, facts, 6)
    lenient = reciprocal_ranks(model, facts, facts, 3)
    assert bool((lenient >= strict).all())
    assert bool((lenient >= 1 / 3).all())


def test_means_and_backward_transfer():
    assert weighted({"0": 0.5, "1": 0.2}, [3, 1]) == pytest.approx(0.425)
    assert backward_transfer({"0": {"0": 0.5}, "2": {"0": 0.1, "1": 0.2, "2": 0.3}}) is None


def test_the_distance_of_two_samples_and_its_p_value_are_those_of_scipy():
    stats = pytest.importorskip("scipy.stats", reason="scipy is an optional dependency")
    g = torch.Generator().manual_seed(0)
    a, b = torch.randn(300, generator=g), torch.randn(400, generator=g) + 0.1
    distance, p = kolmogorov_smirnov(a, b)
    expected = stats.ks_2samp(a.numpy(), b.numpy(), method="asymp")
    assert distance == pytest.approx(expected.statistic, abs=1e-6)
    assert p == pytest.approx(expected.pvalue, rel=0.1)
