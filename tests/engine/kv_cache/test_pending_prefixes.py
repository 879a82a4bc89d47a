"""Blocks that are being computed, by the first sequence that reserves each."""

from __future__ import annotations

from engine.kv_cache.pending_prefixes import PendingPrefixes


def test_the_first_reservation_of_a_block_counts() -> None:
    pending = PendingPrefixes()
    pending.reserve(1, [b"a", b"b"])
    pending.reserve(2, [b"b", b"c"])
    pending.release(2)
    assert (b"b" in pending, b"c" in pending, len(pending)) == (True, False, 2)
    pending.release(1)
    assert len(pending) == 0


def test_who_reserved_nothing_new_has_nothing_to_release() -> None:
    pending = PendingPrefixes()
    pending.reserve(1, [b"a"])
    pending.reserve(2, [b"a"])
    for seq_id in (2, 3, 2):
        pending.release(seq_id)
    assert b"a" in pending


def test_a_released_block_may_be_reserved_again() -> None:
    pending = PendingPrefixes()
    pending.reserve(1, [b"a"])
    pending.release(1)
    pending.reserve(2, [b"a"])
    pending.release(1)
    assert b"a" in pending
