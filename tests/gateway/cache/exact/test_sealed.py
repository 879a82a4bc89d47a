"""Sealed values: what was stored comes back, and nothing else does."""

from __future__ import annotations

import msgspec
import pytest

from gateway.cache.exact.sealed import SEAL_BYTES, SealedCodec, seal, unseal


class Value(msgspec.Struct, frozen=True):
    name: str
    number: int


CODEC = SealedCodec(Value)


def test_a_value_comes_back() -> None:
    assert CODEC.decode(CODEC.encode(Value("a", 7))) == Value("a", 7)
    assert unseal(seal(b"")) == b""


@pytest.mark.parametrize("place", [0, SEAL_BYTES - 1, SEAL_BYTES, -1])
def test_a_changed_bit_is_noticed(place: int) -> None:
    stored = bytearray(CODEC.encode(Value("a", 7)))
    stored[place] ^= 1
    assert CODEC.decode(bytes(stored)) is None


@pytest.mark.parametrize("stored", [b"", b"short", seal(b""), seal(b"\xc1"), seal(msgspec.msgpack.encode({"name": 1}))])
def test_bytes_of_another_form_are_no_value(stored: bytes) -> None:
    assert CODEC.decode(stored) is None
