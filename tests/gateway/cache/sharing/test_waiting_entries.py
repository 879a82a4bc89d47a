"""Writes that wait: tenants take turns, and a flood costs nobody but its own tenant."""

from __future__ import annotations

from dataclasses import dataclass

from gateway.cache.exact.entry import CacheEntry
from gateway.cache.sharing.waiting_entries import WaitingEntries


@dataclass(frozen=True)
class Write:
    key: str
    entry: CacheEntry


def write(key: str, tenant: str, size: int = 0) -> Write:
    made = CacheEntry(
        id=key,
        exact=key.encode(),
        context=b"c",
        text=None,
        answer=b"x" * size,
        tenant=tenant,
        route="faq",
        deployment="small",
        created_at=0.0,
        expires_at=1.0,
    )
    return Write(key, made)


def taken(waiting: WaitingEntries[Write]) -> list[str]:
    keys = []
    while (each := waiting.take()) is not None:
        keys.append(each.key)
    return keys


def test_tenants_take_turns() -> None:
    waiting: WaitingEntries[Write] = WaitingEntries(1_000_000)
    for key in ("a1", "a2", "a3", "b1"):
        assert waiting.add(write(key, key[0])) == []
    assert len(waiting) == 4
    assert taken(waiting) == ["a1", "b1", "a2", "a3"]
    assert (len(waiting), waiting.num_bytes) == (0, 0)


def test_what_does_not_fit_costs_the_tenant_with_most_waiting_its_oldest() -> None:
    waiting: WaitingEntries[Write] = WaitingEntries(20_000)
    waiting.add(write("calm", "calm", 4000))
    dropped = [each.key for number in range(5) for each in waiting.add(write(f"flood{number}", "flood", 4000))]
    assert dropped == ["flood0", "flood1"]
    assert "calm" in waiting
    assert waiting.num_bytes <= 20_000


def test_a_write_may_return_to_the_head_and_leave_by_its_key() -> None:
    waiting: WaitingEntries[Write] = WaitingEntries(1_000_000)
    waiting.add(write("a1", "a"))
    waiting.add(write("a0", "a"), is_first=True)
    waiting.add(write("a2", "a"))
    assert waiting.pop("a1") is not None
    assert waiting.pop("a1") is None
    assert [each.key for each in waiting] == ["a0", "a2"]
