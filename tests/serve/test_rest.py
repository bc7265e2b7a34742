"""Every route: good questions, bad ones, limits, and the sentences of errors."""

from __future__ import annotations

import json
import random
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import polars as pl
import pytest
from starlette.testclient import TestClient

import recollect
from recollect import Memory, Recipe, UserError
from recollect.graph.facts import SLOT_NAMES
from recollect.serve.http import guard, rest
from recollect.serve.http.guard import Access
from recollect.serve.http.rest import create_app
from recollect.serve.messages import MAX_LABEL, MAX_TOP, Know, Recall
from recollect.serve.operations import OPERATIONS, openapi
from recollect.serve.service import Service


@pytest.fixture(scope="module")
def fact(world_memory) -> dict[str, str]:
    """A stored fact by label."""
    graph = world_memory.graph
    return graph.table(graph.split("train")[100:101]).row(0, named=True)


def without(fact: dict[str, str], *names: str) -> dict[str, str]:
    return {name: label for name, label in fact.items() if name not in names}


# --- questions ---


def test_memory_says_what_it_is(client, world_memory):
    about = client.get("/v1/memory").json()
    graph = world_memory.graph
    assert (about["entities"], about["predicates"]) == (len(graph.entities), len(graph.predicates))
    assert about["times"] == {"grain": "month", "first": "2000-01", "last": "2001-12", "count": 24}
    assert about["answers_by"] == "history"
    assert about["explains"]
    assert world_memory.probability({name: [label] for name, label in about["example"].items()})["probability"][0] == 1


@pytest.mark.parametrize("slot", ["subject", "predicate", "object", "time"])
def test_recall_answers_as_the_library_does(client, world_memory, fact, slot):
    given = without(fact, slot)
    found = client.get("/v1/recall", params={**given, "top": 5}).json()["answers"]
    expected = world_memory.recall(**given, top=5).to_dicts()
    assert [{name: answer[name] for name in expected[0]} for answer in found] == expected
    assert all(answer[name] == label for answer in found for name, label in given.items())


def test_recall_explains_predicted_answers(client, fact):
    params = {**without(fact, "object"), "include": "predicted", "explain": 2, "top": 3}
    for answer in client.get("/v1/recall", params=params).json()["answers"]:
        assert answer["status"] == "predicted"
        assert len(answer["why"]) <= 2
        assert all(set(reason) == {*SLOT_NAMES.values(), "share"} for reason in answer["why"])


def test_recall_of_a_period_names_the_time(client, fact):
    params = {**without(fact, "object"), "time": fact["time"][:4], "include": "stored"}
    answers = client.get("/v1/recall", params=params).json()["answers"]
    assert fact["object"] in {answer["object"] for answer in answers}
    assert all(answer["time"].startswith(fact["time"][:4]) for answer in answers)


def test_know_answers_as_the_library_does(client, world_memory, fact):
    params = {"subject": fact["subject"], "as_of": fact["time"]}
    found = client.get("/v1/know", params=params).json()
    expected = world_memory.know(**params).to_dicts()
    assert [{name: answer[name] for name in expected[0]} for answer in found["answers"]] == expected
    assert found["as_of"] == fact["time"]


def test_know_of_a_period_is_as_of_its_end(client):
    assert client.get("/v1/know", params={"as_of": "2000"}).json()["as_of"] == "2000-12"


def test_timeline_has_all_times_and_the_stored_ones_are_certain(client, world_memory, fact):
    found = client.get("/v1/timeline", params=without(fact, "time")).json()
    assert found["times"] == world_memory.graph.times.labels
    assert found["probabilities"][found["times"].index(fact["time"])] == 1
    stored = [each for each in found["intervals"] if each["status"] == "stored"]
    assert any(each["start"] <= fact["time"] <= each["end"] for each in stored)
    fewer = client.get("/v1/timeline", params={**without(fact, "time"), "points": 5}).json()
    assert len(fewer["times"]) == 5
    assert max(fewer["probabilities"]) == 1


def test_why_has_the_probability_of_a_fact_and_reasons(client, world_memory, fact):
    stored = client.get("/v1/why", params=fact).json()
    assert (stored["status"], stored["probability"], stored["why"]) == ("stored", 1, None)
    answer = client.get(
        "/v1/recall", params={**without(fact, "object"), "include": "predicted", "top": 1, "explain": 3}
    )
    (expected,) = answer.json()["answers"]
    predicted = client.get("/v1/why", params={**fact, "object": expected["object"]}).json()
    assert predicted["probability"] == pytest.approx(expected["probability"])
    assert predicted["why"] == expected["why"]


