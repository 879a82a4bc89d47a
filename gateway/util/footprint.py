"""Footprint: how much memory a JSON body takes once it is read and parsed, estimated from its bytes."""

from __future__ import annotations

from typing import Final

READ_RATIO: Final = 3
"""The bytes, the texts in them, and the bytes that are sent on; or the pieces and the whole while they are joined."""
CONTAINER_BYTES: Final = 88
"""Of an empty list or object."""
VALUE_BYTES: Final = 96
"""Of a short text or a number, its key, and its place in a list or object."""


def parsed_bytes(body: bytes) -> int:
    """Memory for the body and its parsed form, at most or nearly so: `[[],[],…` takes thirty times its length.

    Commas and brackets inside texts are counted as well; three scans in C cost a microsecond for a usual request.
    """
    num_containers = body.count(b"[") + body.count(b"{")
    return READ_RATIO * len(body) + CONTAINER_BYTES * num_containers + VALUE_BYTES * body.count(b",")
