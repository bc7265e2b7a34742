"""A small memory behind the service, in this process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from recollect import EpisodicGraph, Memory
from recollect.serve.http.guard import Access
from recollect.serve.http.rest import create_app
from recollect.serve.service import Service

ADDRESS = "http://127.0.0.1:8000"


@pytest.fixture(scope="session")
def world_folder(small_world: EpisodicGraph, tmp_path_factory) -> Path:
    """A saved memory of the small world, by history alone; tests must not change it."""
    folder = tmp_path_factory.mktemp("served") / "world.memory"
    Memory.learn(small_world, model="history").save(folder)
    return folder


@pytest.fixture(scope="session")
def world_memory(world_folder: Path) -> Memory:
    return Memory.load(world_folder)


@pytest.fixture(scope="session")
def service(world_memory: Memory) -> Service:
    return Service(world_memory)


@pytest.fixture(scope="session")
def client(service: Service) -> Iterator[TestClient]:
    with TestClient(create_app(service, Access()), base_url=ADDRESS) as opened:
        yield opened
