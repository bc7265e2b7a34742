"""The operations of the service, each declared once: REST routes, the OpenAPI document and MCP tools follow."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import msgspec

import recollect
from recollect.serve import messages as msg
from recollect.serve.problems import COMMON, PROBLEM_TYPE, PROBLEMS
from recollect.serve.service import Service

MAX_KEY = 200  # characters
JSON, LINES, ARROW = "application/json", "application/x-ndjson", "application/vnd.apache.arrow.stream"
REFERENCE = "#/components/schemas/{name}"
_KEY = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "The same request with the same key is done once.",
    "schema": {"type": "string", "maxLength": MAX_KEY},
}


@dataclass(frozen=True)
class Operation:
    """A question that can be asked: where, with which parts, and what answers it."""

    path: str
    name: str
    question: type[msg.Message] | None  # whose fields are parameters; those in the path are taken from it
    answer: type[msg.Message]
    summary: str
    ask: Callable[..., Any]  # of the service, the question, and if it takes one, the key of the request
    method: str = "GET"
    writes: bool = False  # whether it changes the memory
    has_key: bool = False  # whether a request may have a key, by which it is done once
    rows: str | None = None  # the field of the question that is the body: many rows
    is_stateful: bool = True  # whether the answer changes only with the state of the memory

    @property
    def in_path(self) -> str | None:
        """The field that is part of the path."""
        return self.path.partition("{")[2].partition(":")[0] or None

    @property
    def public_path(self) -> str:
        """The path as OpenAPI writes it."""
        return self.path.replace(":path}", "}")


READS = (
    Operation("/v1/memory", "memory", None, msg.About, "What the memory is.", lambda service, _: service.about()),
    Operation("/v1/recall", "recall", msg.Recall, msg.Answers, "Recall the one part left out.", Service.recall),
    Operation("/v1/know", "know", msg.Know, msg.Answers, "What holds as of a time.", Service.know),
    Operation(
        "/v1/timeline", "timeline", msg.Triple, msg.Timeline, "A fact's probability over time.", Service.timeline
    ),
    Operation("/v1/why", "why", msg.Why, msg.Answer, "A fact's probability and its reasons.", Service.why),
    Operation("/v1/labels", "labels", msg.Completion, msg.Labels, "Complete a label.", Service.labels),
    Operation(
        "/v1/entity/{label:path}", "entity", msg.OneEntity, msg.EntityFacts, "Facts of an entity.", Service.entity
    ),
    Operation("/v1/graph", "graph", msg.Picture, msg.GraphPart, "Stored facts as of a time.", Service.graph),
    Operation(
        "/v1/reliability",
        "reliability",
        None,
        msg.Reliability,
        "How far probabilities can be relied on.",
        lambda service, _: service.reliability(),
        is_stateful=False,
    ),
    Operation("/v1/changes", "changes", msg.Between, msg.Changes, "What began and what ended.", Service.changes),
    Operation("/v1/journal", "journal", msg.Since, msg.Changed, "What was remembered and forgotten.", Service.journal),
)
RECALL_MANY = Operation(
    "/v1/recall", "recall_many", msg.RecallMany, msg.ManyAnswers, "Recall parts of many facts.", Service.recall_many,
    "POST", rows="questions",
)  # fmt: skip
WRITES = (
    Operation(
        "/v1/facts", "remember", msg.Remember, msg.Changed, "Store facts, all or none.", Service.remember, "POST",
        writes=True, has_key=True, rows="facts",
    ),
    Operation(
        "/v1/facts", "forget", msg.Forget, msg.Changed, "Remove stored facts.", Service.forget, "DELETE",
        writes=True, has_key=True,
    ),
    Operation("/v1/undo", "undo", msg.Undo, msg.Changed, "Take an event back.", Service.undo, "POST", writes=True),
)  # fmt: skip
OPERATIONS = (*READS, RECALL_MANY, *WRITES)


def openapi() -> dict[str, Any]:
    """Return the OpenAPI document of all operations."""
    parameters = [each.question for each in OPERATIONS if each.question is not None and each.rows is None]
    bodies = [each.question for each in OPERATIONS if each.question is not None and each.rows is not None]
    types = [msg.Problem, *bodies, *(each.answer for each in OPERATIONS), *parameters]
    _, schemas = msgspec.json.schema_components(dict.fromkeys(types), ref_template=REFERENCE)
    paths: dict[str, dict[str, Any]] = {}
    for each in OPERATIONS:
        paths.setdefault(each.public_path, {})[each.method.lower()] = _describe(each, schemas)
    asked = {each.__name__ for each in parameters}
    return {
        "openapi": "3.1.0",
        "info": {"title": "recollect", "version": recollect.__version__, "description": "Ask a memory of facts."},
        "paths": paths,
        "components": {
            "schemas": {name: schema for name, schema in schemas.items() if name not in asked},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}, {}],
    }


def _describe(operation: Operation, schemas: dict[str, Any]) -> dict[str, Any]:
    """Return an operation as OpenAPI has it."""
    answer: dict[str, Any] = {
        "description": (operation.answer.__doc__ or "").strip(),
        "content": {JSON: {"schema": _reference(operation.answer)}},
    }
    if operation is RECALL_MANY:
        answer["content"] |= {
            LINES: {"schema": {"type": "string", "description": "One answer of the list in each line, as JSON."}},
            ARROW: {"schema": {"type": "string", "format": "binary", "description": "A column for each field."}},
        }
    responses = {"200": answer, **problem_responses(COMMON)}
    described = {"operationId": operation.name, "summary": operation.summary, "responses": responses}
    parameters = []
    if operation.question is not None:
        schema = schemas[operation.question.__name__]
        parameters = [
            _parameter(name, each, operation.in_path == name, name in schema["required"])
            for name, each in schema["properties"].items()
            if name != operation.rows
        ]
    if operation.has_key:
        parameters.append(_KEY)
        responses |= problem_responses([409])
    if operation.method == "GET" and operation.is_stateful:
        answer["headers"] = {"ETag": {"description": "The state of the memory.", "schema": {"type": "string"}}}
        responses["304"] = {"description": "The memory is as it was at the state of If-None-Match."}
    if operation.rows is not None and operation.question is not None:
        lines = f"One of the {operation.rows} in each line, as JSON; all else is a parameter."
        arrow = f"The {operation.rows}, with a column for each part, not compressed; all else is a parameter."
        content = {
            JSON: {"schema": _reference(operation.question)},
            LINES: {"schema": {"type": "string", "description": lines}},
            ARROW: {"schema": {"type": "string", "format": "binary", "description": arrow}},
        }
        described["requestBody"] = {"required": True, "content": content}
    return {**described, "parameters": parameters}


def _parameter(name: str, schema: dict[str, Any], is_path: bool, is_required: bool) -> dict[str, Any]:
    """Return a field of a question as a parameter."""
    place, schema = "path" if is_path else "query", _plain(schema)
    if is_path:
        schema["minLength"] = 1
    return {"name": name, "in": place, "required": is_required or is_path, "schema": schema}


def _plain(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a field without null: what may be null may be left out."""
    wanted = [each for each in schema.get("anyOf", [schema]) if each != {"type": "null"}]
    return {key: value for key, value in wanted[0].items() if not (key == "default" and value is None)}


