"""What holds at a time: exactly, from the runs of the store, and what is likely though it was never stored."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from recollect.evaluation.calibration import Sample, fit_platt
from recollect.graph.episodes import Runs
from recollect.graph.fact_index import FactIndex
from recollect.graph.facts import Facts
from recollect.history.bins import Ints
from recollect.history.cells import CellRates

CELL = "cell"  # the calibration of cells, beside those of slots
FIT_TIMES = 32  # times whose cells a calibration is fitted to
BEST_CELLS, OTHER_CELLS = 2048, 2048  # per time: the likeliest cells, and random ones that stand for all others
MIN_RATE = 1e-30


def stored_triples(runs: Runs, time: int, given: Mapping[str, int]) -> Facts:
    """Return the stored facts that hold at a time and have the given ids, those that began last first."""
    holds = (runs.first.t <= time) & (runs.last >= time)
    for slot, wanted in given.items():
        holds &= runs.first.column(slot) == wanted
    found = runs.first[holds]
    return found[found.t.argsort(descending=True, stable=True)].with_slot("t", time)


def likely_cells(
    cells: CellRates, stored: FactIndex, time: int, given: Mapping[str, int], top: int
) -> tuple[Facts, Tensor]:
    """Return the `top` cells at a time with the highest λ that are not stored, and log λ: n facts, (n,)."""
    pairs, rates = cells.at(time, given.get("s"), given.get("o"))
    predicates = np.array([given["p"]]) if "p" in given else np.arange(rates.shape[1])
    rates = rates[:, predicates]
    held = int((stored.facts.t == time).sum())
    best = _largest(rates.ravel(), min(rates.size, max(0, top) + held))
    facts = cells.facts(pairs[best // len(predicates)], predicates[best % len(predicates)], time)
    is_new = ~stored.contains(facts)
    scores = torch.from_numpy(np.log(np.maximum(rates.ravel()[best], MIN_RATE))).double()
    return facts[is_new][: max(0, top)], scores[is_new][: max(0, top)]


def fit_cells(cells: CellRates, stored: FactIndex, valid: Facts, generator: torch.Generator) -> tuple[float, float]:
    """Return the (a, b) of σ(a log λ + b), the probability that a cell that is not stored holds."""
    times = valid.t.unique()
    times = times[torch.randperm(len(times), generator=generator)[:FIT_TIMES]]
    answers = FactIndex(valid, stored.sizes)
    samples = []
    for time in times.tolist():
        pairs, rates = cells.at(time)
        flat = rates.ravel()
        best = _largest(flat, min(flat.size, BEST_CELLS))
        others = torch.randint(flat.size, (OTHER_CELLS,), generator=generator).numpy()
        chosen = np.concatenate([best, np.setdiff1d(others, best)])
        facts = cells.facts(pairs[chosen // rates.shape[1]], chosen % rates.shape[1], time)
        weight = torch.ones(len(chosen), dtype=torch.float64)
        weight[len(best) :] = (flat.size - len(best)) / max(1, len(chosen) - len(best))
        scores = torch.from_numpy(np.log(np.maximum(flat[chosen], MIN_RATE))).double()
        is_new = ~stored.contains(facts)
        samples.append((scores[is_new], answers.contains(facts)[is_new], weight[is_new]))
    return fit_platt(Sample(*(torch.cat(columns) for columns in zip(*samples, strict=True))))


def _largest(values: np.ndarray, count: int) -> Ints:
    """Return the positions of the `count` largest values, the largest first; of equal ones the lower comes first."""
    chosen = np.argpartition(-values, count - 1)[:count] if 0 < count < len(values) else np.arange(len(values))[:count]
    return chosen[np.lexsort((chosen, -values[chosen]))]
