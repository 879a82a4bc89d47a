"""Sealed values: stored bytes with a digest, which shows whether they are still as they were stored."""

from __future__ import annotations

from hashlib import blake2b
from typing import Final, Generic, TypeVar

import msgspec

SEAL_BYTES: Final = 16

T = TypeVar("T")

_encode: Final = msgspec.msgpack.Encoder().encode


class SealedCodec(Generic[T]):
    """The stored form of one type of value."""

    __slots__ = ("_decoder",)

    def __init__(self, kind: type[T]) -> None:
        self._decoder = msgspec.msgpack.Decoder(kind)

    def encode(self, value: T) -> bytes:
        """Return the stored form of a value."""
        return seal(_encode(value))

    def decode(self, data: bytes) -> T | None:
        """Return the value, or None for bytes that are damaged or of another form; these are to be deleted."""
        unsealed = unseal(data)
        try:
            return None if unsealed is None else self._decoder.decode(unsealed)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return None


def seal(data: bytes) -> bytes:
    """Return the data with its digest in front."""
    return _digest(data) + data


def unseal(sealed: bytes) -> bytes | None:
    """Return the data, or None when a bit of it or of its digest has changed."""
    data = sealed[SEAL_BYTES:]
    return data if sealed[:SEAL_BYTES] == _digest(data) else None


def _digest(data: bytes) -> bytes:
    return blake2b(data, digest_size=SEAL_BYTES, person=b"penstock-seal").digest()
