"""Calibration: calibrated probabilities are close to frequencies."""

from __future__ import annotations

import pytest
import torch

from conftest import SIZES, generator, random_facts, random_model
from recollect.evaluation.calibration import UNCALIBRATED, Calibration, Sample, fit_platt, sample_predicted
from recollect.evaluation.reliability import reliability
from recollect.graph.fact_index import FactIndex


def drawn(a: float, b: float, n: int = 40_000) -> Sample:
    """Return candidates that are true with probability σ(aθ + b)."""
    g = generator(3)
    score = torch.randn(n, generator=g, dtype=torch.float64) * 3
    truth = torch.rand(n, generator=g, dtype=torch.float64) < torch.sigmoid(a * score + b)
    return Sample(score, truth, torch.ones(n, dtype=torch.float64))


@pytest.mark.parametrize(("a", "b"), [(1.0, 0.0), (0.3, -2.0), (2.5, 1.0)])
def test_platt_scaling_finds_the_parameters_that_drew_the_sample(a, b):
    fit = fit_platt(drawn(a, b))
    assert fit == pytest.approx((a, b), abs=0.08)


def test_a_weight_counts_like_so_many_candidates():
    sample = drawn(0.5, -1.0, 4000)
    weight = 1 + (torch.arange(4000) % 3).double()
    repeated = torch.arange(4000).repeat_interleave(weight.long())
    doubled = Sample(sample.score[repeated], sample.truth[repeated], torch.ones(len(repeated), dtype=torch.float64))
    assert fit_platt(Sample(sample.score, sample.truth, weight)) == pytest.approx(fit_platt(doubled), abs=0.02)


def test_platt_scaling_keeps_the_order_and_stays_finite():
    score = torch.linspace(-5, 5, 100, dtype=torch.float64)
    ones = torch.ones(100, dtype=torch.float64)
    a, b = fit_platt(Sample(score, score > 0, ones))
    assert 0 < a < 1e3
    assert abs(b) < 1e3
    a, b = fit_platt(Sample(score, score < 0, ones))  # worse than chance: the prior, never the reverse order
    assert a == 0
    assert torch.sigmoid(torch.tensor(b)).item() == pytest.approx(0.5, abs=0.01)
    a, b = fit_platt(Sample(torch.zeros_like(score), score > 0, ones))
    assert abs(a) < 1e-6


def test_platt_scaling_of_one_or_two_candidates_is_finite():
    one = torch.ones(1, dtype=torch.float64)
    assert fit_platt(Sample(one, one > 0, one)) == (1.0, 0.0)
    a, b = fit_platt(Sample(torch.cat([one, -one]), torch.tensor([True, False]), torch.cat([one, one])))
    assert 0 < a < 100
    assert abs(b) < 100


def test_a_context_shifts_and_steepens_the_fit():
    g, n = generator(5), 60_000
    score = torch.randn(n, generator=g, dtype=torch.float64)
    context = torch.rand(n, generator=g, dtype=torch.float64) * 2
    logit = (1.2 + 0.4 * context) * score - 0.5 + 0.8 * context
    truth = torch.rand(n, generator=g, dtype=torch.float64) < torch.sigmoid(logit)
    fit = fit_platt(Sample(score, truth, torch.ones(n, dtype=torch.float64), context))
    assert fit == pytest.approx((1.2, -0.5, 0.8, 0.4), abs=0.1)
    calibration = Calibration({"t": fit})
    assert calibration.at(0.7).probability(score, "t").tolist() == pytest.approx(
        calibration.probability(score, "t", torch.tensor(0.7).double()).tolist()
    )


def test_where_only_hopeless_candidates_differ_they_are_fitted():
    score = torch.cat([torch.zeros(50), torch.full((200,), -11.0)]).double()
    truth = torch.arange(250) < 40  # of the hopeful ones, those that are true score no higher
    context = torch.arange(250, dtype=torch.float64) % 3
    a, b, c, d = fit_platt(Sample(score, truth, torch.ones_like(score), context))
    z = context.mean()
    at = {x: torch.sigmoid((a + d * z) * x + b + c * z).item() for x in (0.0, -11.0)}
    assert at[0.0] > 0.6
    assert at[-11.0] < 0.05


def test_hopeless_candidates_do_not_bend_a_fit_with_context():
    sample = drawn(1.0, 0.0)
    hopeless = torch.full((5000,), -20.0, dtype=torch.float64)
    score = torch.cat([sample.score, hopeless])
    truth = torch.cat([sample.truth, torch.arange(5000) % 50 == 0])  # far more often than σ(−20)
    fit = fit_platt(Sample(score, truth, torch.ones_like(score), torch.zeros_like(score)))
    assert fit[:2] == pytest.approx((1.0, 0.0), abs=0.1)


