"""The one seam where an upstream's failures and answers become the gateway's own errors."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import msgspec

from gateway.chat.json_members import encoded
from gateway.chat.operation import Operation
from gateway.chat.strict_json import LONG_BYTES
from gateway.completion.answer_json import decode_answer, document_of
from gateway.deployments.health.ejection import FailureKind
from gateway.errors import GatewayError, Shed, ShedReason, UpstreamFailed, UpstreamTimedOut
from gateway.telemetry.logs.redaction import REDACTED
from gateway.upstreams.http1.errors import (
    CodingError,
    ConnectError,
    ConnectTimeout,
    FirstByteTimeout,
    InterChunkTimeout,
    PoolFull,
    ResponseClosed,
    Stalled,
    TotalTimeout,
    UpstreamBodyTooLarge,
    UpstreamError,
    UpstreamTimeout,
)
from gateway.upstreams.retry_after import retry_after_s

Headers = Sequence[tuple[bytes, bytes]]

SCHEMA_IGNORED: Final = b"x-penstock-schema-ignored"
"""Header that names the keywords of a schema, not strict, that an engine's answer need not follow."""
PASSED_BACK: Final = frozenset({b"retry-after", b"retry-after-ms", b"x-should-retry", SCHEMA_IGNORED})
"""Headers of an upstream that a client may see."""

OK: Final = 200
OVERLOADED: Final = frozenset({503, 529})
TOO_MANY_REQUESTS: Final = 429
_CREDENTIALS: Final = frozenset({401, 403, 407})
NOT_FOUND: Final = frozenset({404, 405})
"""Statuses of a wrong path or model name. The policy states both, so the operator is to change them."""
RETRYABLE: Final = frozenset({500, 502, 503, 529, TOO_MANY_REQUESTS}) | _CREDENTIALS | NOT_FOUND
"""Statuses without an answer where another deployment may do better. Not 504: the time is spent."""
_SHED_REASON: Final = b"x-penstock-shed-reason"
_DEFAULT_RETRY_AFTER_S: Final = 1.0
_KEYS: Final = frozenset({"message", "type", "param", "code"})
_MAX_MESSAGE_CHARS: Final = 1000
_CODE: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_MESSAGE_KEYS: Final = ("message", "error", "detail", "errors", "msg", "Message", "fault", "faultstring")
_MAX_DEPTH: Final = 4
_LEAST_SECRET_BYTES: Final = 12
"""Shorter keys, such as `EMPTY`, are none, and may be words of the refusal."""
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"


class RetryElsewhere(Exception):
    """A failure of this deployment before any answer; `error` is the error for the client if no other one serves."""

    def __init__(self, error: GatewayError) -> None:
        super().__init__(error.message)
        self.error = error


def from_transport(error: UpstreamError, deployment: str) -> GatewayError:
    """Return the 502 or 504 for a failure on the wire; the message names the deployment, never its address."""
    if isinstance(error, UpstreamTimeout):
        return UpstreamTimedOut(f"Deployment '{deployment}' {_late(error)}. Try again, or request a shorter answer.")
    if isinstance(error, ConnectError | PoolFull):
        return UpstreamFailed(f"Deployment '{deployment}' cannot be reached. Try again later.")
    if isinstance(error, CodingError):
        return UpstreamFailed(
            f"Deployment '{deployment}' compressed its answer in a way that cannot be read. Inform the operator."
        )
    return UpstreamFailed(f"Deployment '{deployment}' failed before its answer was whole. Try again.")


def from_status(status: int, headers: Headers, deployment: str, lane: str) -> GatewayError | None:
    """Return the gateway's error for an upstream's status; None when the upstream's own answer is passed on."""
    if status in OVERLOADED:
        return overloaded(headers, deployment, lane)
    if status == 504:
        return UpstreamTimedOut(f"Deployment '{deployment}' timed out. Try again, or request a shorter answer.")
    if status in _CREDENTIALS:
        return UpstreamFailed(f"Deployment '{deployment}' refused the gateway's credentials. Inform the operator.")
    if status in NOT_FOUND:
        return UpstreamFailed(f"Deployment '{deployment}' has no such model or path. Inform the operator.")
    if not 400 <= status < 500:
        return UpstreamFailed(f"Deployment '{deployment}' answered with status {status}. Try again.")
    return None


def no_answer(deployment: str, operation: Operation) -> UpstreamFailed:
    """Return the gateway's error for a 200 without the requested kind of answer."""
    return UpstreamFailed(
        f"Deployment '{deployment}' answered with something that is no {operation.answer}. Try again."
    )


