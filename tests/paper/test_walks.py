"""History with shares of a static model and a walk, against loops over plain numbers."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from paper.walks import RECENCY, WalkHistory, fit_kappa
from recollect.graph.fact_index import FactIndex
from recollect.graph.facts import Facts
from recollect.history.history import History

SIZES = {"entity": 5, "predicate": 2, "time": 9}


class Constant:
    """A static model with the same scores for every query."""

    scores = torch.tensor([0.0, 1.0, -1.0, 2.0, 0.5])

    def score_against(self, facts, slot, candidates=None):
        return self.scores.expand(len(facts), -1)


@pytest.fixture
def facts():
    generator = torch.Generator().manual_seed(1)
    return Facts.from_columns(*(torch.randint(size, (40,), generator=generator) for size in (5, 2, 5, 9)))


@pytest.fixture
def history(facts):
    return History.fit(facts[facts.t < 6], SIZES, asked="o", past=True)


def walk_share(stored, source, predicate):
    """Return the share of each entity after two steps over all edges and one along a directed predicate."""
    edges = []
    for s, p, o, t in stored.ids.tolist():
        weight = math.exp(-(int(stored.t.max()) - t) / RECENCY)
        edges += [(s, p, o, weight), (o, p + 2, s, weight)]

    def step(mass, used, normalize):
        out = [0.0] * 5
        for u, _, v, weight in used:
            leaving = sum(w for a, _, _, w in used if a == u) if normalize else 1.0
            out[v] += mass[u] * weight / leaving
        return out

    mass = [float(entity == source) for entity in range(5)]
    mass = step(step(mass, edges, True), edges, True)
    mass = step(mass, [edge for edge in edges if edge[1] == predicate], False)
    return np.array(mass) / (sum(mass) or 1.0)


@pytest.mark.parametrize("slot", ["s", "o"])
def test_scores_are_the_logarithm_of_the_rate_plus_the_shares(facts, history, slot):
    stored, asked, kappa = facts[facts.t < 6], facts[facts.t == 6], np.array([0.4, 0.7])
    found = WalkHistory(history.with_facts(stored), Constant(), kappa).score_against(asked, slot).exp()
    rates = history.with_facts(stored).rates(asked, slot)
    for row, (s, p, o, _) in enumerate(asked.ids.tolist()):
        source, directed = (s, p) if slot == "o" else (o, p + 2)
        share = kappa[0] * torch.softmax(Constant.scores, dim=0).numpy()
        share = share + kappa[1] * walk_share(stored, source, directed)
        scale = history.weights["o"][history.classes[directed]].sum()
        assert found[row].numpy() == pytest.approx(rates[row] + scale * share, rel=1e-4)


def test_fitted_weights_have_a_higher_likelihood_than_others_nearby(facts, history):
    asked, known = facts[facts.t >= 6], FactIndex(facts, SIZES)
    best = fit_kappa(history, Constant(), facts, asked, known)

    def log_likelihood(kappa):
        total = 0.0
        for fact in asked.split(1):
            scorer = WalkHistory(history.with_facts(facts[facts.t < fact.t]), Constant(), kappa)
            for slot in "so":
                rates = scorer.score_against(fact, slot)[0].double().exp()
                answer = rates[fact.column(slot)].item()
                rates[known.find(fact, slot)[1]] = 0
                total += math.log(answer / (rates.sum().item() + answer))
        return total

    for factor in ((1.5, 1.0), (1 / 1.5, 1.0), (1.0, 1.5), (1.0, 1 / 1.5)):
        assert log_likelihood(best) >= log_likelihood(best * factor) - 1e-4
