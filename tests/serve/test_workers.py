"""Several processes that serve one memory: what one acknowledged, all answer with, and no kill loses it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread

import httpx
import psutil
import pytest

from recollect import Memory
from serve.test_process import SECONDS, server

pytestmark = pytest.mark.long
FACT = {"predicate": "Visits", "object": "Tasmark", "time": "2001-06"}


@pytest.fixture
def folder(world_folder: Path, tmp_path: Path) -> Path:
    """A memory of this test's own."""
    return Path(shutil.copytree(world_folder, tmp_path / "world.memory"))


def workers_of(process) -> list[psutil.Process]:
    """Return the processes that answer: neither the one that supervises them, nor one that was killed just now."""
    found = []
    for child in psutil.Process(process.pid).children():
        with suppress(psutil.NoSuchProcess):  # also what is raised for a zombie
            if "spawn_main" in " ".join(child.cmdline()):
                found.append(child)
    return found


def write(address: str, names: Iterator[str], acknowledged: list[str], stop: Event) -> None:
    """Remember one fact after another, each over a connection of its own; keep those that are acknowledged."""
    for name in names:
        if stop.is_set():
            return
        with suppress(httpx.TransportError):
            body = {"facts": [{"subject": name, **FACT}]}
            if httpx.post(f"{address}/v1/facts", json=body, timeout=SECONDS).status_code == 200:
                acknowledged.append(name)


def stored_names(folder: Path) -> set[str]:
    """Return who is stored, by a process that was not there before."""
    found = Memory.load(folder).recall(**FACT, include="stored", top=100_000)
    return set(found["subject"])


def test_a_kill_of_any_worker_loses_no_fact_that_was_acknowledged(folder):
    acknowledged: list[str] = []
    stop = Event()
    with server(folder, "--workers", 2) as (address, process):
        writers = [
            Thread(target=write, args=(address, (f"Visitor {n} {i}" for i in range(100_000)), acknowledged, stop))
            for n in range(2)
        ]
        for thread in writers:
            thread.start()
        for _ in range(3):
            wait_for_more(acknowledged, writers)
            workers_of(process)[0].kill()
        wait_for_more(acknowledged, writers)
        stop.set()
        for thread in writers:
            thread.join()
        body = httpx.get(
            f"{address}/v1/recall", params={**FACT, "include": "stored", "top": 1000}, timeout=SECONDS
        ).json()
        assert set(acknowledged) <= {each["subject"] for each in body["answers"]}
    assert set(acknowledged) <= stored_names(folder)


def wait_for_more(acknowledged: list[str], writers: list[Thread], count: int = 10) -> None:
    """Wait until some more facts are acknowledged."""
    wanted, waited = len(acknowledged) + count, Event()
    for _ in range(100 * SECONDS):
        if len(acknowledged) >= wanted:
            return
        assert all(thread.is_alive() for thread in writers)
        waited.wait(0.01)
    pytest.fail("no writes are acknowledged any more")
