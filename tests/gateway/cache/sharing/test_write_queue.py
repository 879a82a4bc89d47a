"""Writes that wait for the store: tenants take turns, and a flood drops its own."""

from __future__ import annotations

from gateway.cache.sharing.waiting_entries import WaitingEntries
from tests.gateway.cache.sharing.test_sharing import entry


class Write:
    def __init__(self, number: int, tenant: str, size: int = 10) -> None:
        self.key = f"{tenant}{number}"
        self.entry = entry(number, tenant=tenant, answer=b"x" * size)


def test_tenants_take_turns_to_be_written() -> None:
    waiting: WaitingEntries[Write] = WaitingEntries(1_000_000)
    for number in range(5):
        waiting.add(Write(number, "flood"))
    waiting.add(Write(0, "calm"))
    taken = [waiting.take() for _ in range(3)]
    assert [write.key for write in taken if write is not None] == ["flood0", "calm0", "flood1"]


def test_a_flood_drops_its_own_writes() -> None:
    waiting: WaitingEntries[Write] = WaitingEntries(100_000)
    waiting.add(Write(0, "calm"))
    dropped = [each.key for number in range(50) for each in waiting.add(Write(number, "flood", 10_000))]
    assert "calm0" in waiting
    assert dropped[0] == "flood0"
    assert waiting.num_bytes <= 100_000
    while waiting.take() is not None:
        pass
    assert (len(waiting), waiting.num_bytes) == (0, 0)
