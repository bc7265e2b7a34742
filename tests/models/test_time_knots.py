"""Time embeddings interpolated from knots, and the norms of HolE's spectra."""

from __future__ import annotations

import pytest
import torch

from conftest import generator, random_facts, random_model
from recollect.models.batch import real_candidates
from recollect.models.semantic import plain_model
from recollect.models.time_knots import TimeKnots
from recollect.models.zoo import MODELS

SIZES = {"entity": 9, "predicate": 3, "time": 20}
EPISODIC = [name for name, model in MODELS.items() if model.has_form("episodic")]


@pytest.mark.parametrize("spacings", [(1,), (0,), (3,), (0, 1, 4, 7), (50,)])
def test_knots_interpolate(spacings):
    knots = TimeKnots.of(20, spacings)
    weights = knots.mixing(torch.arange(20), torch.zeros(1, dtype=torch.float64))
    assert weights.shape == (20, knots.count)
    torch.testing.assert_close(weights.sum(dim=1), torch.full((20,), float(len(spacings)), dtype=torch.float64))
    if 50 not in spacings:  # the last knot of a level longer than all times has no weight
        assert bool((weights.sum(dim=0) > 0).all())
    table = torch.randn(knots.count, 2, dtype=torch.float64, generator=generator(2))
    times = torch.tensor([3, 3, 0, 19])
    torch.testing.assert_close(knots.rows(table, times), weights[times] @ table)
    used = knots.touched(times)
    assert torch.equal(used, weights[times].sum(dim=0).nonzero()[:, 0])
    restricted = knots.restrict(times, used)
    torch.testing.assert_close(restricted.rows(table[used], torch.arange(4)), weights[times] @ table)


def test_knots_at_every_time_and_one_common_knot_are_the_plain_model():
    plain = random_model("cont", "both", 3, sizes=SIZES)
    knotted = random_model("cont", "both", 3, sizes=SIZES, time_levels=(0, 1))
    weights = plain.state_dict()
    shift = torch.randn(1, 3, 3, 3, dtype=torch.float64, generator=generator(4))
    knotted.load_state_dict(weights | {"time": torch.cat([shift, weights["time"] - shift])})
    facts = random_facts(50, SIZES)
    for slot in "spot":
        torch.testing.assert_close(knotted.score_against(facts, slot), plain.score_against(facts, slot))
    torch.testing.assert_close(plain_model(knotted).time, plain.time)


@pytest.mark.parametrize("name", EPISODIC)
@pytest.mark.parametrize("count", [2, 19])
def test_some_times_score_as_they_do_among_all(name, count):
    """Few times are interpolated before they are scored, many afterwards."""
    model = random_model(name, "both", 3, sizes=SIZES, time_levels=(1, 5))
    facts, times = random_facts(30, SIZES), torch.randperm(20, generator=generator(2))[:count]
    torch.testing.assert_close(model.score_against(facts, "t", times), model.score_against(facts, "t")[:, times])


@pytest.mark.parametrize("dim", [6, 7])
@pytest.mark.parametrize("slot", "so")
def test_a_spectrum_has_the_norm_of_its_row(dim, slot):
    model = random_model("hole", "episodic", dim, sizes=SIZES)
    spectra = real_candidates(model.lift(slot, model.entity))
    torch.testing.assert_close(spectra.square().sum(dim=1), model.entity.square().sum(dim=1))
