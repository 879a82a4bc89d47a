"""ChatHead: a chat request's headers as the gateway reads them, in one pass."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final, Literal

MAX_CLIENT_ID_CHARS: Final = 128
MAX_TRACE_BYTES: Final = 512
MAX_CLIENT_TIMEOUT_S: Final = 86_400.0
"""Longest client timeout that counts; a longer one means no deadline."""
MAX_TARGET_MS: Final = 3_600_000.0
"""Largest latency target that counts, in milliseconds; a larger one means no target."""

_SECONDS: Final = re.compile(rb"[0-9]{1,9}(?:\.[0-9]{1,17})?")

TargetKind = Literal["ttft", "tpot"]

_TARGETS: Final[dict[TargetKind, tuple[bytes, bytes]]] = {
    "ttft": (b"x-slo-ttft-ms", b"x-llm-d-slo-ttft-ms"),
    "tpot": (b"x-slo-tpot-ms", b"x-llm-d-slo-tpot-ms"),
}
"""Header names of each latency target, the gateway's own first."""

_TARGET_NAMES: Final = frozenset(name for names in _TARGETS.values() for name in names)

_PASSED_ON: Final = frozenset((b"traceparent", b"tracestate", b"x-penstock-timing"))

_WANTED: Final = frozenset(
    (
        *(b"authorization", b"content-type", b"content-encoding", b"content-length"),
        *(b"x-stainless-read-timeout", b"x-stainless-timeout"),
        *(b"x-stainless-retry-count", b"x-penstock-priority", b"x-penstock-timing", b"x-client-request-id"),
        *(b"x-slo-ttft-ms", b"x-slo-tpot-ms", b"x-llm-d-slo-ttft-ms", b"x-llm-d-slo-tpot-ms"),
        *(b"traceparent", b"tracestate", b"cache-control", b"x-penstock-trim", b"x-penstock-quote"),
    )
)

_LISTS: Final = frozenset((b"cache-control", b"content-encoding", b"tracestate"))
"""Headers that may repeat; their values are joined by commas (RFC 9110, section 5.3)."""


class ChatHead:
    """The headers that the gateway reads.

    A malformed optional value counts as absent.
    """

    __slots__ = (
        *("_headers", "_values", "authorization", "cache_control", "content_encoding", "content_type"),
        *("has_targets", "ignored", "is_retry"),
    )

    def __init__(self, headers: Iterable[tuple[bytes, bytes]]) -> None:
        self._headers = headers
        self._values: dict[bytes, bytes] = {}
        self.authorization: list[bytes] = []
        """Values of all Authorization headers; more than one is rejected later."""
        self.ignored: tuple[str, ...] = ()
        """Names of headers that were read and had a value without meaning."""
        values = self._values
        for name, value in headers:
            if name in _WANTED:
                if name == b"authorization":
                    self.authorization.append(value)
                elif name in _LISTS and name in values:
                    values[name] += b"," + value
                else:
                    values[name] = value
        self.content_type = values.get(b"content-type")
        """Value as sent; None when absent."""
        self.content_encoding = values.get(b"content-encoding")
        self.cache_control = values.get(b"cache-control")
        """Client's cache directives, as sent."""
        count = values.get(b"x-stainless-retry-count")
        self.is_retry = count is not None and count.isdigit() and count.strip(b"0") != b""
        """True if the client marks the request as a retry."""
        self.has_targets = not _TARGET_NAMES.isdisjoint(values)
        """True if the client sends latency targets of its own, valid or not."""

    @property
    def content_length(self) -> int:
        """Declared length of the body in bytes; 0 without one, as for a chunked body."""
        length = self._values.get(b"content-length", b"")
        return int(length) if length.isdigit() else 0

    @property
    def client_timeout_s(self) -> float | None:
        """Seconds that the client waits for the next byte; None when it declares none."""
        values = self._values
        if b"x-stainless-read-timeout" not in values and b"x-stainless-timeout" not in values:
            return None
        return _seconds(values.get(b"x-stainless-read-timeout")) or _seconds(values.get(b"x-stainless-timeout"))

    def slo_s(self, kind: TargetKind) -> float | None:
        """Return the client's latency target in seconds, or None when it gave none or an invalid one."""
        values = self._values
        for name in _TARGETS[kind]:
            if name in values:
                target_s = _target_s(values[name])
                if target_s is None:
                    self.ignored = (*self.ignored, f"x-slo-{kind}-ms")
                return target_s
        return None

    @property
    def lane(self) -> str | None:
        """Lane that the client requests; the key's entitlement clamps it."""
        value = self._values.get(b"x-penstock-priority")
        return None if value is None else value.decode("ascii", "replace").strip().lower()

    def turns_off_trimming(self, *, is_allowed: bool) -> bool:
        """Return whether the client wants its prompt whole, as `x-penstock-trim: off` says where that is allowed."""
        value = self._values.get(b"x-penstock-trim")
        if value is None:
            return False
        if is_allowed and value.strip().lower() == b"off":
            return True
        self.ignored = (*self.ignored, "x-penstock-trim")
        return False

    @property
    def quote(self) -> bytes | None:
        """Quote that the request sends back, as sent; None without one."""
        return self._values.get(b"x-penstock-quote")

    @property
    def wants_timing(self) -> bool:
        """True if the response is to carry the time of every stage."""
        value = self._values.get(b"x-penstock-timing")
        return value is not None and value.strip().lower() == b"full"

    @property
    def client_request_id(self) -> str | None:
        """Client's own label, shortened; used in the log only, never as a key and never sent back."""
        value = self._values.get(b"x-client-request-id")
        return None if value is None else value.decode("ascii", "replace")[:MAX_CLIENT_ID_CHARS]

    @property
    def traceparent(self) -> bytes | None:
        """Trace that the client's request belongs to, as sent (W3C Trace Context)."""
        return self._values.get(b"traceparent")

    def continue_trace(self, traceparent: bytes) -> None:
        """Replace the `traceparent` sent to upstreams; the client's `tracestate` stays."""
        self._values[b"traceparent"] = traceparent

    def passed_on(self) -> list[tuple[bytes, bytes]]:
        """Return the client's headers that are sent upstream; all others stop here."""
        values = self._values
        if _PASSED_ON.isdisjoint(values):
            return []
        return [
            (name, values[name])
            for name in (b"traceparent", b"tracestate", b"x-penstock-timing")
            if name in values and len(values[name]) <= MAX_TRACE_BYTES
        ]

    def named(self, names: frozenset[bytes]) -> dict[bytes, bytes]:
        """Return those headers that are among `names`, which the policy chooses; of repeated ones the last."""
        return {name: value for name, value in self._headers if name in names}

    def all(self) -> dict[str, str]:
        """Return every header by name, for routes that match on headers; of repeated ones the last."""
        return {name.decode("latin-1"): value.decode("latin-1") for name, value in self._headers}


@lru_cache(maxsize=256)  # nearly all clients send their library's default
def _seconds(value: bytes | None) -> float | None:
    """Return a positive number of seconds up to MAX_CLIENT_TIMEOUT_S, else None."""
    if value is None or _SECONDS.fullmatch(value) is None:
        return None
    seconds = float(value)
    return seconds if 0 < seconds <= MAX_CLIENT_TIMEOUT_S else None


def _target_s(milliseconds: bytes) -> float | None:
    """Return a latency target in seconds; None for text, zero, negative numbers and more than an hour."""
    if _SECONDS.fullmatch(milliseconds) is None:
        return None
    value = float(milliseconds)
    return value / 1000 if 0 < value <= MAX_TARGET_MS else None