def input_schema(question: type[msg.Message]) -> dict[str, Any]:
    """Return the JSON schema of a question, without references: agents read it."""
    definitions = msgspec.json.schema(question)["$defs"]
    return _inline(definitions[question.__name__], definitions)


def _inline(schema: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    """Return a schema with the definitions that it refers to in their places, without what a reader can do without."""
    if "$ref" in schema:
        return _inline(definitions[schema["$ref"].rpartition("/")[2]], definitions)
    left_out = ("title", "minLength", "maxLength", "minItems", "maxItems", "additionalProperties")
    kept = {key: value for key, value in schema.items() if key not in left_out and value not in ([], False)}
    if "properties" in kept:
        kept.pop("description", None)
        kept["properties"] = {name: _inline(_plain(each), definitions) for name, each in kept["properties"].items()}
    if "items" in kept:
        kept["items"] = _inline(kept["items"], definitions)
    return kept


def problem_responses(problems: Iterable[int]) -> dict[str, Any]:
    """Return the responses of some statuses, by status."""
    content = {PROBLEM_TYPE: {"schema": _reference(msg.Problem)}}
    return {str(status): {"description": PROBLEMS[status], "content": content} for status in problems}


def _reference(message: type[msg.Message]) -> dict[str, str]:
    return {"$ref": REFERENCE.format(name=message.__name__)}
