"""Estimate of the memory that a JSON body takes once read and parsed, from its bytes."""

from __future__ import annotations

from typing import Final

READ_RATIO: Final = 3
"""Copies of the bytes held at once: the body, its texts and the body sent on; or pieces and whole while joined."""
CONTAINER_BYTES: Final = 88
"""Memory of an empty list or object."""
VALUE_BYTES: Final = 96
"""Memory of a short text or number, its key, and its place in a list or object."""


def parsed_bytes(body: bytes) -> int:
    """Return an upper estimate of the memory for a body and its parsed form; `[[],[],…` takes thirty times its length.

    Commas and brackets inside texts count too. The three scans in C take a microsecond for a usual request.
    """
    num_containers = body.count(b"[") + body.count(b"{")
    return READ_RATIO * len(body) + CONTAINER_BYTES * num_containers + VALUE_BYTES * body.count(b",")
