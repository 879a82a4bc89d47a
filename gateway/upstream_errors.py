"""The one seam where an upstream's failures and answers become the gateway's own errors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gateway.errors import GatewayError, Shed, ShedReason, UpstreamFailed, UpstreamTimedOut
from gateway.upstreams.errors import (
    ConnectError,
    ConnectTimeout,
    FirstByteTimeout,
    InterChunkTimeout,
    PoolFull,
    UpstreamError,
    UpstreamTimeout,
)

Headers = Sequence[tuple[bytes, bytes]]

PASSED_BACK: Final = frozenset({b"retry-after", b"retry-after-ms", b"x-should-retry"})
"""What a client may see of an upstream's error headers."""

OVERLOADED: Final = frozenset({503, 529})
RETRYABLE: Final = frozenset({500, 502, 503, 529})
_CREDENTIALS: Final = frozenset({401, 403, 407})
_DEFAULT_RETRY_AFTER_S: Final = 1.0


def from_transport(error: UpstreamError, deployment: str) -> GatewayError:
    """502 or 504 for a failure on the wire; the message names the deployment, never its address."""
    if isinstance(error, UpstreamTimeout):
        return UpstreamTimedOut(f"Deployment '{deployment}' {_late(error)}. Try again, or ask for a shorter answer.")
    if isinstance(error, ConnectError | PoolFull):
        return UpstreamFailed(f"Deployment '{deployment}' cannot be reached. Try again later.")
    return UpstreamFailed(f"Deployment '{deployment}' failed before its answer was whole. Try again.")


def from_status(status: int, headers: Headers, deployment: str, lane: str) -> GatewayError | None:
    """The gateway's error for an upstream's status; None when the upstream's own answer is passed on."""
    if status in OVERLOADED:
        return _overloaded(headers, deployment, lane)
    if status == 504:
        return UpstreamTimedOut(f"Deployment '{deployment}' timed out. Try again, or ask for a shorter answer.")
    if status in _CREDENTIALS:
        return UpstreamFailed(f"Deployment '{deployment}' refused the gateway's credentials. Tell the operator.")
    if status >= 500 or status < 200 or 300 <= status < 400:
        return UpstreamFailed(f"Deployment '{deployment}' answered with status {status}. Try again.")
    return None


def is_retryable(error: UpstreamError) -> bool:
    """Whether the same request may go to another deployment: nothing of it can have been worked on."""
    return not error.request_sent


def _late(error: UpstreamTimeout) -> str:
    if isinstance(error, ConnectTimeout):
        return "could not be reached in time"
    if isinstance(error, FirstByteTimeout):
        return "did not begin to answer in time"
    if isinstance(error, InterChunkTimeout):
        return "stopped in the middle of its answer"
    return "did not finish its answer in time"


def _overloaded(headers: Headers, deployment: str, lane: str) -> Shed:
    wait_s = _DEFAULT_RETRY_AFTER_S
    for name, value in headers:
        if name == b"retry-after" and value.isdigit() and len(value) <= 6:
            wait_s = float(value)
    return Shed(
        ShedReason.OVERLOAD,
        lane=lane,
        message=f"Deployment '{deployment}' has no capacity left. Try again after the time in Retry-After.",
        hint="The same request at a later time.",
        retry_after_s=wait_s,
        predicted_wait_s=wait_s,
    )
