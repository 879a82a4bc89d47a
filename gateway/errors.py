"""The gateway's error tree and the one envelope in which every error leaves it.

GatewayError
├── RejectedRequest            the request itself is wrong (4xx)
│   ├── InvalidRequest         400, names the field
│   ├── InvalidApiKey          401
│   ├── ModelNotAllowed        403
│   ├── NotFound               404 (unknown model or route)
│   ├── MethodNotAllowed       405, with Allow
│   ├── RequestTooLarge        413
│   └── UnsupportedMediaType   415
├── Shed                       503, refused for load; carries the time of a retry
│   └── UpstreamsRest          429, every deployment that could answer refuses load for a while
├── QuotaExceeded              429, the tenant's own limits
│   ├── RateLimited            with the time of a retry
│   └── BudgetSpent            retrying cannot help before the period is over
├── UpstreamFailed             502
├── UpstreamTimedOut           504
└── InternalError              500, carries nothing but the request id
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import StrEnum
from typing import Any, Literal

import msgspec

Header = tuple[bytes, bytes]

MIN_RETRY_AFTER_S = 1.0
MAX_RETRY_AFTER_S = 60.0

ErrorType = Literal[
    "invalid_request_error", "rate_limit_error", "insufficient_quota", "service_unavailable_error", "api_error"
]
"""Every value of `error.type`."""

_JSON_HEADER: Header = (b"content-type", b"application/json")


class ShedReason(StrEnum):
    """Reason for which load was refused; the value of `x-penstock-shed-reason` and a metric label."""

    QUEUE_FULL = "queue_full"
    DEADLINE = "deadline"
    SLO_UNREACHABLE = "slo_unreachable"
    TENANT_SHARE = "tenant_share"
    OVERLOAD = "overload"
    DRAINING = "draining"


RETRY_CANNOT_HELP = frozenset({ShedReason.DEADLINE, ShedReason.SLO_UNREACHABLE})


class Degraded(msgspec.Struct, frozen=True, kw_only=True):
    """Text that a product may show its user when load was refused."""

    reason: ShedReason
    lane: str
    queue_depth: int
    predicted_wait_ms: int
    hint: str


class ErrorDetail(msgspec.Struct, frozen=True, kw_only=True):
    """The inside of the envelope; the first four keys are always present."""

    message: str
    type: ErrorType
    param: str | None
    code: str
    degraded: Degraded | msgspec.UnsetType = msgspec.UNSET


class ErrorEnvelope(msgspec.Struct, frozen=True):
    """`{"error": {...}}`: the body of every error, on every listener."""

    error: ErrorDetail


class GatewayError(Exception):
    """An error that the gateway itself answers with an error envelope."""

    status: int = 500
    type: ErrorType = "api_error"
    code: str = "internal_error"

    def __init__(self, message: str, *, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        if code is not None:
            self.code = code

    def headers(self) -> Sequence[Header]:
        """Return the headers that belong to this error beyond the common ones."""
        return ()

    def detail(self) -> ErrorDetail:
        """Return the error as it stands inside the envelope."""
        return ErrorDetail(**self.common())

    def common(self) -> dict[str, Any]:
        """Return the fields that every envelope has, for the errors that add more."""
        return {"message": self.message, "type": self.type, "param": self.param, "code": self.code}


def retry_after(wait_s: float) -> tuple[Header, Header]:
    """Return the wait as headers: whole seconds as in HTTP, and milliseconds for clients that read those."""
    return (b"retry-after", b"%d" % math.ceil(wait_s)), (b"retry-after-ms", b"%d" % math.ceil(wait_s * 1000))


class RejectedRequest(GatewayError):
    """The request itself is wrong; sending it again unchanged cannot help."""

    status = 400
    type: ErrorType = "invalid_request_error"
    code = "invalid_value"


class InvalidRequest(RejectedRequest):
    """400 with the path of the field.

    `code` is `invalid_json`, `invalid_value`, `unsupported_parameter`, `unsupported_operation` or
    `context_length_exceeded`.
    """


class InvalidApiKey(RejectedRequest):
    """401. The message is equal for an absent, a malformed and an unknown key."""

    status = 401
    code = "invalid_api_key"

    def __init__(self) -> None:
        super().__init__("No valid API key was given. Send 'Authorization: Bearer <key>' with a key of this gateway.")

    def headers(self) -> Sequence[Header]:
        """Return the `www-authenticate` header."""
        return ((b"www-authenticate", b'Bearer realm="penstock"'),)


class ModelNotAllowed(RejectedRequest):
    """403: the key is good, the model is not for it."""

    status = 403
    code = "model_not_allowed"


class NotFound(RejectedRequest):
    """404: unknown route (`not_found`) or unknown model (`model_not_found`)."""

    status = 404
    code = "not_found"


class MethodNotAllowed(RejectedRequest):
    """405 with the methods that would have worked."""

    status = 405
    code = "method_not_allowed"

    def __init__(self, method: str, allow: Sequence[str]) -> None:
        self.allow = ", ".join(allow)
        super().__init__(f"Method {method} is not allowed here. Use {self.allow}.")

    def headers(self) -> Sequence[Header]:
        """Return the `allow` header."""
        return ((b"allow", self.allow.encode("ascii")),)


class RequestTooLarge(RejectedRequest):
    """413: the body is over the configured limit; the connection is closed."""

    status = 413
    code = "request_too_large"


class UnsupportedMediaType(RejectedRequest):
    """415: not JSON, or an encoding the gateway does not undo."""

    status = 415
    code = "unsupported_media_type"


class Shed(GatewayError):
    """503: refused for load, with the forecast time of a retry (`retry_after_s`, clamped to 1..60 s)."""

    status = 503
    type: ErrorType = "service_unavailable_error"
    code = "server_is_overloaded"

    def __init__(
        self,
        reason: ShedReason,
        *,
        lane: str,
        message: str,
        hint: str,
        retry_after_s: float = MIN_RETRY_AFTER_S,
        queue_depth: int = 0,
        predicted_wait_s: float = 0.0,
    ) -> None:
        super().__init__(message)
        self.reason = reason
        self.lane = lane
        self.retry_after_s = min(max(retry_after_s, MIN_RETRY_AFTER_S), MAX_RETRY_AFTER_S)
        self.degraded = Degraded(
            reason=reason,
            lane=lane,
            queue_depth=queue_depth,
            predicted_wait_ms=round(predicted_wait_s * 1000),
            hint=hint,
        )

    def headers(self) -> Sequence[Header]:
        """Return the time of a retry, whether to retry, and the reason."""
        should_retry = b"false" if self.reason in RETRY_CANNOT_HELP else b"true"
        return (
            *retry_after(self.retry_after_s),
            (b"x-should-retry", should_retry),
            (b"x-penstock-shed-reason", self.reason.encode("ascii")),
        )

    def detail(self) -> ErrorDetail:
        """Return the error with the details of the refusal."""
        return ErrorDetail(**self.common(), degraded=self.degraded)


class UpstreamsRest(Shed):
    """429: every deployment that could answer refuses load for a while; `retry_after_s` is the rest of that time."""

    status = 429
    type: ErrorType = "rate_limit_error"
    code = "rate_limit_exceeded"

    def detail(self) -> ErrorDetail:
        """Return the error without details of a refusal for load, because no form of the request would be admitted."""
        return ErrorDetail(**self.common())


class QuotaExceeded(GatewayError):
    """429: one of the tenant's own limits; `limit` names it as the policy does."""

    status = 429

    def __init__(self, limit: str, message: str) -> None:
        super().__init__(message)
        self.limit = limit


