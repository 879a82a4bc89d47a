"""Entries as they are stored."""

from __future__ import annotations

from gateway.cache.exact.entry import decode_entry, encode_entry
from tests.gateway.cache.exact.test_exact_tier import entry


def test_the_stored_form_comes_back_and_damage_is_seen() -> None:
    data = encode_entry(entry(1))
    assert decode_entry(data) == entry(1)
    assert decode_entry(data[:-3]) is None
    assert decode_entry(encode_entry(entry(1, schema=99))) is None
    flipped = bytes([data[0] ^ 0xFF]) + data[1:]
    assert decode_entry(flipped) is None
