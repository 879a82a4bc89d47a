"""ChatHead: what the headers of a chat request mean to the gateway, read in one pass."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final, Literal

MAX_CLIENT_ID_CHARS: Final = 128
MAX_TRACE_BYTES: Final = 512
MAX_CLIENT_TIMEOUT_S: Final = 86_400.0
"""Who would wait for longer than a day has no deadline."""
MAX_TARGET_MS: Final = 3_600_000.0
"""A latency target beyond an hour is none."""

_SECONDS: Final = re.compile(rb"[0-9]{1,9}(?:\.[0-9]{1,17})?")

TargetKind = Literal["ttft", "tpot"]

_TARGETS: Final[dict[TargetKind, tuple[bytes, bytes]]] = {
    "ttft": (b"x-slo-ttft-ms", b"x-llm-d-slo-ttft-ms"),
    "tpot": (b"x-slo-tpot-ms", b"x-llm-d-slo-tpot-ms"),
}
"""Our own name first."""

_TARGET_NAMES: Final = frozenset(name for names in _TARGETS.values() for name in names)

_PASSED_ON: Final = frozenset((b"traceparent", b"tracestate", b"x-penstock-timing"))

_WANTED: Final = frozenset(
    (
        *(b"authorization", b"content-type", b"content-encoding", b"content-length"),
        *(b"x-stainless-read-timeout", b"x-stainless-timeout"),
        *(b"x-stainless-retry-count", b"x-penstock-priority", b"x-penstock-timing", b"x-client-request-id"),
        *(b"x-slo-ttft-ms", b"x-slo-tpot-ms", b"x-llm-d-slo-ttft-ms", b"x-llm-d-slo-tpot-ms"),
        *(b"traceparent", b"tracestate", b"cache-control"),
    )
)

_LISTS: Final = frozenset((b"cache-control", b"content-encoding", b"tracestate"))
"""What may stand in several headers means what it would in one."""


class ChatHead:
    """The headers that matter; malformed values count as absent, except where a row of the contract says otherwise."""

    __slots__ = (
        *("_headers", "_values", "authorization", "cache_control", "content_encoding", "content_type"),
        *("has_targets", "ignored", "is_retry"),
    )

    def __init__(self, headers: Iterable[tuple[bytes, bytes]]) -> None:
        self._headers = headers
        self._values: dict[bytes, bytes] = {}
        self.authorization: list[bytes] = []
        """Every Authorization value; more than one is refused later."""
        self.ignored: tuple[str, ...] = ()
        """Names of headers whose value means nothing, as far as they were asked for."""
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
        """As sent, like the next two."""
        self.content_encoding = values.get(b"content-encoding")
        self.cache_control = values.get(b"cache-control")
        """What the client wants of the cache."""
        count = values.get(b"x-stainless-retry-count")
        self.is_retry = count is not None and count.isdigit() and count.strip(b"0") != b""
        """The client says that it asked before."""
        self.has_targets = not _TARGET_NAMES.isdisjoint(values)
        """It gives latency targets of its own, sensible or not."""

    @property
    def content_length(self) -> int:
        """The body's length as declared; 0 where it is not, as for a chunked body."""
        length = self._values.get(b"content-length", b"")
        return int(length) if length.isdigit() else 0

    @property
    def client_timeout_s(self) -> float | None:
        """How long the client itself will wait for the next byte; None when it did not say."""
        values = self._values
        if b"x-stainless-read-timeout" not in values and b"x-stainless-timeout" not in values:
            return None
        return _seconds(values.get(b"x-stainless-read-timeout")) or _seconds(values.get(b"x-stainless-timeout"))

    def slo_s(self, kind: TargetKind) -> float | None:
        """The client's own latency target in seconds, None when it gave none or one that is no number worth having."""
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
        """The lane asked for; the caller's entitlement clamps it."""
        value = self._values.get(b"x-penstock-priority")
        return None if value is None else value.decode("ascii", "replace").strip().lower()

    @property
    def wants_timing(self) -> bool:
        """Whether the answer itself is to carry every stage's time."""
        value = self._values.get(b"x-penstock-timing")
        return value is not None and value.strip().lower() == b"full"

    @property
    def client_request_id(self) -> str | None:
        """The caller's own label, shortened; for the log only, never a key and never sent back."""
        value = self._values.get(b"x-client-request-id")
        return None if value is None else value.decode("ascii", "replace")[:MAX_CLIENT_ID_CHARS]

    @property
    def traceparent(self) -> bytes | None:
        """The trace that the caller is part of, as sent."""
        return self._values.get(b"traceparent")

    def continue_trace(self, traceparent: bytes) -> None:
        """Upstreams are told this parent in place of the caller's; its `tracestate` goes on as it is."""
        self._values[b"traceparent"] = traceparent

    def passed_on(self) -> list[tuple[bytes, bytes]]:
        """The client's headers that the upstream may see; all others stay here."""
        values = self._values
        if _PASSED_ON.isdisjoint(values):
            return []
        return [
            (name, values[name])
            for name in (b"traceparent", b"tracestate", b"x-penstock-timing")
            if name in values and len(values[name]) <= MAX_TRACE_BYTES
        ]

    def all(self) -> dict[str, str]:
        """Every header by name, for routes that match on them; of repeated ones the last."""
        return {name.decode("latin-1"): value.decode("latin-1") for name, value in self._headers}


@lru_cache(maxsize=256)  # nearly all clients send their library's default
def _seconds(value: bytes | None) -> float | None:
    """A positive number of seconds that is worth acting on, else None."""
    if value is None or _SECONDS.fullmatch(value) is None:
        return None
    seconds = float(value)
    return seconds if 0 < seconds <= MAX_CLIENT_TIMEOUT_S else None


def _target_s(milliseconds: bytes) -> float | None:
    """A latency target in seconds; None for text, for nothing, for a negative number and for more than an hour."""
    if _SECONDS.fullmatch(milliseconds) is None:
        return None
    value = float(milliseconds)
    return value / 1000 if 0 < value <= MAX_TARGET_MS else None
