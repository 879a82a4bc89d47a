"""Values of HTTP headers as RFC 9110 defines them: types and codings ignore case, lists may span several headers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

EVENT_STREAM: Final = b"text/event-stream"


def media_type(content_type: bytes) -> bytes:
    """Return type and subtype in lower case, without parameters."""
    return content_type.partition(b";")[0].strip().lower()


def is_event_stream(content_type: bytes) -> bool:
    """Return whether the content type is that of server-sent events, with any parameters."""
    return content_type == EVENT_STREAM or media_type(content_type) == EVENT_STREAM


def listed(values: Iterable[bytes]) -> list[bytes]:
    """Return the members of a list-valued header in lower case, in order, without empty ones."""
    members = [member.strip(b" \t").lower() for value in values for member in value.split(b",")]
    return [member for member in members if member]