def test_labels_complete_whatever_the_case(client, world_memory):
    label = world_memory.graph.entities.labels[5]
    for text in (label, label[:3].upper(), label[2:6].lower()):
        found = client.get("/v1/labels", params={"text": text, "top": 1000}).json()["labels"]
        assert label in {each["label"] for each in found}
    predicates = client.get("/v1/labels", params={"kind": "predicate"}).json()["labels"]
    facts = [each["facts"] for each in predicates]
    assert facts == sorted(facts, reverse=True)
    times = client.get("/v1/labels", params={"kind": "time", "text": "2001-0", "top": 2}).json()["labels"]
    assert [each["label"] for each in times] == ["2001-01", "2001-02"]


def test_entity_has_its_facts_in_both_roles(client, world_memory, fact):
    params = {"as_of": fact["time"], "include": "stored", "top": MAX_TOP}
    found = client.get(f"/v1/entity/{fact['subject']}", params=params).json()
    expected = world_memory.know(subject=fact["subject"], as_of=fact["time"], include="stored", top=MAX_TOP)
    assert [each["object"] for each in found["as_subject"]] == expected["object"].to_list()
    assert {each["object"] for each in found["as_object"]} <= {fact["subject"]}
    assert fact["object"] in {each["object"] for each in found["as_subject"]}


def test_graph_has_the_facts_that_hold_around_an_entity(client, world_memory, fact):
    params = {"entity": fact["subject"], "as_of": fact["time"], "top": 2000}
    found = client.get("/v1/graph", params=params).json()
    know = [
        world_memory.know(**{role: fact["subject"]}, as_of=fact["time"], include="stored", top=MAX_TOP)
        for role in ("subject", "object")
    ]
    triples = {tuple(row[:3]) for table in know for row in table.iter_rows()}
    assert {(each["subject"], each["predicate"], each["object"]) for each in found["edges"]} == triples
    assert all(each["holds"] and each["start"] <= fact["time"] <= each["end"] for each in found["edges"])
    names = {each["label"] for each in found["nodes"]}
    assert names == {name for each in found["edges"] for name in (each["subject"], each["object"])} | {fact["subject"]}
    ended = client.get("/v1/graph", params={**params, "ended": 50}).json()["edges"]
    assert any(not each["holds"] for each in ended)
    assert all(each["end"] < fact["time"] for each in ended if not each["holds"])


def test_changes_are_between_two_times(client):
    found = client.get("/v1/changes", params={"since": "2000-03", "until": "2000-05", "top": MAX_TOP}).json()
    assert found["began"]
    assert all("2000-03" < each["start"] <= "2000-05" for each in found["began"])
    assert all("2000-03" <= each["end"] < "2000-05" and not each["holds"] for each in found["ended"])


# --- mistakes ---


@pytest.mark.parametrize(
    ("path", "status", "sentence"),
    [
        ("/v1/recall", 400, "recall fills one slot, and 4 are open; give all but one of subject"),
        ("/v1/recall?top=0", 400, "cannot read top: expected int >= 1"),
        ("/v1/recall?top=1001", 400, "cannot read top: expected int <= 1000"),
        ("/v1/recall?top=many", 400, "cannot read top: expected int, got str"),
        ("/v1/recall?explain=21", 400, "cannot read explain: expected int <= 20"),
        ("/v1/recall?include=some", 400, "include must be one of all, predicted, stored; got 'some'"),
        ("/v1/recall?who=x", 400, "unknown parameter 'who'; choose among subject, predicate"),
        ("/v1/recall?subject=a&subject=b", 400, "subject is given 2 times; give it once"),
        (f"/v1/know?subject={'x' * (MAX_LABEL + 1)}", 400, "cannot read subject: expected str of length <= 2000"),
        ("/v1/know?subject=Nobody+at+all", 400, "unknown entity 'Nobody at all'"),
        ("/v1/know?as_of=1800", 400, "time '1800' is not on this axis"),
        ("/v1/memory?x=1", 400, "unknown parameter 'x'; /v1/memory takes none"),
        ("/v1/why?subject=a", 400, "predicate is missing; give it"),
        ("/v1/timeline?subject=a&predicate=b&object=c&points=1", 400, "cannot read points: expected int >= 2"),
        ("/v1/entity/Nobody", 404, "unknown entity 'Nobody'"),
        ("/v1/entity/x?label=y", 400, "unknown parameter 'label'; it is part of the path"),
        ("/v1/entity/..%2F..%2Fetc%2Fpasswd", 404, "unknown entity '../../etc/passwd'"),
        ("/v1/graph?depth=4", 400, "cannot read depth: expected int <= 3"),
        ("/v1/changes", 400, "since is missing; give it"),
        ("/nothing", 404, "there is no GET /nothing; /openapi.json lists what there is"),
        ("/static/%2e%2e/rest.py", 404, "there is no GET"),
    ],
)
def test_mistakes_are_problems_of_one_sentence(client, path, status, sentence):
    answer = client.get(path)
    problem = answer.json()
    assert answer.status_code == problem["status"] == status
    assert answer.headers["content-type"] == "application/problem+json"
    assert sentence in problem["detail"]


