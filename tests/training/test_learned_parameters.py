"""Training may change some parameters only, such as the embeddings of times."""

from __future__ import annotations

import pytest
import torch

from conftest import SIZES, generator, random_facts, random_model
from recollect import Recipe
from recollect.training.trainer import Trainer


def times_alone(whole_tables: bool, learn: set[str] | None, optimizer: str = "adam") -> Trainer:
    sizes = SIZES | {"time": 4 if whole_tables else 400}
    recipe = Recipe(optimizer=optimizer, epochs=2, batch_size=40, learning_rate=0.05)
    model = random_model("complex" if whole_tables else "cont", "episodic", 3, "float32", sizes)
    return Trainer(model, random_facts(160, sizes), recipe, generator=generator(2), learn=learn)


@pytest.mark.parametrize("optimizer", ["adam", "adagrad"])
@pytest.mark.parametrize("whole_tables", [False, True])
def test_times_are_learned_alone_and_resume_bit_for_bit(whole_tables, optimizer):
    run, all_learned = (times_alone(whole_tables, learn, optimizer) for learn in ({"time"}, None))
    assert run.optimizer.lazy == (set() if whole_tables else {"time"})
    before = {name: value.clone() for name, value in run.model.state_dict().items()}
    next(iter(all_learned))
    records, states = [], []
    for record in run:
        if not records:  # the first step is that of a run that learns everything
            assert torch.equal(run.model.time, all_learned.model.time)
            assert not torch.equal(all_learned.model.entity, before["entity"])
        records.append(record)
        tensors, plain = run.state()
        states.append(({name: value.clone() for name, value in tensors.items()}, plain))
    assert records[-1].loss < records[len(records) // 2 - 1].loss
    for name, value in run.model.state_dict().items():
        assert torch.equal(value, before[name]) is (name != "time")
    for stop in (1, 4, 6):
        again = times_alone(whole_tables, {"time"}, optimizer)
        with torch.no_grad():
            again.model.entity.zero_()
        again.restore_(*states[stop - 1])
        assert list(again) == records[stop:]
        for name, value in run.model.state_dict().items():
            assert torch.equal(value, again.model.state_dict()[name])
