"""Several processes that serve one memory: how soon each sees a write of another, and the memory that they share."""

from __future__ import annotations

import json
import time
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import quote, urlencode

import numpy as np
import psutil

from benchmarks.serving import Connection, questions, served
from recollect import Memory, UserError, dataset

CONNECTIONS = 64  # opened until every process has accepted one
WARM_UP = 50  # questions to each process before its memory is measured


def save_memory(memory: Path | None, dataset_name: str, folder: str) -> Path:
    """Save a memory, or what history learns from a dataset, in a folder of this measurement's own."""
    copy = Path(folder) / "served.memory"
    learned = Memory.learn(dataset(dataset_name), model="history") if memory is None else Memory.load(memory)
    learned.save(copy)
    return copy


def connections_by_worker(stack: ExitStack, port: int, process: psutil.Process, workers: int) -> dict[int, Connection]:
    """Return a connection to each process that serves a port, by process id."""
    found: dict[int, Connection] = {}
    for _ in range(CONNECTIONS):
        connection = stack.enter_context(Connection(port))
        connection.get("/healthz")
        found.setdefault(_owner(process, connection.local_port), connection)
        if len(found) == workers:
            return found
    raise UserError(f"{len(found)} of {workers} processes accepted {CONNECTIONS} connections; try again")


def _owner(process: psutil.Process, client_port: int) -> int:
    """Return the id of the process that accepted the connection from a port of this machine."""
    for each in (process, *process.children(recursive=True)):
        for connection in each.net_connections("tcp4"):
            if connection.raddr and connection.raddr.port == client_port:
                return int(each.pid)
    raise UserError(f"no process of the server has the connection from port {client_port}")


def measure_agreement(memory: Path | None, dataset_name: str, writes: int) -> dict[str, Any]:
    """Return the milliseconds from the acknowledgement of a write by one process until another answers with it."""
    with TemporaryDirectory() as folder, ExitStack() as stack:
        copy = save_memory(memory, dataset_name, folder)
        graph = Memory.load(copy).graph
        predicate, object_, when = graph.predicates.labels[0], graph.entities.labels[0], graph.times.labels[-1]
        port, process = stack.enter_context(served(copy, "--workers", "2"))
        writer, reader = connections_by_worker(stack, port, process, 2).values()
        waits, polls = [], []
        for number in range(writes):
            fact = {"subject": f"Visitor {number}", "predicate": predicate, "object": object_, "time": when}
            status, _ = writer.send("POST", "/v1/facts", json.dumps({"facts": [fact]}).encode())
            acknowledged = time.perf_counter()
            if status != 200:
                raise UserError(f"a write was answered with {status}; try `recollect serve` by hand")
            target = f"/v1/why?{urlencode(fact, quote_via=quote)}"
            asked = 1
            while b'"status":"stored"' not in reader.send("GET", target)[1]:
                asked += 1
            waits.append(1e3 * (time.perf_counter() - acknowledged))
            polls.append(asked)
            writer, reader = reader, writer
    p50, p99 = np.percentile(waits, [50, 99])
    return {
        "writes": writes,
        "p50_ms": round(float(p50), 1),
        "p99_ms": round(float(p99), 1),
        "max_ms": round(max(waits), 1),
        "first_answer_had_it": f"{np.mean(np.array(polls) == 1):.0%}",
    }


def measure_sharing(memory: Path | None, dataset_name: str, workers: int) -> dict[str, Any]:
    """Return the resident, proportional and unshared memory of all processes that serve a memory, after questions."""
    with TemporaryDirectory() as folder, ExitStack() as stack:
        copy = save_memory(memory, dataset_name, folder)
        graph = Memory.load(copy).graph
        targets = questions(graph, "recall", WARM_UP) + questions(graph, "know", WARM_UP)
        port, process = stack.enter_context(served(copy, "--workers", str(workers)))
        for connection in connections_by_worker(stack, port, process, workers).values():
            for target in targets:
                connection.get(target)
        every = [each.memory_full_info() for each in (process, *process.children(recursive=True))]
    return {
        "workers": workers,
        "processes": len(every),
        "resident_mb": sum(each.rss for each in every) >> 20,
        "proportional_mb": sum(each.pss for each in every) >> 20,
        "unshared_mb": sum(each.uss for each in every) >> 20,
    }