def test_counts_stand_for_true_candidates_that_are_not_seen():
    sample = drawn(0.8, -2.0, 80_000)
    hidden = sample.truth & (torch.arange(80_000) % 2 == 0)  # half of the true ones look false
    seen = Sample(
        sample.score, sample.truth & ~hidden, sample.weight, torch.zeros_like(sample.score),
        torch.full_like(sample.score, 2.0),
    )  # fmt: skip
    assert fit_platt(seen)[:2] == pytest.approx((0.8, -2.0), abs=0.1)
    assert fit_platt(Sample(*(getattr(seen, name) for name in ("score", "truth", "weight", "context"))))[1] < -2.4


def test_counts_that_no_fit_can_meet_are_left_out():
    score = torch.linspace(-4, 4, 200, dtype=torch.float64)
    ones = torch.ones_like(score)
    separable = Sample(score, score > 2.5, ones, torch.zeros_like(score), 3 * ones)
    dense = Sample(score, score > -3.9, ones, torch.zeros_like(score), 3 * ones)
    for sample in (separable, dense):
        assert all(abs(number) < 1e3 for number in fit_platt(sample))


def test_the_likely_error_is_that_of_likely_candidates():
    probability = torch.tensor([0.95, 0.25, 0.001], dtype=torch.float64)
    sample = Sample(probability, torch.tensor([True, False, True]), torch.ones(3, dtype=torch.float64))
    assert reliability(probability, sample)["likely_error"] == pytest.approx((0.05 + 0.25) / 2)
    unlikely = Sample(probability[2:], torch.tensor([True]), torch.ones(1, dtype=torch.float64))
    assert reliability(probability[2:], unlikely)["likely_error"] == 0


def test_reliability_equals_the_figures_by_hand():
    sample = Sample(
        torch.zeros(4), torch.tensor([True, False, False, False]), torch.tensor([1.0, 1.0, 1.0, 1.0]).double()
    )
    report = reliability(torch.tensor([0.95, 0.05, 0.05, 0.25], dtype=torch.float64), sample)
    assert report["brier"] == pytest.approx((0.05**2 + 0.05**2 + 0.05**2 + 0.25**2) / 4)
    assert report["expected_error"] == pytest.approx((0.05 + 0.05 * 2 + 0.25) / 4)
    assert [row["from"] for row in report["bins"]] == [0.0, 0.2, 0.9]
    assert report["bins"][0] == {"from": 0.0, "predicted": pytest.approx(0.05), "observed": 0.0, "candidates": 2}


@pytest.mark.parametrize("among_predicted", [True, False])
def test_calibration_lowers_the_log_loss_and_probabilities_sum_to_the_number_of_answers(among_predicted):
    facts, model = random_facts(60), random_model("tucker", "episodic", 3)
    stored, known = FactIndex(facts[:40], SIZES), FactIndex(facts, SIZES)
    for slot in "spot":
        sample = sample_predicted(
            model, facts, slot, stored=stored, known=known, generator=generator(), among_predicted=among_predicted
        )
        before = reliability(UNCALIBRATED.probability(sample.score, slot), sample)
        calibration = Calibration({slot: fit_platt(sample)}, among_predicted)
        probability = calibration.probability(sample.score, slot, sample.context)
        assert reliability(probability, sample)["log_loss"] < before["log_loss"]
        weight = sample.weight / sample.weight.sum()
        assert (weight * probability).sum().item() == pytest.approx((weight * sample.truth).sum().item(), abs=0.03)


def test_sampled_candidates_are_all_that_are_not_stored():
    facts, model = random_facts(30), random_model("tucker", "episodic", 3)
    stored, known = FactIndex(facts[:20], SIZES), FactIndex(facts, SIZES)
    sample = sample_predicted(
        model, facts, "o", stored=stored, known=known, generator=generator(), among_predicted=False
    )
    order = torch.randperm(30, generator=generator())  # in which the facts were taken
    with torch.no_grad():
        scores = model.score_against(facts[order], "o").double()
    is_new = ~stored.mask(facts[order], "o")
    torch.testing.assert_close(sample.score, scores[is_new])
    assert torch.equal(sample.truth, known.mask(facts[order], "o")[is_new])
    assert set(sample.weight.tolist()) == {1.0}