class RateLimited(QuotaExceeded):
    """429: too many requests or tokens for now. `wait_s` is when there is room again, None when there never is."""

    type: ErrorType = "rate_limit_error"
    code = "rate_limit_exceeded"

    def __init__(self, limit: str, message: str, *, wait_s: float | None) -> None:
        super().__init__(limit, message)
        self.wait_s = wait_s

    def headers(self) -> Sequence[Header]:
        """Return the time of a retry; without one, a header that forbids retries."""
        if self.wait_s is None:
            return ((b"x-should-retry", b"false"),)
        wait_s = min(max(self.wait_s, MIN_RETRY_AFTER_S), MAX_RETRY_AFTER_S)
        return (*retry_after(wait_s), (b"x-should-retry", b"true"))


class BudgetSpent(QuotaExceeded):
    """429: what the tenant may use in a day or a month is used up."""

    type: ErrorType = "insufficient_quota"
    code = "insufficient_quota"

    def headers(self) -> Sequence[Header]:
        """Return a header that forbids retries."""
        return ((b"x-should-retry", b"false"),)


class UpstreamFailed(GatewayError):
    """502: the deployment refused, broke the protocol or answered with a server error."""

    status = 502
    code = "upstream_error"


class UpstreamTimedOut(GatewayError):
    """504: the deployment did not connect, start or go on in time."""

    status = 504
    code = "upstream_timeout"


class InternalError(GatewayError):
    """500: our own fault. The cause is in the log under the request id, never in the answer."""

    def __init__(self, request_id: str) -> None:
        super().__init__(f"The gateway failed. Report this with the request id {request_id}.")


_encoder = msgspec.json.Encoder()


def error_body(error: GatewayError) -> bytes:
    """Return the envelope as JSON."""
    return _encoder.encode(ErrorEnvelope(error.detail()))


def error_event(error: GatewayError) -> bytes:
    """Return the envelope as the last event of a stream that had already begun."""
    return b"data: " + error_body(error) + b"\n\n"


def error_headers(error: GatewayError) -> list[Header]:
    """Return the headers of an error response, without request id and content-length."""
    return [_JSON_HEADER, (b"x-penstock-error-code", error.code.encode("ascii")), *error.headers()]
