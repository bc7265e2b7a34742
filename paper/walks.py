"""History with two more shares of popularity, for forecasts about pairs that never met.

    λ'(s, p, o, t) = λ(s, p, o, t) + W[p] Σ_c κ_c share_c(o)

W[p] is the sum of history's own weights of popularity. The shares, each with sum 1 over the candidates o, are: the
softmax of a static model's scores; and a walk from s of two steps over the pairs of the stored facts and one step along
p, recent facts with more weight.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch
from torch import Tensor

from recollect.evaluation.ranking import Scorer
from recollect.graph.fact_index import FactIndex
from recollect.graph.facts import Facts
from recollect.history.history import MIN_RATE, History

SHARES = ("static model", "walk")
RECENCY = 60.0  # steps in which the weight of a stored fact falls to 1/e
PASSES = 100
BLOCK = 256  # facts scored at a time

Floats = npt.NDArray[np.float32]
Kappa = npt.NDArray[np.float64]


class WalkHistory:
    """A scorer over the facts before the asked times: log λ'."""

    def __init__(self, history: History, static: Scorer, kappa: Kappa) -> None:
        self.history, self.static, self.kappa = history, static, kappa
        facts, sizes = history.facts, history.sizes
        self._source = torch.cat([facts.s, facts.o]).numpy()
        self._target = torch.cat([facts.o, facts.s]).numpy()
        self._predicate = torch.cat([facts.p, facts.p + sizes["predicate"]]).numpy()
        age = (facts.t.max() - facts.t).numpy() if len(facts) else np.empty(0)
        self._weight = np.exp(-np.concatenate([age, age]) / RECENCY)
        self._step = _normalized(self._matrix(np.ones(len(self._source), dtype=bool)))
        self._along: dict[int, sp.csr_matrix] = {}  # directed predicate -> weights of its pairs (E, E)

    def score(self, facts: Facts) -> Tensor:
        """Return log λ' of each fact's object: (B,)."""
        return self.score_against(facts, "o", facts.o[:, None])[:, 0]

    def score_against(self, facts: Facts, slot: str, candidates: Tensor | None = None) -> Tensor:
        """Return log λ' of fact b with `slot` (s or o) replaced by candidate n: (B, N)."""
        rates, shares = self.parts(facts, slot)
        scores = torch.from_numpy(np.log(np.maximum(rates + np.tensordot(self.kappa, shares, axes=1), MIN_RATE)))
        if candidates is None:
            return scores
        return scores[:, candidates] if candidates.dim() == 1 else scores.gather(1, candidates)

    def parts(self, facts: Facts, slot: str) -> tuple[Floats, Floats]:
        """Return λ (B, E), and W[p] share_c of every candidate: (2, B, E)."""
        is_object = slot == "o"
        source = (facts.s if is_object else facts.o).numpy()
        directed = (facts.p if is_object else facts.p + self.history.sizes["predicate"]).numpy()
        walk = self._step[source] @ self._step
        shares = np.empty((len(SHARES), len(facts), self.history.sizes["entity"]), dtype=np.float32)
        shares[0] = torch.softmax(self.static.score_against(facts, slot).detach(), dim=1).numpy()
        for predicate in np.unique(directed):
            rows = np.flatnonzero(directed == predicate)
            shares[1, rows] = _normalized(walk[rows] @ self._pairs(int(predicate))).toarray()
        scale = self.history.weights["o"][self.history.classes[directed]].sum(axis=1)
        return self.history.rates(facts, slot), shares * scale[None, :, None]

    def _pairs(self, predicate: int) -> sp.csr_matrix:
        if predicate not in self._along:
            self._along[predicate] = self._matrix(self._predicate == predicate)
        return self._along[predicate]

    def _matrix(self, chosen: npt.NDArray[np.bool_]) -> sp.csr_matrix:
        """Return the summed weights of the chosen edges: (E, E)."""
        entities = self.history.sizes["entity"]
        pairs = (self._source[chosen], self._target[chosen])
        return sp.csr_matrix((self._weight[chosen], pairs), shape=(entities, entities), dtype=np.float32)


def _normalized(matrix: sp.csr_matrix) -> sp.csr_matrix:
    """Divide each row by its sum; rows of zeros stay."""
    sums = np.asarray(matrix.sum(axis=1)).ravel()
    return sp.diags_array(1 / np.where(sums > 0, sums, 1)).astype(np.float32) @ matrix


def fit_kappa(history: History, static: Scorer, stored: Facts, facts: Facts, known: FactIndex) -> Kappa:
    """Return κ (2,) that maximises Σ log λ'(answer) / Σ_o λ'(o) over facts, one time after another.

    Minorise-maximise: κ_c ← κ_c Σ share_c(answer)/λ'(answer) / Σ (Σ_o share_c(o))/(Σ_o λ'(o)). A query is three
    numbers for the answer and three for the sum over candidates, so a pass costs nothing.
    """
    answers, sums = [], []
    for time in facts.t.unique().tolist():
        scorer = WalkHistory(history.with_facts(stored[stored.t < time]), static, np.zeros(len(SHARES)))
        for block in facts[facts.t == time].split(BLOCK):
            for slot in "so":
                rates, shares = scorer.parts(block, slot)
                parts = np.concatenate([rates[None], shares])
                own = block.column(slot).numpy()
                answer = parts[:, np.arange(len(block)), own].astype(np.float64)
                rows, ids = (found.numpy() for found in known.find(block, slot))
                parts[:, rows, ids] = 0  # other true answers are no candidates
                answers.append(answer)
                sums.append(parts.sum(axis=2, dtype=np.float64) + answer)
    answer, total = np.concatenate(answers, axis=1), np.concatenate(sums, axis=1)
    kappa = np.full(len(SHARES), 0.5)
    for _ in range(PASSES):
        hits = answer[1:] / (answer[0] + kappa @ answer[1:])
        exposure = total[1:] / (total[0] + kappa @ total[1:])
        kappa = kappa * hits.sum(axis=1) / exposure.sum(axis=1)
    return kappa
