"""The real server: it starts, answers, refuses what is too much or too slow, and ends when it is asked to."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import psutil
import pytest

from recollect import UserError
from recollect.serve.http.running import Settings, check_settings, listen, read_token

SECONDS = 120  # until a server must be ready


@contextmanager
def server(*words: object) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Start `recollect serve`; yield its address when it is ready."""
    command = [sys.executable, "-m", "recollect", "serve", *map(str, words), "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            line = process.stderr.readline()
            assert " is served at http://" in line, line + process.stderr.read()
            address = line.split(" is served at ")[1].split()[0]
            wait_until_ready(address)
            yield address, process
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
            process.wait(timeout=60)


def wait_until_ready(address: str) -> None:
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        with suppress(httpx.TransportError):
            if httpx.get(f"{address}/readyz", timeout=SECONDS).status_code == 200:
                return
        time.sleep(0.05)
    pytest.fail("the server is not ready")


@pytest.fixture(scope="module")
def address(world_folder) -> Iterator[str]:
    with server(world_folder) as (found, _):
        yield found


def test_a_server_answers_and_ends_by_sigterm(world_folder):
    with server(world_folder) as (address, process):
        assert httpx.get(f"{address}/v1/memory").json()["entities"] == 23
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) in (0, -signal.SIGTERM)
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{address}/healthz")


def test_others_are_answered_while_a_body_is_slow(address):
    port = int(address.rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port), timeout=60) as slow:
        slow.sendall(f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Length: 100\r\n\r\n{{".encode())
        assert httpx.get(f"{address}/healthz").status_code == 200


@pytest.mark.long
def test_a_slow_body_is_refused_after_half_a_minute(address):
    port = int(address.rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port), timeout=60) as slow:
        slow.sendall(f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Length: 100\r\n\r\n{{".encode())
        assert b" 408 " in slow.recv(4096)


def test_a_hundred_megabytes_are_refused_at_once(address):
    port = int(address.rpartition(":")[2])
    for header in ("Content-Length: 104857600", "Transfer-Encoding: chunked"):
        with socket.create_connection(("127.0.0.1", port), timeout=60) as huge:
            head = f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n{header}\r\n\r\n"
            huge.sendall(head.encode())
            with suppress(OSError):  # the server closes while we send
                for _ in range(100 if "chunked" in header else 0):
                    huge.sendall(b"100000\r\n" + b"x" * 2**20 + b"\r\n")
            assert b" 413 " in huge.recv(4096)


@pytest.mark.long
def test_a_thousand_connections_are_answered_or_refused_and_memory_is_bounded(world_folder):
    with server(world_folder) as (address, process):
        port = int(address.rpartition(":")[2])
        before = psutil.Process(process.pid).memory_info().rss
        idle = [socket.create_connection(("127.0.0.1", port), timeout=60) for _ in range(1000)]
        with ThreadPoolExecutor(50) as pool:
            codes = list(pool.map(lambda _: httpx.get(f"{address}/v1/labels", timeout=60).status_code, range(500)))
        assert set(codes) <= {200, 503}
        assert codes.count(200) > 100
        for each in idle:
            each.close()
        assert httpx.get(f"{address}/v1/memory").status_code == 200
        assert psutil.Process(process.pid).memory_info().rss < before + 200 * 2**20


@pytest.mark.long
def test_a_worker_that_is_killed_is_replaced(world_folder):
    with server(world_folder, "--workers", 2) as (address, process):
        workers = [
            child for child in psutil.Process(process.pid).children() if "spawn_main" in " ".join(child.cmdline())
        ]
        assert len(workers) == 2
        workers[0].kill()
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline:
            found = psutil.Process(process.pid).children()
            alive = [child for child in found if child.is_running() and child.pid != workers[0].pid]
            if len([child for child in alive if "spawn_main" in " ".join(child.cmdline())]) == 2:
                break
            time.sleep(0.1)
        else:
            pytest.fail("no new worker came")
        assert {httpx.get(f"{address}/v1/memory").status_code for _ in range(20)} == {200}


def test_a_taken_port_is_one_sentence(run, world_folder):
    with listen("127.0.0.1", 0) as taken:
        taken.listen()
        code, _, error = run("serve", world_folder, "--port", taken.getsockname()[1])
    assert code == 2
    assert "choose another --port or --host" in error


@pytest.mark.parametrize("workers", [1, 2])
def test_a_memory_that_is_none_is_one_sentence(run, tmp_path, workers):
    code, _, error = run("serve", tmp_path / "none", "--port", 0, "--workers", workers)
    assert code == 2
    assert "no such memory" in error


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.2", "example.org"])
def test_hosts_that_others_reach_need_a_token(run, world_folder, host, tmp_path):
    code, _, error = run("serve", world_folder, "--host", host)
    assert code == 2
    assert "a token is needed" in error
    token = tmp_path / "token"
    token.write_text("0123456789abcdef\n")
    settings = Settings(memory="m", host=host, token_file=str(token))
    assert check_settings(settings).token == "0123456789abcdef"


@pytest.mark.parametrize(
    "content", [b"", b"short", b"with a space in its middle", "ümlaut-ümlaut-ümlaut".encode(), b"\xff" * 20]
)
def test_a_token_that_is_none_is_one_sentence(tmp_path: Path, content: bytes):
    file = tmp_path / "token"
    file.write_bytes(content)
    with pytest.raises(UserError, match="token"):
        read_token(file)


def test_a_missing_token_file_is_one_sentence(tmp_path: Path):
    with pytest.raises(UserError, match="the token cannot be read"):
        read_token(tmp_path / "none")


def test_missing_packages_name_the_extra(run, world_folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "mcp", None)
    code, _, error = run("serve", world_folder)
    assert code == 2
    assert "pip install 'recollect[serve]'" in error