def test_the_sentence_is_that_of_the_library(client, world_memory):
    with pytest.raises(UserError) as raised:
        world_memory.know(subject="Reathlan")
    assert client.get("/v1/know", params={"subject": "Reathlan"}).json()["detail"] == str(raised.value)


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_questions_are_asked_by_get_only(client, method):
    answer = client.request(method, "/v1/know")
    assert answer.status_code == 405
    assert "GET" in answer.headers["allow"]
    assert answer.headers["content-type"] == "application/problem+json"


def test_a_fault_is_logged_and_says_nothing_of_the_code(world_memory, caplog, monkeypatch):
    service = Service(world_memory)
    monkeypatch.setattr(world_memory, "snapshot", None)
    with TestClient(create_app(service, Access()), base_url="http://localhost") as client:
        answer = client.get("/v1/recall")
    assert answer.status_code == 500
    assert answer.json()["detail"] == rest.INTERNAL
    assert "recall failed" in caplog.text


# --- state ---


def test_an_unchanged_memory_is_not_answered_again(client, fact):
    params = without(fact, "object")
    tag = client.get("/v1/recall", params=params).headers["etag"]
    for given in (tag, f"W/{tag}", f'"x", {tag}', "*"):
        again = client.get("/v1/recall", params=params, headers={"If-None-Match": given})
        assert (again.status_code, again.content) == (304, b"")
    assert client.get("/v1/recall", params=params, headers={"If-None-Match": '"other"'}).status_code == 200


# --- access ---


TOKEN = "a-long-enough-token"


@pytest.fixture(scope="module")
def guarded(service):
    with TestClient(create_app(service, Access(token=TOKEN)), base_url="http://example.org") as client:
        yield client


@pytest.mark.parametrize(
    "given", [None, "Bearer wrong", f"Basic {TOKEN}", TOKEN, "Bearer", f"Bearer {TOKEN}x", "Bearer ü"]
)
@pytest.mark.parametrize("path", ["/v1/memory", "/metrics", "/nothing"])
def test_without_the_token_nothing_is_said(guarded, given, path):
    headers = {} if given is None else {"Authorization": given.encode()}
    answer = guarded.get(path, headers=headers)
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == "Bearer"
    assert "needs a token" in answer.json()["detail"]


def test_with_the_token_questions_are_answered(guarded):
    assert guarded.get("/v1/memory", headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 200


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/openapi.json", "/"])
def test_pages_without_facts_need_no_token(guarded, path):
    assert guarded.get(path).status_code == 200


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "", "localhost.", "[::2]:8000"])
def test_without_a_token_only_this_machine_is_answered(client, host):
    answer = client.get("/v1/memory", headers={"Host": host})
    assert answer.status_code == 403
    assert "answers to 127.0.0.1" in answer.json()["detail"]


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:9", "[::1]:8000", "localhost:8000"])
def test_all_names_of_this_machine_are_answered(client, host):
    assert client.get("/v1/memory", headers={"Host": host}).status_code == 200


def test_pages_of_other_sites_may_not_ask(client):
    assert client.get("/v1/memory", headers={"Origin": "http://127.0.0.1:8000"}).status_code == 200
    for origin in ("http://evil.example", "http://127.0.0.1:8001", "null"):
        assert client.get("/v1/memory", headers={"Origin": origin}).status_code == 403


def test_answers_have_headers_that_keep_browsers_safe(client):
    headers = client.get("/nothing").headers
    assert headers["x-content-type-options"] == "nosniff"
    assert "default-src 'none'" in headers["content-security-policy"]


# --- limits ---


def test_a_body_that_says_it_is_too_long_is_refused(client):
    answer = client.request("GET", "/v1/memory", headers={"Content-Length": str(guard.MAX_BODY + 1)})
    assert answer.status_code == 413
    assert "send at most" in answer.json()["detail"]


def test_too_many_questions_are_asked_to_come_again(world_memory, monkeypatch):
    service, begun, go_on = Service(world_memory), Event(), Event()

    def wait(*_: object, **__: object) -> None:
        begun.set()
        assert go_on.wait(30)

    monkeypatch.setattr(service, "about", wait)
    app = create_app(service, Access(), threads=1, waiting=1)
    with TestClient(app, base_url="http://localhost") as client, ThreadPoolExecutor() as pool:
        first = pool.submit(client.get, "/v1/memory")
        assert begun.wait(30)
        refused = client.get("/v1/know")
        go_on.set()
        assert first.result().status_code == 200
        assert client.get("/v1/labels").status_code == 200
        metrics = client.get("/metrics").text
    assert refused.status_code == 503
    assert refused.headers["retry-after"] == "1"
    assert "try again" in refused.json()["detail"]
    assert "recollect_refused_total 1" in metrics


