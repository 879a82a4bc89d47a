"""Options of a request from its headers."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from engine.frontend.request.asgi import Headers
from engine.frontend.request.errors import invalid_value, overloaded_error
from engine.frontend.request.requests import SamplingFields
from engine.protocol import Lane

LONG_PROMPT_TOKENS = 1024
"""Longest prompt of the lane `interactive`, in tokens; a longer one goes to the lane `long`."""
MAX_DEADLINE_MS = 86_400_000.0
MAX_SALT_CHARS = 256
MODEL_STATE = "x-penstock-model-state"
"""Header with which a gateway requests, and the answer states, what the model was."""

STOP_REASON = "x-penstock-stop-reason"
"""Header with which a gateway requests `stop_reason` in each choice: the stop string that ended it, or null."""

_REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")
_NUMBER = re.compile(r"-?[0-9]{1,15}(\.[0-9]{1,9})?")


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestOptions:
    """Options of one request."""

    priority: Literal["interactive", "batch"]
    deadline_s: float | None
    cache_salt: bytes
    wants_timing: bool
    traceparent: str | None = None
    """The caller's `traceparent` header, unchanged (W3C Trace Context)."""
    wants_state: bool = False
    """True if the answer's headers state the model, so that a gateway can record what gave the answer."""
    wants_stop_reason: bool = False
    """True if each choice tells which stop string ended it."""

    def lane(self, num_prompt_tokens: int) -> Lane:
        """Return the lane for a prompt length."""
        if self.priority == "interactive" and num_prompt_tokens > LONG_PROMPT_TOKENS:
            return "long"
        return self.priority


def read_options(headers: Headers, request: SamplingFields) -> RequestOptions:
    """Read the options from the headers and `service_tier`.

    Raises:
        ApiError: A value is wrong (400), or the deadline has passed (503).
    """
    return RequestOptions(
        priority=_priority(headers, request),
        deadline_s=_deadline_s(headers),
        cache_salt=_cache_salt(headers),
        wants_timing=(headers.get("x-penstock-timing") or "").strip().lower() == "full",
        traceparent=headers.get("traceparent"),
        wants_state=headers.get(MODEL_STATE) is not None,
        wants_stop_reason=headers.get(STOP_REASON) is not None,
    )


def choose_request_id(headers: Headers, made: str) -> str:
    """Return the caller's `x-request-id` if it is safe to echo, otherwise `made`."""
    given = headers.get("x-request-id")
    return given if given is not None and _REQUEST_ID.fullmatch(given) else made


def _priority(headers: Headers, request: SamplingFields) -> Literal["interactive", "batch"]:
    given = headers.get("x-penstock-priority")
    if given is None:
        return "batch" if request.service_tier == "flex" else "interactive"
    if given == "interactive":
        return "interactive"
    if given == "batch":
        return "batch"
    raise invalid_value("x-penstock-priority", "`x-penstock-priority` must be interactive or batch.")


def _deadline_s(headers: Headers) -> float | None:
    given = headers.get("x-penstock-deadline-ms")
    if given is None:
        return None
    if not _NUMBER.fullmatch(given) or float(given) > MAX_DEADLINE_MS:
        raise invalid_value(
            "x-penstock-deadline-ms", f"`x-penstock-deadline-ms` must be milliseconds up to {MAX_DEADLINE_MS:.0f}."
        )
    if float(given) <= 0:
        raise overloaded_error("The deadline has already passed.", reason="deadline", retry_after_s=None)
    return float(given) / 1000


def _cache_salt(headers: Headers) -> bytes:
    """Return the salt that separates cached prefixes.

    The body's `prompt_cache_key` is not part of it. It is a routing hint, and requests with different keys may share
    a common prefix.
    """
    given = headers.get("x-penstock-cache-salt") or ""
    if len(given) > MAX_SALT_CHARS:
        raise invalid_value(
            "x-penstock-cache-salt", f"`x-penstock-cache-salt` must have at most {MAX_SALT_CHARS} characters."
        )
    return given.encode("latin-1")
