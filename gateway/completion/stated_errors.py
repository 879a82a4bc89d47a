"""Errors that an upstream states inside an answer whose status said 200: found by meaning, in any of their shapes."""

from __future__ import annotations

import json
from typing import Any, Final

import msgspec

ERROR_EVENT: Final = "error"
_UNNAMED: Final = frozenset({"message", ERROR_EVENT})
_FAILED_REASONS: Final = frozenset(
    {"abort", "aborted", "cancelled", "canceled", "timeout", "interrupted", "insufficient_system_resource"}
)
"""Finish reasons of an answer that was broken off, besides all that name an error."""
_LOOSE_KEYS: Final = ("detail", "message", "msg", "errors", "error_message", "error_msg", "error_code")
"""What says that a document without choices is an error."""
_STATUS_KEYS: Final = ("code", "status", "status_code", "http_status", "http_code", "type")
_STATUS_OF_WORD: Final = {
    **dict.fromkeys(("invalid_request_error", "badrequesterror", "bad_request", "bad_request_error"), 400),
    **dict.fromkeys(("invalid_argument", "invalid_value", "unsupported_parameter", "context_length_exceeded"), 400),
    **dict.fromkeys(("content_policy_violation", "content_filter"), 400),
    **dict.fromkeys(("authentication_error", "authenticationerror", "invalid_api_key", "unauthorized"), 401),
    **dict.fromkeys(("permission_error", "permission_denied", "permissiondeniederror", "forbidden"), 403),
    **dict.fromkeys(("not_found_error", "notfounderror", "not_found", "model_not_found"), 404),
    **dict.fromkeys(("unprocessable_entity", "unprocessableentityerror"), 422),
    **dict.fromkeys(("rate_limit_error", "rate_limit_exceeded", "ratelimiterror", "resource_exhausted"), 429),
    **dict.fromkeys(("insufficient_quota", "too_many_requests"), 429),
    **dict.fromkeys(("overloaded_error", "service_unavailable", "service_unavailable_error", "unavailable"), 503),
    "server_is_overloaded": 503,
}
"""What the words of common servers mean, where they give no number."""


class StatedError(msgspec.Struct, frozen=True):
    """What went wrong, in the upstream's own words."""

    status: int | None = None
    """The status that the error names by number or by word; None: the upstream failed."""
    body: bytes = b""
    """The error as JSON, for `enveloped`."""
    is_standard: bool = False
    """Clients recognise it: an event with `error`, as OpenAI sends it."""


def document_of(data: bytes) -> Any:
    """The JSON in `data`, also with the NaN that some servers write; None for what is no JSON."""
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass  # most often for an infinite log-probability
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def stated_error(document: Any, event: str = "message") -> StatedError | None:
    """Return the error that a plain answer or an event's data states, or None when it states none.

    `event` is the event's name. Errors are: any event named `error`; a non-empty `error`; an object or a type of that
    name; and, without choices, what web frameworks and gateways send in its place, such as `detail`.
    """
    if not isinstance(document, dict):
        return StatedError(None, msgspec.json.encode({"error": {}})) if event == ERROR_EVENT else None
    error = document.get("error")
    extension = document.get("x_groq")
    if isinstance(extension, dict) and extension.get("error"):
        return _told(extension["error"], document)
    if error or event == ERROR_EVENT or ERROR_EVENT in (document.get("object"), document.get("type")):
        return _told(error if error else document, document)
    if "choices" in document or event not in _UNNAMED or document.get("type") == "ping":
        return None
    if document.get("usage") or not any(document.get(key) for key in _LOOSE_KEYS):
        return None
    return _told(document, document)


def stated_in_choice(choice: dict[str, Any]) -> StatedError | None:
    """Return the error of one choice: its own `error`, or a finish reason of an answer that was broken off."""
    error = choice.get("error")
    if error:
        return _told(error, choice)
    return StatedError() if is_failed_reason(choice.get("finish_reason")) else None


def is_failed_reason(reason: object) -> bool:
    """Whether this finish reason means that the answer was broken off; a content filter's does not."""
    if isinstance(reason, dict):
        reason = reason.get("type")
    return isinstance(reason, str) and (reason.lower() in _FAILED_REASONS or "error" in reason.lower())


def _told(error: Any, document: dict[str, Any]) -> StatedError:
    status = _status_in(error) if isinstance(error, dict) else None
    if status is None:
        status = _status_in(document)
    detail = document.get("detail")
    if error is document and isinstance(detail, str):
        error = {"message": detail}
    return StatedError(status, _encoded({"error": error}), bool(document.get("error")))


def _encoded(document: Any) -> bytes:
    try:
        return msgspec.json.encode(document)
    except (OverflowError, TypeError, RecursionError):  # an integer beyond 64 bits
        return b'{"error":{}}'


def _status_in(told: dict[str, Any]) -> int | None:
    for key in _STATUS_KEYS:
        value = told.get(key)
        if isinstance(value, str):
            value = int(value) if len(value) == 3 and value.isdecimal() else _STATUS_OF_WORD.get(value.lower())
        if isinstance(value, int) and not isinstance(value, bool) and 400 <= value <= 599:
            return value
    return None