def enveloped(body: bytes, status: int, deployment: str) -> bytes:
    """Return a client error of the upstream in the gateway's envelope; one that has all four keys stays unchanged."""
    document, is_strict = _object(body)
    error = document.get("error")
    if is_strict and isinstance(error, dict) and error.keys() >= _KEYS and isinstance(error["message"], str):
        return body
    # Some servers leave keys out, some have them one level higher, and some send the error as a string.
    stated = error if isinstance(error, dict) and error else document
    message = _message_in(stated) or f"Deployment '{deployment}' refused the request with status {status}."
    kind, usual = stated.get("type"), "rate_limit_error" if status == TOO_MANY_REQUESTS else "invalid_request_error"
    return encoded(
        {
            "error": {
                "message": message[:_MAX_MESSAGE_CHARS],
                "type": kind if isinstance(kind, str) else usual,
                "param": stated.get("param"),
                "code": stated.get("code"),
            }
        }
    )


class StatedRefusal(NamedTuple):
    """An upstream's refusal of a request, in its own words."""

    code: str | None
    text: str


def refusal_in(envelope: bytes, status: int) -> StatedRefusal:
    """Return the code and the text of a refusal, for the record; the envelope must hold no credential."""
    stated = _object(envelope)[0].get("error")
    error = stated if isinstance(stated, dict) else {}
    codes = (error.get(key) for key in ("code", "type"))
    code = next((code for code in codes if isinstance(code, str) and _CODE.fullmatch(code)), None)
    message = error.get("message")
    text = message[:_MAX_MESSAGE_CHARS] if isinstance(message, str) else ""
    return StatedRefusal(code, f"upstream status {status}: {text}")


def without_secrets(body: bytes, secrets: Sequence[bytes]) -> bytes:
    """Return a refusal without the gateway's own credentials, which some servers repeat with the request."""
    for secret in secrets:
        if len(secret) >= _LEAST_SECRET_BYTES and secret in body:
            body = body.replace(secret, REDACTED.encode())
    return body


def _object(body: bytes) -> tuple[dict[str, Any], bool]:
    """Return the object of a refusal, and whether the body is only that and strict JSON.

    Some servers put it into a list, begin it with a mark, or write NaN. A long one is not read: it explains nothing.
    """
    if len(body) > LONG_BYTES:
        return {}, False
    try:
        document, is_strict = decode_answer(body), True
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        document, is_strict = document_of(body.removeprefix(_BYTE_ORDER_MARK)), False
    if isinstance(document, list) and len(document) == 1:
        document, is_strict = document[0], False
    return (document, is_strict) if isinstance(document, dict) else ({}, False)


def _message_in(stated: Any, depth: int = 0) -> str | None:
    """Return the text of a refusal, wherever servers and web frameworks put it."""
    if isinstance(stated, str):
        return stated or None
    if isinstance(stated, list):
        stated = stated[0] if stated else None
    if not isinstance(stated, dict) or depth > _MAX_DEPTH:
        return _message_in(stated, depth) if isinstance(stated, str) else None
    values = (stated.get(key) for key in _MESSAGE_KEYS)
    return next((found for value in values if (found := _message_in(value, depth + 1)) is not None), None)


def is_retryable(error: UpstreamError) -> bool:
    """Return whether another deployment may take the request, given that no part of an answer reached the client.

    It may not when the total time is spent, when the answer exceeds every limit, or when the gateway itself gave up.
    """
    if isinstance(error, Stalled):
        return True
    return not isinstance(error, TotalTimeout | UpstreamBodyTooLarge | ResponseClosed)


def failure_of(error: UpstreamError) -> FailureKind | None:
    """Return the kind of failure that an error means for the deployment's health; None if it means nothing."""
    if isinstance(error, ConnectError | ConnectTimeout):
        return FailureKind.CONNECT
    if isinstance(error, TotalTimeout | PoolFull | UpstreamBodyTooLarge | ResponseClosed):
        return None  # a long answer, our own bounds, our own doing
    return FailureKind.TIMEOUT if isinstance(error, UpstreamTimeout) else FailureKind.BROKEN


def failure_of_status(status: int, headers: Headers) -> FailureKind | None:
    """Return the kind of failure that a status means for the deployment's health.

    None if it means nothing, such as a refusal for load that is marked as one.
    """
    is_own_refusal = status in OVERLOADED and any(name == _SHED_REASON for name, _ in headers)
    is_fault = not 400 <= status < 500 or status in _CREDENTIALS | NOT_FOUND
    return FailureKind.STATUS if is_fault and not is_own_refusal else None


def _late(error: UpstreamTimeout) -> str:
    if isinstance(error, ConnectTimeout):
        return "could not be reached in time"
    if isinstance(error, FirstByteTimeout):
        return "did not begin to answer in time"
    if isinstance(error, InterChunkTimeout):
        return "stopped in the middle of its answer"
    return "did not finish its answer in time"


def overloaded(headers: Headers, deployment: str, lane: str) -> Shed:
    """Return the gateway's refusal for a deployment that refused for load, with that deployment's `retry-after`."""
    wait_s = retry_after_s(headers) or _DEFAULT_RETRY_AFTER_S
    return Shed(
        ShedReason.OVERLOAD,
        lane=lane,
        message=f"Deployment '{deployment}' has no capacity left. Try again after the time in Retry-After.",
        hint="The same request at a later time.",
        retry_after_s=wait_s,
        predicted_wait_s=wait_s,
    )
