"""A place in [0, 1) for every name, the same in every process and every revision."""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

_SCALE: Final = 1 / 2**64


def stable_key(*parts: str) -> int:
    """64 bits that tell these texts, in this order, from others."""
    digest = blake2b(digest_size=8)
    for part in parts:
        encoded = part.encode("utf-8", "surrogatepass")
        digest.update(b"%d:%b" % (len(encoded), encoded))
    return int.from_bytes(digest.digest(), "big")


def share_of(key: int, name: str) -> float:
    """Where the key stands for this name: uniform over keys, and independent from one name to another."""
    digest = blake2b(name.encode("utf-8", "surrogatepass"), key=key.to_bytes(8, "big"), digest_size=8).digest()
    return int.from_bytes(digest, "big") * _SCALE
