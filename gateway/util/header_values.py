"""Values of HTTP headers as RFC 9110 defines them: types and codings ignore case, lists may span several headers."""

from __future__ import annotations

from collections.abc import Iterable


def media_type(content_type: bytes) -> bytes:
    """Return type and subtype in lower case, without parameters."""
    return content_type.partition(b";")[0].strip().lower()


def listed(values: Iterable[bytes]) -> list[bytes]:
    """Return the members of a list-valued header in lower case, in order, without empty ones."""
    members = [member.strip(b" \t").lower() for value in values for member in value.split(b",")]
    return [member for member in members if member]
