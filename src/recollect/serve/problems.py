"""Problems as answers: what a user's mistake, a missing label or too many questions become over HTTP."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import msgspec
from starlette.responses import Response

from recollect.serve.messages import Message, Problem

PROBLEM_TYPE = "application/problem+json"
# what an operation may answer instead: status -> reason
PROBLEMS = {
    400: "The question cannot be answered; the sentence says why.",
    401: "The token is missing or wrong.",
    403: "The request comes from another site, or the memory is read-only.",
    404: "There is no such label or page.",
    405: "There is no such method.",
    408: "The body was sent too slowly.",
    409: "The key was used for another request.",
    413: "The body is too large.",
    415: "The body has another type.",
    503: "Too many questions at a time; try again after the seconds of Retry-After.",
}
COMMON = tuple(status for status in PROBLEMS if status != 409)  # of every operation
_PLACE = re.compile(r"^(?P<text>.*?)(?: - at `\$\.?(?P<field>[^`]*)`)?$", re.DOTALL)


class ProblemError(Exception):
    """A request that is refused with a status and a sentence."""

    def __init__(self, status: int, detail: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(detail)
        self.status, self.detail, self.headers = status, detail, dict(headers or {})


def problem_response(problem: ProblemError) -> Response:
    """Return a problem as RFC 9457 has it."""
    headers = {"WWW-Authenticate": "Bearer", **problem.headers} if problem.status == 401 else problem.headers
    body = Problem(title=HTTPStatus(problem.status).phrase, status=problem.status, detail=problem.detail)
    return Response(to_json(body), problem.status, headers, PROBLEM_TYPE)


def to_json(message: Any) -> bytes:
    """Return a message as JSON; lone surrogates, which UTF-8 has none of, are escaped."""
    try:
        return msgspec.json.encode(message)
    except UnicodeEncodeError:
        return json.dumps(msgspec.to_builtins(message)).encode()


def explain_invalid(error: msgspec.ValidationError, question: type[Message]) -> str:
    """Return a sentence about what does not fit the fields of a question."""
    names = ", ".join(question.__struct_fields__)
    match = _PLACE.match(str(error))
    text, field = (match["text"], match["field"]) if match else (str(error), None)
    if text.startswith("Object contains unknown field"):
        return f"unknown parameter {text.partition('`')[2].rstrip('`')!r}; choose among {names}"
    if text.startswith("Object missing required field"):
        return f"{text.partition('`')[2].rstrip('`')} is missing; give it"
    if text.startswith("Invalid enum value"):
        choices = msgspec.json.schema(question)["$defs"][question.__name__]["properties"][field]["enum"]
        return f"{field} must be one of {', '.join(choices)}; got {text.removeprefix('Invalid enum value ')}"
    return f"cannot read {field or 'the question'}: {text[:1].lower()}{text[1:]}".replace("`", "")
