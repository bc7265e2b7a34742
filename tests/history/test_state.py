"""A history as tensors: what is saved is what was fitted, and unsound tensors are refused."""

from __future__ import annotations

import pytest
import safetensors.torch
import torch

from recollect import Facts
from recollect.history.history import History
from tests.conftest import random_facts

SIZES = {"entity": 4, "predicate": 3, "time": 6}
FACTS = random_facts(40, SIZES)


@pytest.fixture(scope="module")
def history() -> History:
    return History.fit(FACTS, SIZES)


def test_a_history_of_saved_tensors_gives_the_same_rates(history, tmp_path):
    safetensors.torch.save_file(history.tensors(), tmp_path / "history.safetensors")
    loaded = History.from_tensors(safetensors.torch.load_file(tmp_path / "history.safetensors"), FACTS, SIZES)
    for slot in "spot":
        assert (loaded.rates(FACTS, slot) == history.rates(FACTS, slot)).all()


def test_tensors_are_contiguous_copies_in_float32_and_int64(history):
    tensors = history.tensors()
    assert set(tensors) == {
        "history.classes",
        *(f"history.{s}.{part}" for s in "opt" for part in ("kernel", "weights")),
    }
    assert all(tensor.is_contiguous() for tensor in tensors.values())
    assert {tensor.dtype for name, tensor in tensors.items() if name != "history.classes"} == {torch.float32}
    tensors["history.o.kernel"].zero_()
    assert history.kernels["o"].any()


def test_a_history_fitted_for_one_slot_is_restored_with_one_kernel():
    partial = History.fit(FACTS, SIZES, asked="o", past=True)
    assert set(History.from_tensors(partial.tensors(), FACTS, SIZES).kernels) == {"o"}


def test_tensors_of_other_names_are_left_alone(history):
    tensors = history.tensors() | {"entity.weight": torch.full((2,), torch.nan)}
    assert (History.from_tensors(tensors, FACTS, SIZES).kernels["p"] == history.kernels["p"]).all()


def test_without_predicates_and_facts_there_is_nothing_to_read():
    sizes = {"entity": 0, "predicate": 0, "time": 0}
    empty = History(Facts.of([]), sizes, torch.empty(0, dtype=torch.int64).numpy(), {}, {})
    assert len(History.from_tensors(empty.tensors(), Facts.of([]), sizes).facts) == 0


UNSOUND = {
    "classes missing": (lambda t: t.pop("history.classes"), "history.classes is missing"),
    "weights missing": (lambda t: t.pop("history.t.weights"), "history.t.weights is missing"),
    "weights without a kernel": (lambda t: t.pop("history.t.kernel"), "history.t.weights belongs to no kernel"),
    "unknown slot": (lambda t: t.update({"history.s.kernel": torch.ones(1)}), "history.s.kernel belongs to no kernel"),
    "too few classes": (lambda t: t.update({"history.classes": torch.arange(4)}), "3 predicates need"),
    "classes as floats": (lambda t: t.update({"history.classes": torch.arange(6.0)}), "torch.int64"),
    "negative class": (lambda t: t["history.classes"].sub_(1), "0, 1, 2"),
    "class out of range": (lambda t: t["history.classes"][2:3].fill_(9), "0, 1, 2"),
    "inverse of another": (lambda t: t["history.classes"][5:].fill_(3), "inverse"),
    "fewer classes than the kernel": (
        lambda t: t.update({"history.classes": torch.tensor([0, 1, 1, 2, 3, 3])}),
        "history.o.kernel is",
    ),
    "kernel of other bins": (
        lambda t: t.update({"history.p.kernel": t["history.p.kernel"][..., :-1]}),
        "history.p.kernel is",
    ),
    "weights of another slot": (
        lambda t: t.update({"history.p.weights": t["history.t.weights"]}),
        "history.p.weights is",
    ),
    "double kernel": (lambda t: t.update({"history.p.kernel": t["history.p.kernel"].double()}), "torch.float64"),
    "NaN": (lambda t: t["history.o.kernel"][0, 0, :1].fill_(torch.nan), "not finite"),
    "infinite": (lambda t: t["history.o.weights"][0, :1].fill_(torch.inf), "not finite"),
    "negative": (lambda t: t["history.t.kernel"][0, 0, :1].fill_(-1e-3), "negative"),
}


@pytest.mark.parametrize("damage", UNSOUND)
def test_unsound_tensors_are_refused(history, damage):
    change, message = UNSOUND[damage]
    tensors = history.tensors()
    change(tensors)
    with pytest.raises(ValueError, match=message):
        History.from_tensors(tensors, FACTS, SIZES)


@pytest.mark.parametrize("fact", [(4, 0, 0, 0), (0, 3, 0, 0), (0, 0, -1, 0), (0, 0, 0, 6)])
def test_facts_outside_the_sizes_are_refused(history, fact):
    with pytest.raises(ValueError, match="a stored fact has"):
        History.from_tensors(history.tensors(), Facts.of([fact]), SIZES)
