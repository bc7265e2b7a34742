"""Every model on a second device without float64: scores, gradients and updates by the definitions in PyTorch."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from conftest import FORMED, generator, random_facts, random_model
from other_device import DEVICE, OtherDevice, Remote
from recollect import RECIPES, Facts, TrainingRun
from recollect.engine import OPTIMIZERS, RowOptimizer
from recollect.graph.facts import KINDS
from recollect.models.config import ModelConfig
from recollect.models.tensor_model import TensorModel
from recollect.models.zoo import build_model

SIZES = {"entity": 40, "predicate": 3, "time": 8}
BUILT = [{}, {"time_levels": (0, 1, 3)}, {"reciprocal": True}]
QUICK = [("complex", "both"), ("tree", "episodic"), ("cont", "both")]
CASES = [
    pytest.param(name, form, built, marks=[] if (name, form) in QUICK else pytest.mark.long)
    for name, form in FORMED
    for built in BUILT
    if not (form == "semantic" and "time_levels" in built)
]
EACH = pytest.mark.parametrize(("name", "form", "built"), CASES)


def on_device(model: TensorModel) -> TensorModel:
    remote = build_model(model.config, SIZES, device=DEVICE)
    for name, parameter in model.named_parameters():
        remote.get_parameter(name).data.copy_(parameter.detach())
    return remote


def all_scores(model: TensorModel, facts: Facts) -> list[Tensor]:
    """Return the scores of every kind of question, candidates given as ids on the CPU."""
    found = [model.score(facts)]
    for slot in model.slots:
        count = SIZES[KINDS[slot]]
        found.append(model.score_against(facts, slot))
        found.append(model.score_against(facts, slot, torch.tensor([count - 1, 0])))
        found.append(model.score_against(facts, slot, torch.randint(count, (len(facts), 2), generator=generator(3))))
    for counts in ({"s": 1, "o": 1}, {"s": 2, "o": 2}, {"p": 1}):
        negatives = {
            slot: torch.randint(SIZES[KINDS[slot]], (len(facts), count), generator=generator(4))
            for slot, count in counts.items()
        }
        found += model.score_with_negatives(facts, negatives)
    return found


@EACH
def test_scores_and_gradients_on_a_second_device_are_those_of_the_cpu(name, form, built):
    model, facts = random_model(name, form, 3, dtype="float32", sizes=SIZES, **built), random_facts(70, SIZES)
    wanted = all_scores(model, facts)
    torch.cat([x.flatten() for x in wanted]).square().mean().backward()
    with OtherDevice():
        remote = on_device(model)
        found = all_scores(remote, facts)
        torch.cat([x.flatten() for x in found]).square().mean().backward()
    assert {x.device for x in found} == {DEVICE}
    for a, b in zip(found, wanted, strict=True):
        torch.testing.assert_close(a.local, b, rtol=1e-4, atol=1e-4)
    for a, b in zip(remote.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(a.grad.local, b.grad, rtol=1e-3, atol=1e-3 * float(b.grad.abs().max()))


@pytest.mark.long
@EACH
def test_scores_without_gradients_on_a_second_device_are_those_of_the_cpu(name, form, built):
    model, facts = random_model(name, form, 3, dtype="float32", sizes=SIZES, **built), random_facts(70, SIZES)
    with torch.no_grad(), OtherDevice():
        found = all_scores(on_device(model), facts)
    with torch.no_grad():
        for a, b in zip(found, all_scores(model, facts), strict=True):
            torch.testing.assert_close(a.local, b, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_updates_on_a_second_device_are_those_of_the_cpu(kind):
    start = torch.randn(9, 4, generator=generator(1))
    ours, wanted = torch.nn.Parameter(Remote(start.clone())), torch.nn.Parameter(start.clone())
    with OtherDevice():
        optimizers = [RowOptimizer(kind, {"x": x}, lr=0.1, decay=0.1, lazy=frozenset("x")) for x in (ours, wanted)]
        for step in range(6):
            rows, grad = (
                torch.tensor([step, 8, 2 * step % 5 + 3]).unique(),
                torch.randn(9, 4, generator=generator(step)),
            )
            optimizers[0].step({"x": (Remote(rows), Remote(grad[rows]))})
            optimizers[1].step({"x": (rows, grad[rows])})
        for optimizer in optimizers:
            optimizer.catch_up_()
    torch.testing.assert_close(ours.local, wanted.detach(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("recipe", ["paper", "modern"])
@pytest.mark.parametrize("name", ["complex", "cont"])
def test_a_training_on_a_second_device_ends_as_on_the_cpu(small_world, name, recipe):
    config, short = ModelConfig(model=name, dim=4), replace(RECIPES[recipe], epochs=1)
    on_cpu = TrainingRun(small_world, config, recipe=short, seed=0)
    for _ in on_cpu:
        pass
    with OtherDevice():
        remote = TrainingRun(small_world, config, recipe=short, seed=0, device=DEVICE)
        for _ in remote:
            pass
    assert remote.history[-1].loss == pytest.approx(on_cpu.history[-1].loss, rel=1e-4)


def test_the_second_device_refuses_float64_and_tensors_of_the_cpu():
    x = Remote(torch.ones(3))
    with pytest.raises(TypeError, match="no float64"):
        x.double()
    with pytest.raises(RuntimeError, match="two devices"):
        x + torch.ones(3)
    with OtherDevice(), pytest.raises(TypeError, match="no float64"):
        torch.zeros(3, dtype=torch.float64, device=DEVICE)
    assert torch.equal(x.cpu(), torch.ones(3))
