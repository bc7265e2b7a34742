"""Measurements of training by several processes, at tiny sizes."""

from __future__ import annotations

import json
from functools import partial

import pytest

from benchmarks import cli
from command import run_main

pytestmark = pytest.mark.long


@pytest.fixture
def measured(monkeypatch, capsys):
    def call(*words: str) -> list[dict]:
        code, out, err = partial(run_main, cli.main, monkeypatch, capsys)("ranks", *words, "--quick", "--json")
        assert code == 0, err
        return json.loads(out)

    return call


def test_losses_of_several_processes_are_those_of_one(measured):
    rows = measured("equality", "--model", "cont")
    assert [row["processes"] for row in rows] == [2, 4]
    for row in rows:
        assert row["largest difference of a loss"] < 1e-10
        assert row["difference of MRR"] < 1e-3


def test_a_killed_process_changes_nothing(measured):
    (row,) = measured("restart", "--model", "complex")
    assert row["same bits"]


def test_entity_bytes_are_those_of_the_bound(measured):
    (row,) = measured("wire")
    assert row["sent entity bytes"] == pytest.approx(row["bound of entity bytes"], rel=0.02)
