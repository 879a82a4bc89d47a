"""Seals: stored bytes that tell by themselves whether they are still what was stored."""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

SEAL_BYTES: Final = 16


def seal(data: bytes) -> bytes:
    """The data with its digest in front."""
    return _digest(data) + data


def unseal(sealed: bytes) -> bytes | None:
    """The data, None when a bit of it or of its digest is another than it was."""
    data = sealed[SEAL_BYTES:]
    return data if sealed[:SEAL_BYTES] == _digest(data) else None


def _digest(data: bytes) -> bytes:
    return blake2b(data, digest_size=SEAL_BYTES, person=b"penstock-seal").digest()
