"""The benchmark of a shared host runs, and ends the processes that it starts."""

from __future__ import annotations

import pytest

from benchmarks import shared_host


def test_busy_processes_end_with_their_block(monkeypatch):
    started = []
    start = shared_host.subprocess.Popen
    monkeypatch.setattr(
        shared_host.subprocess,
        "Popen",
        lambda *words, **options: started.append(start(*words, **options)) or started[-1],
    )
    with shared_host.busy_processes(2):
        assert [process.poll() for process in started] == [None, None]
    assert all(process.poll() is not None for process in started)


@pytest.mark.long
def test_every_case_is_measured_quietly_and_next_to_busy_processes():
    records = shared_host.measure(1, quick=True)
    assert [(record["threads of a"], record["case"]) for record in records] == [
        ("command", "recall"),
        ("command", "know"),
        ("command", "projection"),
        ("command", "epoch of ConT"),
        ("library", "epoch of ConT"),
    ]
    for record in records:
        assert record["ratio"] == pytest.approx(record["busy_s"] / record["quiet_s"])
