"""TraceContext: W3C Trace Context (level 1), parsed from `traceparent` and continued in it."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

_TRACEPARENT: Final = re.compile(rb"(?!ff)[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(?:-.*)?")
_NO_TRACE: Final = b"0" * 32
_NO_SPAN: Final = b"0" * 16
_SAMPLED: Final = 0x01
_SPAN_MASK: Final = (1 << 64) - 1


class Parent(NamedTuple):
    """Span of the caller, from its `traceparent`."""

    trace_id: str
    span_id: str
    is_sampled: bool


class TraceContext(NamedTuple):
    """Trace of one sampled request; its own spans are numbered from `span`, which is random."""

    trace_id: str
    parent_id: str
    """Span id of the caller; empty when the trace begins here."""
    span: int

    def span_id(self, number: int) -> str:
        """Return the id of the request's own span (0) or of one inside it."""
        return f"{((self.span + number) & _SPAN_MASK) or 1:016x}"

    def traceparent(self, number: int) -> bytes:
        """Return the header that places an upstream's spans below span `number`."""
        return f"00-{self.trace_id}-{self.span_id(number)}-01".encode("ascii")


def parse_traceparent(value: bytes | None) -> Parent | None:
    """Return the caller's span, or None for an absent or malformed header, which the standard requires to ignore."""
    found = None if value is None else _TRACEPARENT.fullmatch(value)
    if found is None or found[1] == _NO_TRACE or found[2] == _NO_SPAN:
        return None
    return Parent(found[1].decode("ascii"), found[2].decode("ascii"), bool(int(found[3], 16) & _SAMPLED))
