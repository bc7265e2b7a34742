"""Callbacks: what trackers receive, and the error where they are not installed."""

from __future__ import annotations

import sys

import pytest

from recollect import UserError
from recollect.training.callbacks import MLflowCallback, TensorBoardCallback
from recollect.training.trainer import Epoch, Step

RECORDS = [
    Step(epoch=0, seen=5, loss=2.0),
    Step(epoch=0, seen=10, loss=1.5),
    Epoch(epoch=1, loss=1.5, mrr=None, best=False),
    Step(epoch=1, seen=5, loss=1.0),
    Epoch(epoch=2, loss=0.9, mrr=0.25, best=True),
]


class FakeWriter:
    def __init__(self) -> None:
        self.scalars: list[tuple[str, float, int]] = []
        self.closed = False

    def add_scalar(self, name: str, value: float, step: int) -> None:
        self.scalars.append((name, value, step))

    def flush(self) -> None:
        pass

    def close(self) -> None:
        self.closed = True


class FakeMLflow:
    def __init__(self) -> None:
        self.logged: list[tuple[dict[str, float], int]] = []

    def log_metrics(self, metrics: dict[str, float], step: int) -> None:
        self.logged.append((metrics, step))


def test_tensorboard_receives_steps_and_epochs(tmp_path):
    writer = FakeWriter()
    callback = TensorBoardCallback(tmp_path, writer)
    for record in RECORDS:
        callback.on_record(record)
    callback.close()
    assert writer.scalars == [
        ("loss/step", 2.0, 1),
        ("loss/step", 1.5, 2),
        ("loss/epoch", 1.5, 1),
        ("loss/step", 1.0, 3),
        ("loss/epoch", 0.9, 2),
        ("valid_mrr/epoch", 0.25, 2),
    ]
    assert writer.closed


def test_mlflow_receives_epochs():
    client = FakeMLflow()
    callback = MLflowCallback(client)
    for record in RECORDS:
        callback.on_record(record)
    assert client.logged == [({"loss": 1.5}, 1), ({"loss": 0.9, "valid_mrr": 0.25}, 2)]


def test_the_module_mlflow_is_used_by_default(monkeypatch):
    client = FakeMLflow()
    monkeypatch.setitem(sys.modules, "mlflow", client)
    MLflowCallback().on_record(RECORDS[-1])
    assert len(client.logged) == 1


def test_a_tracker_that_is_not_installed_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(UserError, match=r"pip install 'recollect\[mlflow\]'"):
        MLflowCallback()
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(UserError, match=r"pip install 'recollect\[tensorboard\]'"):
        TensorBoardCallback(tmp_path)
