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

REFERENCE = "#/components/schemas/{name}"


@dataclass(frozen=True)
class Operation:
    """A question that can be asked: where, with which parts, and what answers it."""

    path: str
    name: str
    question: type[msg.Message] | None  # whose fields are parameters; those in the path are taken from it
    answer: type[msg.Message]
    summary: str
    ask: Callable[[Service, Any], Any]

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
    Operation("/v1/changes", "changes", msg.Between, msg.Changes, "What began and what ended.", Service.changes),
)


def openapi() -> dict[str, Any]:
    """Return the OpenAPI document of all operations."""
    asked = [each.question for each in READS if each.question is not None]
    types = [msg.Problem, *(each.answer for each in READS), *asked]
    _, schemas = msgspec.json.schema_components(dict.fromkeys(types), ref_template=REFERENCE)
    questions = {each.__name__ for each in asked}
    return {
        "openapi": "3.1.0",
        "info": {"title": "recollect", "version": recollect.__version__, "description": "Ask a memory of facts."},
        "paths": {each.public_path: {"get": _describe(each, schemas)} for each in READS},
        "components": {
            "schemas": {name: schema for name, schema in schemas.items() if name not in questions},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}, {}],
    }


def _describe(operation: Operation, schemas: dict[str, Any]) -> dict[str, Any]:
    """Return an operation as OpenAPI has it."""
    described: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.summary,
        "responses": {
            "200": {
                "description": (operation.answer.__doc__ or "").strip(),
                "content": {"application/json": {"schema": _reference(operation.answer)}},
                "headers": {"ETag": {"description": "The state of the memory.", "schema": {"type": "string"}}},
            },
            "304": {"description": "The memory is as it was at the state of If-None-Match."},
            **problem_responses(PROBLEMS),
        },
    }
    if operation.question is not None:
        schema = schemas[operation.question.__name__]
        described["parameters"] = [
            _parameter(name, each, operation.in_path == name, name in schema["required"])
            for name, each in schema["properties"].items()
        ]
    return described


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
    """Return a schema with the definitions that it refers to in their places, without titles."""
    if "$ref" in schema:
        return _inline(definitions[schema["$ref"].rpartition("/")[2]], definitions)
    kept = dict(schema)
    if "properties" in kept:
        kept = {key: value for key, value in kept.items() if key not in ("title", "description")}
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
