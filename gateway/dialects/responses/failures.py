"""Failures: errors of the gateway and of upstreams in the words of the Responses API."""

from __future__ import annotations

from typing import Any, Final

from gateway.chat.json_members import encoded
from gateway.completion.answer_json import document_of
from gateway.dialects.responses.field_paths import FieldPaths

_KNOWN: Final = frozenset({"rate_limit_exceeded", "insufficient_quota", "context_length_exceeded", "invalid_prompt"})
"""Codes that a failed response has, too; any other is the server's error."""


def failure_of_event(error: Any) -> dict[str, Any]:
    """Return the members of an `error` event for an error that an event of a chat completion states."""
    stated = error if isinstance(error, dict) else {"message": error}
    message, code = stated.get("message"), stated.get("code") or stated.get("type")
    return {
        "code": code if isinstance(code, str) else "server_error",
        "message": message if isinstance(message, str) else "The upstream answered with an error.",
        "param": stated.get("param"),
    }


def response_error(failure: dict[str, Any]) -> dict[str, Any]:
    """Return the `error` of a failed response."""
    code = failure["code"] if failure["code"] in _KNOWN else "server_error"
    return {"code": code, "message": failure["message"]}


def refusal_in_own_words(body: bytes, paths: FieldPaths) -> bytes:
    """Return an error envelope with the field, if it names one, as the client wrote it."""
    document = document_of(body)
    error = document.get("error") if isinstance(document, dict) else None
    if not isinstance(error, dict) or not isinstance(param := error.get("param"), str):
        return body
    message = error.get("message")
    changed = {"param": paths.of(param)}
    if isinstance(message, str):
        changed["message"] = paths.in_own_words(message, param)
    return encoded({**document, "error": {**error, **changed}})
