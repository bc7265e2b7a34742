"""Start the processes of a training: by torchrun, or one in each of several network namespaces and memory groups."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from recollect import UserError

NETWORK = "10.77.0"  # addresses of the namespaces
BRIDGE, PORT = "rcl-bridge", 29511
GROUPS = Path("/sys/fs/cgroup/memory")  # memory controller of cgroup v1


def launch(
    count: int, task: Mapping[str, Any], *, isolated: bool = False, limit: int | None = None, restarts: int = 0
) -> list[dict[str, Any]]:
    """Return what each of `count` processes reports of a task.

    With `isolated`, each is in a network namespace of its own. `limit` bounds the memory of each in bytes, by cgroups.
    """
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        words = [json.dumps(dict(task)), folder]
        environment = os.environ | {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
        if not isolated and limit is None:
            options = ["--nproc-per-node", str(count), "--master-port", str(_free_port()), "--monitor-interval", "0.1"]
            options += ["--max-restarts", str(restarts)]
            _check(subprocess.run(
                [sys.executable, "-m", "torch.distributed.run", *options, "-m", "benchmarks.ranks.worker", *words],
                capture_output=True, text=True, env=environment, check=False,
            ))  # fmt: skip
        else:
            prefixes = stack.enter_context(namespaces(count)) if isolated else [[] for _ in range(count)]
            groups = [stack.enter_context(memory_group(f"rcl-{rank}", limit)) for rank in range(count)]
            _run_all(prefixes, groups, words, environment, isolated)
        return [json.loads((Path(folder) / f"{rank}.json").read_text()) for rank in range(count)]


def _run_all(
    prefixes: Sequence[list[str]],
    groups: Sequence[str],
    words: list[str],
    environment: Mapping[str, str],
    isolated: bool,
) -> None:
    """Start one process per prefix, with the variables that torchrun would set, and wait for all."""
    started = []
    for rank, (prefix, group) in enumerate(zip(prefixes, groups, strict=True)):
        own = {**environment, "RANK": str(rank), "WORLD_SIZE": str(len(prefixes)), "MASTER_PORT": str(PORT)}
        own |= {"MASTER_ADDR": f"{NETWORK}.1" if isolated else "127.0.0.1", "LOCAL_WORLD_SIZE": str(len(prefixes))}
        if isolated:
            own["GLOO_SOCKET_IFNAME"] = "eth0"
        worker = [sys.executable, "-m", "benchmarks.ranks.worker", *words]
        # into the memory group first: a network namespace has a /sys without control groups
        command = ["sh", "-c", f'{group} exec "$@"', "sh", *prefix, *worker]
        started.append(subprocess.Popen(command, env=own, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
    for process in started:
        out, error = process.communicate()
        _check(subprocess.CompletedProcess(process.args, process.returncode, out, error))


def _check(done: subprocess.CompletedProcess[str]) -> None:
    if done.returncode != 0:
        raise UserError(f"a process stopped with code {done.returncode}:\n{done.stderr[-2000:]}")


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@contextmanager
def namespaces(count: int) -> Iterator[list[list[str]]]:
    """Create network namespaces joined by a bridge; yield the words that run a command in each. Needs root."""
    names = [f"rcl-{rank}" for rank in range(count)]
    _remove_network(names)  # of a measurement that was killed
    try:
        _ip("link", "add", BRIDGE, "type", "bridge")
        _ip("link", "set", BRIDGE, "up")
        for rank, name in enumerate(names):
            _ip("netns", "add", name)
            _ip("link", "add", f"rcl-veth{rank}", "type", "veth", "peer", "name", "eth0", "netns", name)
            _ip("link", "set", f"rcl-veth{rank}", "master", BRIDGE, "up")
            inside = ("netns", "exec", name, "ip")
            _ip(*inside, "addr", "add", f"{NETWORK}.{rank + 1}/24", "dev", "eth0")
            _ip(*inside, "link", "set", "eth0", "up")
            _ip(*inside, "link", "set", "lo", "up")
        yield [["ip", "netns", "exec", name] for name in names]
    finally:
        _remove_network(names)


def _remove_network(names: Sequence[str]) -> None:
    """Remove the namespaces and the bridge, where they are there."""
    for words in [*(["netns", "del", name] for name in names), ["link", "del", BRIDGE]]:
        subprocess.run(["ip", *words], capture_output=True, check=False)


def _ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise UserError(f"ip {' '.join(words)}: {done.stderr.strip()}; network namespaces need root and iproute2")


@contextmanager
def memory_group(name: str, limit: int | None) -> Iterator[str]:
    """Create a memory group with a limit in bytes; yield the shell words that put a process into it."""
    if limit is None:
        yield ""
        return
    group = GROUPS / name
    try:
        group.mkdir(exist_ok=True)
        (group / "memory.limit_in_bytes").write_text(str(limit))
    except OSError as error:
        raise UserError(
            f"{group}: {error.strerror}; limits need root and the memory controller of cgroup v1"
        ) from error
    try:
        yield f"echo $$ > {group}/cgroup.procs &&"
    finally:
        group.rmdir()
