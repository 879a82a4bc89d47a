"""Values of HTTP headers, read as RFC 9110 has them: names of types and codings have no case, lists may be spread."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

EVENT_STREAM: Final = b"text/event-stream"


def media_type(content_type: bytes) -> bytes:
    """The type and subtype in lower case, without parameters."""
    return content_type.partition(b";")[0].strip().lower()


def is_event_stream(content_type: bytes) -> bool:
    """Whether it is the type of server-sent events, whatever its parameters."""
    return content_type == EVENT_STREAM or media_type(content_type) == EVENT_STREAM


def listed(values: Iterable[bytes]) -> list[bytes]:
    """The members of a list-valued header in lower case, in order; empty ones do not count."""
    members = [member.strip(b" \t").lower() for value in values for member in value.split(b",")]
    return [member for member in members if member]
