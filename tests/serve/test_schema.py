"""Random requests that the OpenAPI document allows, and some that it does not: no fault, no answer against it.

The ordinary suite sends a few. With RECOLLECT_TORTURE=1 (`make torture`) there are 1,000 for every operation and mode,
28,000 in all.
"""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import httpx
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st
from schemathesis import Case, GenerationMode
from starlette.types import ASGIApp

from recollect import Memory
from recollect.serve.http.guard import Access
from recollect.serve.http.rest import create_app
from recollect.serve.operations import OPERATIONS, openapi
from recollect.serve.service import Service
from torture.scale import scaled

ADDRESS = "http://127.0.0.1"
MAX_URL = 65_000  # characters that the client sends
SCHEMA = schemathesis.openapi.from_dict(openapi())
EXAMPLES = scaled(5, 1_000)  # of every operation and mode
MODES = [
    (each.public_path, each.method, mode)
    for each in OPERATIONS
    for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)
    if each.question is not None or mode is GenerationMode.POSITIVE  # without parameters, nothing can be wrong
]
CHECKS = schemathesis.checks.CHECKS.get_all()
# a label that the memory does not have is a mistake that no schema knows of
IGNORED = {"positive_data_acceptance", "missing_required_header", "unsupported_method"}


@pytest.fixture(scope="module")
def app(world_folder: Path, tmp_path_factory) -> ASGIApp:
    """A memory that may be changed, behind the service."""
    folder = Path(shutil.copytree(world_folder, tmp_path_factory.mktemp("fuzzed") / "world.memory"))
    return create_app(Service(Memory.load(folder)), Access())


def send(loop: asyncio.AbstractEventLoop, client: httpx.AsyncClient, case: Case) -> httpx.Response:
    """Return the answer to a case, without a network and without a thread of its own."""
    prepared = requests.Request(**case.as_transport_kwargs(base_url=ADDRESS)).prepare()
    assume(len(prepared.url or "") <= MAX_URL)
    headers = {name: value for name, value in prepared.headers.items() if name.lower() != "content-length"}
    asked = client.request(prepared.method or "GET", prepared.url or "", headers=headers, content=prepared.body)
    return loop.run_until_complete(asked)


def with_labels(case: Case, labels: dict[str, str]) -> Case:
    """Return a case with labels of the memory in some of its parts."""
    case.query = {name: labels.get(name, value) for name, value in (case.query or {}).items()}
    return case


@pytest.mark.parametrize(("path", "method", "mode"), MODES)
def test_no_request_is_answered_against_the_document(app, world_memory, path, method, mode):
    operation = SCHEMA[path][method]
    graph = world_memory.graph
    entity, predicate = st.sampled_from(graph.entities.labels), st.sampled_from(graph.predicates.labels)
    time = st.sampled_from([*graph.times.labels, "2000", "2000-03..2001-02"])
    parts = {"subject": entity, "predicate": predicate, "object": entity, "time": time, "as_of": time, "since": time}
    some = st.fixed_dictionaries({}, optional=parts) if mode is GenerationMode.POSITIVE else st.just({})

    @settings(
        max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck), phases=[Phase.generate],
    )  # fmt: skip
    @given(operation.as_strategy(mode), some)
    def ask(case: Case, labels: dict[str, str]) -> None:
        response = send(loop, client, with_labels(case, labels))
        case.validate_response(response, checks=[check for check in CHECKS if check.__name__ not in IGNORED])

    with asyncio.Runner() as runner:
        loop, client = runner.get_loop(), httpx.AsyncClient(transport=httpx.ASGITransport(app))
        ask()
        loop.run_until_complete(client.aclose())


def test_the_answers_are_compared_with_the_document():
    names = {check.__name__ for check in CHECKS}
    assert {"not_a_server_error", "response_schema_conformance", "status_code_conformance"} <= names - IGNORED
    assert {"content_type_conformance", "negative_data_rejection"} <= names - IGNORED
