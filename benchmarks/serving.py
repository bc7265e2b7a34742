"""Load on a served memory: a server process and a generator on the same machine, questions one after another.

Every connection sends its next question when the last one is answered. Latency is measured by the client, from the
first byte sent to the last byte received.
"""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Barrier, Thread
from typing import Any
from urllib.parse import quote, urlencode

import numpy as np
import psutil
import torch

from recollect import EpisodicGraph, Memory, UserError, dataset

HOST = "127.0.0.1"
START_SECONDS = 120  # until the server is ready


@dataclass(frozen=True)
class Load:
    """Answered requests of one kind: their number per second and their latencies."""

    kind: str
    requests: int
    seconds: float
    milliseconds: np.ndarray  # (n,)
    errors: int

    def row(self) -> dict[str, Any]:
        """Return what is printed."""
        p50, p99 = np.percentile(self.milliseconds, [50, 99])
        return {
            "question": self.kind,
            "requests": self.requests,
            "errors": self.errors,
            "per_second": round(self.requests / self.seconds, 1),
            "p50_ms": round(float(p50), 2),
            "p99_ms": round(float(p99), 2),
        }


def free_port() -> int:
    """Return a port that nothing listens at."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


@contextmanager
def served(memory: Path, *options: str) -> Iterator[tuple[int, psutil.Process]]:
    """Serve a memory in a process of its own; yield its port and process, and end it by SIGTERM."""
    port = free_port()
    command = [sys.executable, "-m", "recollect", "serve", str(memory), "--port", str(port), *options]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        wait_until_ready(port, process)
        yield port, psutil.Process(process.pid)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=60)


def wait_until_ready(port: int, process: subprocess.Popen[bytes]) -> None:
    """Return when /readyz answers; raise UserError if the process ends before."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise UserError(f"the server ended with code {process.returncode}; try `recollect serve` by hand")
        try:
            with Connection(port) as connection:
                if connection.get("/readyz") == 200:
                    return
        except OSError:
            time.sleep(0.05)
    raise UserError(f"the server is not ready after {START_SECONDS} seconds")


class Connection:
    """One connection that is kept open: as little work per request as possible, since the server has the same cores."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._socket = socket.create_connection((HOST, port), timeout=30)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    @property
    def local_port(self) -> int:
        """The port of this side."""
        return int(self._socket.getsockname()[1])

    def get(self, target: str) -> int:
        """Send a GET request, read all of the answer and return its status."""
        return self.send("GET", target)[0]

    def send(self, method: str, target: str, body: bytes = b"") -> tuple[int, bytes]:
        """Send a request with a JSON body, or without one; return the status and the body of the answer."""
        head = f"{method} {target} HTTP/1.1\r\nHost: {HOST}:{self._port}\r\n"
        if body:
            head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        self._socket.sendall(f"{head}\r\n".encode() + body)
        received = b""
        while (end := received.find(b"\r\n\r\n")) < 0:
            received += self._read()
        answer_head = received[:end].lower()
        length = int(answer_head.partition(b"content-length:")[2].split(b"\r\n")[0] or 0)
        while len(received) < end + 4 + length:
            received += self._read()
        return int(answer_head.split(b" ", 2)[1]), received[end + 4 :]

    def _read(self) -> bytes:
        part = self._socket.recv(1 << 16)
        if not part:
            raise ConnectionError("the server closed the connection")
        return part


def questions(graph: EpisodicGraph, kind: str, count: int, seed: int = 0) -> list[str]:
    """Return request targets about random facts of a graph: `recall` of objects, subjects, predicates and times."""
    generator = torch.Generator().manual_seed(seed)
    facts = graph.facts
    table = graph.table(facts[torch.randint(len(facts), (count,), generator=generator)])
    targets = []
    for number, fact in enumerate(table.iter_rows(named=True)):
        if kind == "recall":
            fact.pop(("object", "subject", "predicate", "time")[number % 4])
        else:
            fact = {"subject": fact["subject"], "as_of": fact["time"]}
        targets.append(f"/v1/{kind}?{urlencode(fact, quote_via=quote)}")
    return targets


def ask_for(port: int, kind: str, targets: list[str], *, connections: int, seconds: float) -> Load:
    """Ask questions over some connections at a time for some seconds."""
    begin, latencies, errors = Barrier(connections + 1), [list[float]() for _ in range(connections)], [0] * connections

    def ask(number: int) -> None:
        with Connection(port) as connection:
            for target in targets[:20]:
                connection.get(target)
            begin.wait()
            deadline, place = time.perf_counter() + seconds, number
            while time.perf_counter() < deadline:
                sent = time.perf_counter()
                errors[number] += connection.get(targets[place % len(targets)]) != 200
                latencies[number].append(1e3 * (time.perf_counter() - sent))
                place += connections

    threads = [Thread(target=ask, args=(number,)) for number in range(connections)]
    for thread in threads:
        thread.start()
    begin.wait()
    started = time.perf_counter()
    for thread in threads:
        thread.join()
    elapsed, every = time.perf_counter() - started, np.concatenate([np.array(each) for each in latencies])
    return Load(kind, len(every), elapsed, every, sum(errors))


@dataclass(frozen=True)
class ServingLoad:
    """How long, over how many connections, and how many processes are asked."""

    seconds: float
    connections: int
    workers: int


def measure_serving(memory: Path | None, dataset_name: str, load: ServingLoad) -> list[dict[str, Any]]:
    """Return requests per second and latencies of recall and know, and the resident memory of the server.

    Without a memory, a dataset is learned by history into a temporary folder.
    """
    with TemporaryDirectory() as folder:
        if memory is None:
            memory = Path(folder) / "served.memory"
            Memory.learn(dataset(dataset_name), model="history").save(memory)
        graph = Memory.load(memory).graph
        with served(memory, "--workers", str(load.workers)) as (port, process):
            return [_measure(port, process, graph, kind, load) for kind in ("recall", "know")]


def _measure(port: int, process: psutil.Process, graph: EpisodicGraph, kind: str, load: ServingLoad) -> dict[str, Any]:
    """Return the row of one kind of question."""
    targets = questions(graph, kind, 2_000)
    row = ask_for(port, kind, targets, connections=load.connections, seconds=load.seconds).row()
    resident = sum(each.memory_info().rss for each in (process, *process.children(recursive=True)))
    return row | {"connections": load.connections, "workers": load.workers, "resident_mb": resident >> 20}