# --- metrics and the document ---


def test_metrics_count_requests_by_route_and_status(client):
    before = client.get("/metrics").text
    client.get("/v1/entity/Nobody")
    after = client.get("/metrics").text

    def number(text: str) -> int:
        found = [
            line for line in text.splitlines() if line.startswith("recollect_requests_total{") and "entity" in line
        ]
        return sum(int(line.split()[-1]) for line in found if 'status="404"' in line)

    assert number(after) == number(before) + 1
    for name in ("recollect_request_seconds_bucket", "recollect_resident_bytes", "recollect_facts"):
        assert name in after


def test_the_document_describes_every_route(client):
    document = client.get("/openapi.json").json()
    assert document == json.loads(json.dumps(openapi()))
    assert set(document["paths"]) == {each.public_path for each in OPERATIONS}
    assert set(document["paths"]["/v1/facts"]) == {"post", "delete"}
    recall = document["paths"]["/v1/recall"]["get"]
    top = next(each for each in recall["parameters"] if each["name"] == "top")
    assert (top["schema"]["maximum"], top["schema"]["default"], top["required"]) == (MAX_TOP, 10, False)


# --- other memories ---


def test_facts_without_an_end_hold_after_the_last_time():
    rows = [("Ann", "leads", "Acme", "2001", "present"), ("Bob", "leads", "Birch", "2000", "2003")]
    table = pl.DataFrame(rows, schema=["subject", "predicate", "object", "start", "end"], orient="row")
    memory = Memory.learn(recollect.read(table), model="history")
    with TestClient(create_app(Service(memory), Access()), base_url="http://localhost") as client:
        (edge,) = client.get("/v1/graph", params={"entity": "Ann"}).json()["edges"]
        assert (edge["start"], edge["end"], edge["holds"]) == ("2001", None, True)
        triple = {"subject": "Ann", "predicate": "leads", "object": "Acme"}
        assert client.get("/v1/timeline", params=triple).json()["intervals"][0]["end"] is None
        later = client.get("/v1/graph", params={"as_of": memory.graph.times.label(len(memory.graph.times))}).json()
        assert [each["subject"] for each in later["edges"]] == ["Ann"]


def test_a_semantic_memory_has_no_times(small_world):
    memory = Memory.learn(small_world, model="distmult", dim=4, recipe=Recipe(epochs=1), history=False)
    semantic = memory.project("2001-03")
    with TestClient(create_app(Service(semantic), Access()), base_url="http://localhost") as client:
        about = client.get("/v1/memory").json()
        assert (about["times"], about["as_of"]) == (None, "2001-03")
        example = about["example"]
        assert example["time"] is None
        answers = client.get("/v1/recall", params=without(example, "object", "time")).json()["answers"]
        assert answers[0]["object"] == example["object"]
        edges = client.get("/v1/graph", params={"entity": example["subject"]}).json()["edges"]
        assert all(each["holds"] and each["start"] is None for each in edges)
        refused = client.get("/v1/timeline", params=without(example, "time"))
        assert (refused.status_code, "semantic memory has no time" in refused.json()["detail"]) == (400, True)
        assert client.get("/v1/labels", params={"kind": "time"}).json() == {"labels": []}
        for path in ("know", "changes", "graph"):
            refused = client.get(f"/v1/{path}", params={"since" if path == "changes" else "as_of": "2001"})
            assert refused.status_code == 400, path
            assert "semantic memory" in refused.json()["detail"]


@pytest.mark.parametrize("count", [300, pytest.param(10_000, marks=pytest.mark.long)])
def test_no_answer_that_is_marked_stored_has_ended(service, world_memory, count):
    graph, dice = world_memory.graph, random.Random(0)
    held = {tuple(row) for row in graph.table(graph.split("train")).iter_rows()}
    for _ in range(count):
        time, entity = dice.choice(graph.times.labels), dice.choice(graph.entities.labels)
        predicate = dice.choice(graph.predicates.labels)
        role = dice.choice(["subject", "object"])
        know = service.know(Know(**{role: entity}, as_of=time, top=50)).answers
        recall = service.recall(Recall(**{role: entity}, predicate=predicate, time=time, top=50)).answers
        for answer in (*know, *recall):
            fact = (answer.subject, answer.predicate, answer.object, answer.time)
            assert (fact in held) == (answer.status == "stored")
