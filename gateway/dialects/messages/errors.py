"""Error envelope of the Messages API: `{"type": "error", "error": {"type", "message"}, "request_id"}`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from gateway.chat.json_members import encoded
from gateway.completion.answer_json import document_of
from gateway.errors import GatewayError, error_body

_ROOT: Final = b"/v1/messages"
_TYPES: Final = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
    529: "overloaded_error",
}
_STATUS_OF_CODE: Final = {
    "server_is_overloaded": 503,
    "upstream_timeout": 504,
    "rate_limit_exceeded": 429,
    "insufficient_quota": 429,
}
"""Status of an error that a stream reports, by its code."""
_OWN_TYPES: Final = frozenset({*_TYPES.values(), "api_error"})
_TOO_LONG: Final = "context_length_exceeded"


def error_type(status: int) -> str:
    """Return the type of an error of this status."""
    return _TYPES.get(status) or ("invalid_request_error" if 400 <= status < 500 else "api_error")


def envelope(
    status: int, body: bytes, request_id: str | None, own_words: Callable[[str, str], str] | None = None
) -> bytes:
    """Return an error of the gateway, or of an upstream in the gateway's envelope, in the envelope of this API.

    Args:
        status: Status of the response.
        body: The gateway's envelope.
        request_id: Id of the request, if it has one.
        own_words: Function of a message and the field of the chat request that it is about, which returns it in the
            words of the client's request; None before there is one.
    """
    error = _error_in(document_of(body))
    message, param = _message(error, f"The request failed with status {status}."), error.get("param")
    if own_words is not None and isinstance(param, str) and param:
        message = own_words(message, param)
    found: dict[str, Any] = {"type": "error", "error": {"type": error_type(status), "message": message}}
    if request_id is not None:
        found["request_id"] = request_id
    return msgspec.json.encode(found)


def refusal_at(target: bytes, error: GatewayError, request_id: str) -> bytes | None:
    """Return a refusal in the envelope of this API; None for a request to a target of another one."""
    path = target.partition(b"?")[0]
    if path != _ROOT and not path.startswith(_ROOT + b"/"):
        return None
    return envelope(error.status, error_body(error), request_id)


def error_event_of(error: Any) -> bytes:
    """Return the event of an error inside a stream, whose `error` member is given."""
    stated = error if isinstance(error, dict) else {"message": error}
    kind, code = stated.get("type"), stated.get("code")
    if isinstance(code, str) and code in _STATUS_OF_CODE:
        kind = error_type(_STATUS_OF_CODE[code])
    elif not isinstance(kind, str) or kind not in _OWN_TYPES:
        kind = "api_error"
    document = {"type": "error", "error": {"type": kind, "message": _message(stated, "The answer broke off.")}}
    return b"event: error\ndata: %b\n\n" % encoded(document)


def _error_in(document: Any) -> dict[str, Any]:
    error = document.get("error") if isinstance(document, dict) else None
    return error if isinstance(error, dict) else {}


def _message(error: dict[str, Any], otherwise: str) -> str:
    message = error.get("message")
    if not isinstance(message, str) or not message:
        return otherwise
    if error.get("code") == _TOO_LONG and "prompt is too long" not in message:
        return f"prompt is too long: {message}"  # coding agents compact their history when they read these words
    return message
