"""Errors of the front in the one envelope of the API."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

import msgspec

from engine.frontend.fields.faults import FieldRefusal
from engine.protocol import Lane

ErrorType = Literal["invalid_request_error", "service_unavailable_error", "api_error"]


ShedReason = Literal["queue_full", "overload", "deadline", "draining"]
_HINTS: Mapping[ShedReason, str] = MappingProxyType(
    {
        "queue_full": "Try again after retry-after, or at another engine.",
        "overload": "Try again after retry-after, or in the batch lane, which may wait longer.",
        "deadline": "A later deadline, a shorter prompt or another engine.",
        "draining": "Another engine; this one will not come back soon.",
    }
)


class ShedAdvice(msgspec.Struct, frozen=True, kw_only=True):
    """Reason for shedding a request, and what would have been admitted, for clients that show it."""

    reason: ShedReason
    lane: Lane
    queue_depth: int
    """Number of waiting sequences."""
    predicted_wait_ms: int
    hint: str


class ApiError(Exception):
    """Failure that a client sees: HTTP status, the four keys of the envelope, and headers."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        type: ErrorType = "invalid_request_error",
        param: str | None = None,
        code: str,
        headers: Mapping[str, str] | None = None,
        degraded: ShedAdvice | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.type = type
        self.param = param
        self.code = code
        self.headers = dict(headers or {})
        self.degraded = degraded

    def body(self) -> bytes:
        """Return the envelope as JSON."""
        error = {"message": self.message, "type": self.type, "param": self.param, "code": self.code}
        shed = {} if self.degraded is None else {"degraded": self.degraded}
        return msgspec.json.encode({"error": {**error, **shed}})

    def event(self) -> bytes:
        """Return the envelope as one server-sent event, for failures after the first byte."""
        return b"data: " + self.body() + b"\n\n"


def invalid_json(message: str) -> ApiError:
    """Return a 400 error for a body that is not acceptable JSON."""
    return ApiError(400, message, code="invalid_json")


def invalid_value(param: str | None, message: str) -> ApiError:
    """Return a 400 error for a field with a wrong type or value."""
    return ApiError(400, message, param=param, code="invalid_value")


def wrong_request(refusal: FieldRefusal) -> ApiError:
    """Return a 400 error for a field that breaks its rule."""
    return invalid_value(refusal.param, refusal.message)


def unsupported(refusal: FieldRefusal) -> ApiError:
    """Return a 400 error for a field whose feature this engine does not have."""
    return ApiError(400, refusal.message, param=refusal.param, code="unsupported_parameter")


def context_length_exceeded(
    num_prompt: int, max_model_len: int, max_tokens: int | None, param: str, *, is_at_least: bool = False
) -> ApiError:
    """Return a 400 error for a prompt, or a prompt with its requested output, that exceeds the context length.

    Args:
        num_prompt: Tokens of the prompt.
        max_model_len: Limit in tokens.
        max_tokens: Requested output tokens; None if the client set no limit.
        param: Field at fault.
        is_at_least: True if `num_prompt` is a lower bound.
    """
    if max_tokens is None:
        message = (
            f"This model's maximum context length is {max_model_len} tokens, but the prompt has "
            f"{'at least ' if is_at_least else ''}{num_prompt} tokens, and the answer needs one more. "
            "Shorten the prompt."
        )
    else:
        message = (
            f"This model's maximum context length is {max_model_len} tokens, but {num_prompt + max_tokens} were asked "
            f"for ({num_prompt} in the prompt, {max_tokens} for the answer). Shorten the prompt or lower max_tokens."
        )
    return ApiError(400, message, param=param, code="context_length_exceeded")


def overloaded_error(
    message: str,
    *,
    reason: ShedReason,
    retry_after_s: int | None = 1,
    lane: Lane = "interactive",
    queue_depth: int = 0,
    predicted_wait_s: float = 0.0,
) -> ApiError:
    """Return a 503 error for a shed request.

    Args:
        message: Text for the client.
        reason: Reason for the shedding; also sent as a header.
        retry_after_s: Value of `retry-after`; None if a retry cannot help.
        lane: Lane of the request.
        queue_depth: Waiting sequences; 0 if not known.
        predicted_wait_s: Forecast wait in seconds; 0 if not known.
    """
    degraded = ShedAdvice(
        reason=reason,
        lane=lane,
        queue_depth=queue_depth,
        predicted_wait_ms=round(1000 * predicted_wait_s),
        hint=_HINTS[reason],
    )
    headers: dict[str, str] = {"x-penstock-shed-reason": reason}
    if retry_after_s is None:
        headers["x-should-retry"] = "false"
    else:
        headers["retry-after"] = str(retry_after_s)
    return ApiError(
        503,
        message,
        type="service_unavailable_error",
        code="server_is_overloaded",
        headers=headers,
        degraded=degraded,
    )


def core_failed(message: str) -> ApiError:
    """Return a 502 error for a core that ended or failed before the request was complete."""
    return ApiError(502, message, type="api_error", code="upstream_error")


def resume_mismatch() -> ApiError:
    """Return a 409 error for a stream whose further tokens would not be those of the engine that began it."""
    message = "This engine's model or prompt is not that of the engine that began the stream."
    return ApiError(409, message, code="resume_mismatch")


def internal_error(request_id: str) -> ApiError:
    """Return a 500 error that contains the request id and no details."""
    return ApiError(500, f"Internal error; request id {request_id}.", type="api_error", code="internal_error")
