"""Many facts or questions in one request: as JSON, as lines, as an Arrow stream; all or nothing, and bounded."""

from __future__ import annotations

import datetime
import io
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient

from recollect import Memory
from recollect.serve.http.bodies import accepted, parse_body
from recollect.serve.http.guard import Access
from recollect.serve.http.rest import create_app
from recollect.serve.messages import MAX_FACTS, Remember
from recollect.serve.operations import ARROW, JSON, LINES
from recollect.serve.problems import ProblemError
from recollect.serve.service import Service

FACT = {"predicate": "Visits", "object": "Tasmark"}
FACTS = [{"subject": f"Visitor {i}", **FACT, "time": f"2001-{i + 1:02}"} for i in range(9)]
TYPES = [JSON, LINES, ARROW]


def arrow(rows: list[dict[str, Any]] | pa.Table, **options: Any) -> bytes:
    """Return rows as an Arrow stream."""
    if not isinstance(rows, pa.Table):
        names = dict.fromkeys(name for row in rows for name in row)
        rows = pa.table({name: [row.get(name) for row in rows] for name in names})
    stream = io.BytesIO()
    with pa.ipc.new_stream(stream, rows.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(rows)
    return stream.getvalue()


def encoded(rows: list[dict[str, Any]], kind: str, name: str) -> bytes:
    """Return rows as a body of some type."""
    match kind:
        case "application/json":
            return json.dumps({name: rows}).encode()
        case "application/x-ndjson":
            return "\n".join(json.dumps(row) for row in rows).encode()
    return arrow(rows)


@pytest.fixture
def changing(world_folder: Path, tmp_path: Path) -> Iterator[TestClient]:
    """The service of a memory that may be changed."""
    folder = Path(shutil.copytree(world_folder, tmp_path / "world.memory"))
    with TestClient(create_app(Service(Memory.load(folder)), Access()), base_url="http://127.0.0.1") as client:
        yield client


def post(client: TestClient, path: str, body: bytes, kind: str, accept: str = "*/*", **params: Any):
    return client.post(path, content=body, headers={"Content-Type": kind, "Accept": accept}, params=params)


@pytest.mark.parametrize("kind", TYPES)
def test_facts_of_any_type_are_one_event(changing, kind):
    answer = post(changing, "/v1/facts", encoded(FACTS, kind, "facts"), kind)
    changes = answer.json()["changes"]
    assert [(each["subject"], each["start"]) for each in changes] == [(each["subject"], each["time"]) for each in FACTS]
    assert len({each["event"] for each in changes}) == 1


def test_columns_of_dates_and_numbers_and_of_polars_are_texts(changing):
    frame = pl.DataFrame(FACTS).with_columns(time=pl.lit(datetime.date(2001, 6, 1)))
    stream = io.BytesIO()
    frame.write_ipc_stream(stream)
    changes = post(changing, "/v1/facts", stream.getvalue(), ARROW).json()["changes"]
    assert {each["start"] for each in changes} == {"2001-06"}


def test_an_end_of_lines_may_be_included(changing):
    fact = {"subject": "Ada", "predicate": "Visits", "object": "Tasmark", "start": "2001-03", "end": "2001-05"}
    changes = post(changing, "/v1/facts", json.dumps(fact).encode(), LINES, inclusive_end="true").json()["changes"]
    assert [each["end"] for each in changes][-1] == "2001-05"
    refused = changing.post(
        "/v1/facts", json={"facts": [fact], "inclusive_end": True}, params={"inclusive_end": "true"}
    )
    assert (refused.status_code, "give it once" in refused.json()["detail"]) == (400, True)


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("accept", TYPES)
def test_many_questions_are_answered_as_the_library_does(client, world_memory, kind, accept):
    graph = world_memory.graph
    rows = graph.table(graph.split("train")[:40]).to_dicts()
    for number, row in enumerate(rows):
        row.pop(("subject", "predicate", "object", "time")[number % 4])
    answer = post(client, "/v1/recall", encoded(rows, kind, "questions"), kind, accept, top=3, explain=1)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].partition(";")[0] == accept
    columns = {name: [row.get(name) for row in rows] for name in ("subject", "predicate", "object", "time")}
    expected = world_memory.recall_many(columns, top=3, explain=1)
    if accept == ARROW:
        assert pl.read_ipc_stream(answer.content).equals(expected)
        return
    lines = answer.text.splitlines()
    found = answer.json()["answers"] if accept == JSON else [json.loads(line) for line in lines]
    assert found == [{name: row.get(name) for name in found[0]} for row in expected.to_dicts()]


