"""Messages between gateways about the cache: keys say what they are, and damage makes no other message of one."""

from __future__ import annotations

import pytest

from gateway.cache.exact.exact_tier import Selection
from gateway.cache.sharing.notices import (
    DOUBT,
    PURGE,
    QUARANTINE,
    Notice,
    Quarantine,
    WrongReport,
    decode_notice,
    encode_notice,
    entry_key,
    exact_of,
    quarantine_key,
)

NOTICES: list[tuple[str, Notice]] = [
    (PURGE, Selection(tenant="shop")),
    (QUARANTINE, Quarantine(b"\x01\x02", b"\x03", 5.0)),
    (DOUBT, WrongReport("req_1", "shop")),
]


@pytest.mark.parametrize(("kind", "notice"), NOTICES)
def test_a_notice_comes_back_under_its_kind_and_is_none_elsewhere(kind: str, notice: Notice) -> None:
    value = encode_notice(kind, notice)
    assert decode_notice(f"{kind}abc", value) == notice
    assert decode_notice("e.abc", value) is None
    assert decode_notice("", value) is None


@pytest.mark.parametrize(("kind", "notice"), NOTICES)
def test_damaged_bytes_are_no_notice(kind: str, notice: Notice) -> None:
    value = encode_notice(kind, notice)
    for place in range(len(value)):
        damaged = bytearray(value)
        damaged[place] ^= 0x40
        assert decode_notice(f"{kind}abc", bytes(damaged)) is None
    assert decode_notice(f"{kind}abc", value[:-1]) is None


def test_an_entrys_key_names_its_fingerprint_and_other_keys_none() -> None:
    assert exact_of(entry_key(b"\x00\xff")) == b"\x00\xff"
    assert [exact_of(key) for key in ("p.00ff", "e.xyz", "e", "")] == [None, None, None, None]


def test_equal_quarantines_have_one_key_and_others_another() -> None:
    assert quarantine_key(Quarantine(b"a", b"b", 1.0)) == quarantine_key(Quarantine(b"a", b"b", 9.0))
    assert quarantine_key(Quarantine(b"a", b"b", 1.0)) != quarantine_key(Quarantine(b"a", b"c", 1.0))
