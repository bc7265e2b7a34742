"""Golden runs: a few epochs of every model end where they always have, so that no change passes unseen.

When a change is meant to alter training, run this file as a script and paste what it prints.
"""

from __future__ import annotations

import pytest

from conftest import FORMED
from recollect import Learning, Recipe, dataset
from recollect.training import Epoch

RECIPE = Recipe(epochs=12, validate_every=12, learning_rate=0.01, batch_size=128)
GOLDEN = {
    ("distmult", "episodic"): (1.65054, 0.43320),
    ("distmult", "semantic"): (1.39894, 0.63309),
    ("hole", "episodic"): (1.40220, 0.42769),
    ("hole", "semantic"): (1.06691, 0.71701),
    ("complex", "episodic"): (1.70793, 0.73586),
    ("complex", "semantic"): (1.23372, 0.87371),
    ("rescal", "semantic"): (1.13273, 0.79549),
    ("tucker", "episodic"): (0.72866, 0.70765),
    ("tucker", "semantic"): (0.75652, 0.71765),
    ("tree", "episodic"): (0.85628, 0.74873),
    ("cont", "episodic"): (1.28846, 0.48876),
    ("distmult", "both"): (1.02005, 0.72178),
    ("hole", "both"): (0.74266, 0.70632),
    ("complex", "both"): (0.92972, 0.93553),
    ("tucker", "both"): (0.54505, 0.84153),
    ("tree", "semantic"): (0.88937, 0.70756),
    ("tree", "both"): (0.47844, 0.90227),
    ("cont", "semantic"): (0.75652, 0.71765),
    ("cont", "both"): (0.60700, 0.74650),
}  # fmt: skip


def outcome(name: str, form: str) -> tuple[float, float]:
    """Training loss and validation MRR at the end."""
    learning = Learning(dataset("world", countries=6, years=2), model=name, rank=8, form=form, recipe=RECIPE, seed=1)
    last = [record for record in learning if isinstance(record, Epoch)][-1]
    return last.loss, last.mrr or 0.0


@pytest.mark.parametrize(("name", "form"), FORMED)
def test_a_run_ends_where_it_always_has(name, form):
    assert outcome(name, form) == pytest.approx(GOLDEN[name, form], rel=5e-3)


if __name__ == "__main__":
    for name, form in FORMED:
        loss, mrr = outcome(name, form)
        print(f'    ("{name}", "{form}"): ({loss:.5f}, {mrr:.5f}),')  # noqa: T201
