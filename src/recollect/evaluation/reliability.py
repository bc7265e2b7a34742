"""Measure how reliable probabilities are: among answers said to be true with p, the share p should be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from recollect.evaluation.calibration import UNCALIBRATED, Calibration, Sample, sample_predicted
from recollect.evaluation.ranking import Scorer
from recollect.graph.fact_index import FactIndex
from recollect.graph.facts import SLOT_NAMES, Facts

LIKELY = 0.01  # the least probability that a reader looks at
FEWEST = 10  # candidates of a bin whose share of true ones is shown


def reliability(probability: Tensor, sample: Sample, *, bins: int = 10) -> dict[str, Any]:
    """Return Brier score, log loss, expected calibration errors and a table by bin of probabilities (m,).

    Most candidates are hopeless, so that `expected_error`, of all, is always small. `likely_error` is that of the
    candidates with a probability of at least LIKELY.
    """
    truth, weight = sample.truth.double(), sample.weight / sample.weight.sum()
    safe = probability.clamp(1e-12, 1 - 1e-12)
    log_likelihood = truth * safe.log() + (1 - truth) * (1 - safe).log()
    bin_of = (probability * bins).long().clamp(max=bins - 1)

    def total(values: Tensor) -> Tensor:
        return torch.zeros(bins, dtype=probability.dtype).index_add_(0, bin_of, values)

    mass, predicted, observed = total(weight), total(weight * probability), total(weight * truth)
    rows = [
        {
            "from": i / bins,
            "predicted": (predicted[i] / mass[i]).item(),
            "observed": (observed[i] / mass[i]).item(),
            "candidates": int((bin_of == i).sum()),
        }
        for i in range(bins)
        if mass[i] > 0
    ]
    return {
        "brier": (weight * (probability - truth) ** 2).sum().item(),
        "log_loss": -(weight * log_likelihood).sum().item(),
        "expected_error": (predicted - observed).abs().sum().item(),
        "likely_error": _likely_error(probability, truth, weight, bins),
        "bins": rows,
    }


def observed_by_tenth(report: Mapping[str, Any]) -> dict[int, float]:
    """Return the share of true candidates by tenth of their probability, 0 to 9, where there are enough of them."""
    return {round(10 * row["from"]): row["observed"] for row in report["bins"] if row["candidates"] >= FEWEST}


def _likely_error(probability: Tensor, truth: Tensor, weight: Tensor, bins: int) -> float:
    """Return Σ_bins |Σ weight (p − truth)| / Σ weight over the candidates with p ≥ LIKELY; 0 if there are none."""
    likely = probability >= LIKELY
    bin_of = (probability[likely] * bins).long().clamp(max=bins - 1)
    gaps = weight[likely] * (probability - truth)[likely]
    by_bin = torch.zeros(bins, dtype=torch.float64).index_add_(0, bin_of, gaps)
    return (by_bin.abs().sum() / weight[likely].sum().clamp(min=1e-300)).item()


def reliability_report(
    scorer: Scorer,
    facts: Facts,
    calibration: Calibration,
    *,
    known: FactIndex,
    stored: FactIndex,
    slots: str,
    generator: torch.Generator,
) -> dict[str, dict[str, Any]]:
    """Return, by slot, the reliability of predicted answers: of σ(x) ("before"), and calibrated ("after")."""
    report = {}
    for slot in slots:
        if known.size(slot) < 2:
            continue
        sample = sample_predicted(
            scorer, facts, slot, stored=stored, known=known, generator=generator,
            among_predicted=calibration.among_predicted,
        )  # fmt: skip
        report[SLOT_NAMES[slot]] = {
            "before": reliability(UNCALIBRATED.probability(sample.score, slot), sample),
            "after": reliability(calibration.probability(sample.score, slot, sample.context), sample),
        }
    return report
