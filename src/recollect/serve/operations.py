"""The operations of the service, each declared once: REST routes, the OpenAPI document and MCP tools follow."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import msgspec

import recollect
from recollect.serve import messages as msg
from recollect.serve.problems import PROBLEM_TYPE, PROBLEMS
from recollect.serve.service import Service

MAX_KEY = 200  # characters
JSON, LINES = "application/json", "application/x-ndjson"
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
    ask: Callable[..., Any]  # of the service, the question, and if it writes, the key of the request
    method: str = "GET"
    bodies: tuple[str, ...] = ()  # types of the body that the question is, instead of parameters

    @property
    def writes(self) -> bool:
        """Whether it changes the memory."""
        return self.method != "GET"

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
    ),
    Operation("/v1/changes", "changes", msg.Between, msg.Changes, "What began and what ended.", Service.changes),
    Operation("/v1/journal", "journal", msg.Since, msg.Changed, "What was remembered and forgotten.", Service.journal),
)
WRITES = (
    Operation(
        "/v1/facts", "remember", msg.Remember, msg.Changed, "Store facts, all or none.", Service.remember, "POST",
        (JSON, LINES),
    ),
    Operation("/v1/facts", "forget", msg.Forget, msg.Changed, "Remove stored facts.", Service.forget, "DELETE"),
)  # fmt: skip


def openapi() -> dict[str, Any]:
    """Return the OpenAPI document of all operations."""
    every = (*READS, *WRITES)
    parameters = [each.question for each in every if each.question is not None and not each.bodies]
    types = [msg.Problem, msg.Remember, *(each.answer for each in every), *parameters]
    _, schemas = msgspec.json.schema_components(dict.fromkeys(types), ref_template=REFERENCE)
    paths: dict[str, dict[str, Any]] = {}
    for each in every:
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
    responses = {"200": answer, **problem_responses(PROBLEMS)}
    described = {"operationId": operation.name, "summary": operation.summary, "responses": responses}
    parameters = []
    if operation.question is not None and not operation.bodies:
        schema = schemas[operation.question.__name__]
        parameters = [
            _parameter(name, each, operation.in_path == name, name in schema["required"])
            for name, each in schema["properties"].items()
        ]
    if operation.writes:
        parameters.append(_KEY)
    else:
        answer["headers"] = {"ETag": {"description": "The state of the memory.", "schema": {"type": "string"}}}
        responses["304"] = {"description": "The memory is as it was at the state of If-None-Match."}
    if operation.bodies:
        lines = {"type": "string", "description": "One fact of the list in each line, as JSON."}
        content = {JSON: {"schema": _reference(msg.Remember)}, LINES: {"schema": lines}}
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