@pytest.mark.parametrize(
    ("body", "kind", "sentence"),
    [
        (b'{"subject": "a"}\n{"subject": 3}', LINES, "line 2: cannot read subject: expected str"),
        (b'{"subject": "a"}\n{"who": "b"}', LINES, "line 2: unknown parameter 'who'; choose among subject"),
        (b'{"subject": "a"}\n\n{"subject"', LINES, "(line 3: Input data was truncated)"),
        (b'{"questions": [{}, {"time": 3}]}', JSON, "row 2: cannot read time: expected str"),
        (b'{"questions": []}', JSON, "cannot read questions: expected array of length >= 1"),
        (b"[]", JSON, "it is no object"),
        (arrow([{"who": "a"}]), ARROW, "unknown parameter 'who'"),
        (arrow([{"subject": "a" * 2001}]), ARROW, "cannot read subject: expected str of length <= 2000"),
        (arrow([{"subject": 1.5}]), ARROW, "the column subject has the type double; give texts"),
        (arrow([{"subject": "a"}] * 500, compression="zstd"), ARROW, "it is compressed; write it without compression"),
        (arrow([{"subject": "a"}] * 500, compression="lz4"), ARROW, "it is compressed; write it without compression"),
        (arrow(pa.table({"subject": pa.nulls(10**9)})), ARROW, f"it has more than {MAX_FACTS:,} rows"),
        (arrow(pa.table([["a"], ["b"]], names=["subject", "subject"])), ARROW, "several columns have the name subject"),
        (arrow([{"subject": "a"}])[:100], ARROW, "the body is not readable as application/vnd.apache.arrow.stream"),
        (b"", ARROW, "the body is not readable as application/vnd.apache.arrow.stream"),
    ],
)  # fmt: skip
def test_mistakes_name_the_row(client, body, kind, sentence):
    answer = post(client, "/v1/recall", body, kind)
    assert answer.status_code == 400
    assert sentence in answer.json()["detail"]


@pytest.mark.parametrize("kind", TYPES)
def test_a_fact_that_cannot_be_stored_is_named_and_nothing_is_stored(changing, kind):
    rows = [*FACTS[:5], {**FACTS[5], "time": "some day"}, *FACTS[6:]]
    state = changing.get("/v1/memory").json()["state"]
    answer = post(changing, "/v1/facts", encoded(rows, kind, "facts"), kind)
    assert answer.status_code == 400
    assert "row 6" in answer.json()["detail"]
    assert "cannot read 'some day' as the time" in answer.json()["detail"]
    assert changing.get("/v1/memory").json()["state"] == state


def test_texts_that_many_rows_share_are_bounded():
    with pytest.raises(ProblemError, match="its texts are too long"):
        parse_body(ARROW, repeated(10_000), Remember, "facts", {})


def repeated(rows: int) -> bytes:
    """Return a stream whose rows all refer to one text of a megabyte."""
    text = b"x" * 1_000_000
    view = len(text).to_bytes(4, "little") + text[:4] + (0).to_bytes(8, "little")
    buffers = [None, pa.py_buffer(view * rows), pa.py_buffer(text)]
    column = pa.Array.from_buffers(pa.string_view(), rows, buffers)
    return arrow(pa.table({"subject": column}))


def test_too_many_answers_are_refused(client):
    question = {"subject": "Tasmark", "predicate": "Visits", "time": "2001-06"}
    answer = post(client, "/v1/recall", encoded([question] * 1_001, JSON, "questions"), JSON, top=100)
    assert answer.status_code == 400
    assert "at most 100,000 answers are given together" in answer.json()["detail"]
    for wrong in ({"top": "many"}, {"top": "0"}, {"include": "some"}, {"questions": "[]"}, {"who": "x"}):
        assert post(client, "/v1/recall", encoded([question], JSON, "questions"), JSON, **wrong).status_code == 400


def test_the_first_known_type_is_accepted():
    assert accepted("") == accepted("*/*") == accepted("text/html, application/json;q=0.9") == JSON
    assert accepted(f"{ARROW};q=1, {LINES}") == ARROW
    assert accepted(f"text/html, {LINES}") == LINES


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_a_broken_stream_is_refused_and_no_fault(data):
    whole = bytearray(arrow(FACTS))
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    try:
        parse_body(ARROW, bytes(whole), Remember, "facts", {})
    except ProblemError as problem:
        assert problem.status == 400
