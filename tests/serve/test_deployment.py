"""The compose file and the systemd unit: they can be read, and what they start exists."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import typer.main
from starlette.datastructures import Headers

from recollect.cli.main import app
from recollect.serve.http.guard import Access
from recollect.serve.problems import ProblemError

DEPLOY = Path(__file__).parents[2] / "deploy"
TOKEN = "a-long-enough-token"


def check_command(words: list[str]) -> None:
    """Assert that words are a command of recollect with options that it has."""
    assert Path(words[0]).name == "recollect"
    command = typer.main.get_command(app).commands[words[1]]
    options = {name for parameter in command.params for name in parameter.opts}
    assert {word for word in words if word.startswith("--")} <= options


def test_the_compose_file_starts_replicas_of_a_command_that_exists():
    yaml = pytest.importorskip("yaml")
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    memory, balancer = compose["services"]["memory"], compose["services"]["balancer"]
    check_command(memory["command"])
    assert memory["deploy"]["replicas"] == 2
    assert memory["volumes"] == ["./data:/data"]  # the folder and its journal, next to each other
    assert memory["secrets"] == list(compose["secrets"])
    assert [config["source"] for config in balancer["configs"]] == list(compose["configs"])
    assert "server memory:8000;" in compose["configs"]["nginx"]["content"]
    compile(memory["healthcheck"]["test"][3], "healthcheck", "exec")


def test_the_balancer_of_the_compose_file_leaves_the_host_as_it_is():
    yaml = pytest.importorskip("yaml")
    nginx = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["configs"]["nginx"]["content"]
    assert "proxy_set_header Host $$http_host;" in nginx  # Compose reads $$ as $
    page = Headers({"host": "127.0.0.1:8080", "origin": "http://127.0.0.1:8080", "authorization": f"Bearer {TOKEN}"})
    Access(token=TOKEN).check("/v1/facts", page)
    renamed = Headers({**page, "host": "memory"})  # nginx's default is the name of the upstream
    with pytest.raises(ProblemError, match="may not ask this service"):
        Access(token=TOKEN).check("/v1/facts", renamed)


def test_the_unit_is_valid_and_starts_a_command_that_exists(tmp_path):
    text = (DEPLOY / "recollect@.service").read_text()
    start = next(line for line in text.splitlines() if line.startswith("ExecStart="))
    words = start.removeprefix("ExecStart=").split()
    check_command(words)
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    unit = tmp_path / "recollect@.service"
    unit.write_text(text.replace(words[0], sys.executable))
    done = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True)
    complaints = [line for line in done.stderr.splitlines() if unit.name in line]
    assert (done.returncode, complaints) == (0, []), done.stderr
