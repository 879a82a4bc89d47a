"""Deterministic hashing of names to [0, 1), equal in every process and revision."""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

_SCALE: Final = 1 / 2**64


def stable_key(*parts: str) -> int:
    """Return a 64-bit hash of these texts in this order."""
    digest = blake2b(digest_size=8)
    for part in parts:
        encoded = part.encode("utf-8", "surrogatepass")
        digest.update(b"%d:%b" % (len(encoded), encoded))
    return int.from_bytes(digest.digest(), "big")


def share_of(key: int, name: str) -> float:
    """Return the position of the key for this name in [0, 1), uniform over keys and independent between names."""
    digest = blake2b(name.encode("utf-8", "surrogatepass"), key=key.to_bytes(8, "big"), digest_size=8).digest()
    return int.from_bytes(digest, "big") * _SCALE
