"""The exact tier: bounded, fresh, and rid of what saves least."""

from __future__ import annotations

import tracemalloc
from hashlib import sha256

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from gateway.cache.exact.entry import CacheEntry
from gateway.cache.exact.exact_cache import STALE_S, is_current
from gateway.cache.exact.exact_tier import ExactTier, Selection


def entry(number: int, *, size: int = 100, created_at: float = 0.0, ttl_s: float = 60.0, **more: object) -> CacheEntry:
    fields: dict[str, object] = {
        "id": f"r{number}",
        "exact": number.to_bytes(4, "little"),
        "context": b"c",
        "text": f"Question {number}",
        "answer": b"x" * size,
        "tenant": "a",
        "route": "faq",
        "deployment": "small",
        "created_at": created_at,
        "expires_at": created_at + ttl_s,
        "cost_tokens": 10,
    }
    return CacheEntry(**(fields | more))  # type: ignore[arg-type]


def test_an_entry_is_found_until_its_time_is_over() -> None:
    tier = ExactTier()
    assert tier.put(entry(1), 0.0)
    assert tier.find(entry(1).exact, 59.0) == entry(1)
    assert tier.find(entry(1).exact, 60.0) is None
    assert len(tier) == 0


def test_a_client_may_want_it_fresher_than_the_policy() -> None:
    tier = ExactTier()
    tier.put(entry(1), 0.0)
    assert tier.find(entry(1).exact, 10.0, max_age_s=5.0) is None
    assert tier.find(entry(1).exact, 10.0, max_age_s=10.0) is not None


def test_an_answer_is_as_old_at_most_as_the_route_that_calls_wants_it_now() -> None:
    """Whether the policy became stricter since, or another route of the same models stored it."""
    stored = entry(1, created_at=100.0, ttl_s=3600.0 + STALE_S)
    assert is_current(stored, 3600.0, 3000.0)
    assert not is_current(stored, 60.0, 161.0)
    assert is_current(stored, 60.0, 159.0)
    assert not is_current(stored, 1e9, 3700.0), "a longer time does not bring back what is over"


@pytest.mark.parametrize("letter", ["", "e", "é", "日", "😀"])
def test_the_memory_that_is_counted_is_the_memory_that_is_taken(letter: str) -> None:
    tier, num_entries = ExactTier(), 3_000
    tracemalloc.start()
    try:
        for number in range(num_entries):
            exact = sha256(str(number).encode()).digest()
            text = f"{100 * letter}{number}" if letter else None
            fields = {"id": f"req_{exact.hex()}", "exact": exact[:16], "context": exact[16:], "text": text}
            tier.put(entry(number, size=500 + number % 2, created_at=float(number), ttl_s=1e9, **fields), float(number))
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(tier) == num_entries
    assert 0.9 < tier.num_bytes / taken < 1.1


def test_an_older_answer_never_replaces_a_newer_one() -> None:
    tier = ExactTier()
    tier.put(entry(1, created_at=5.0, id="new"), 5.0)
    assert not tier.put(entry(1, created_at=1.0, id="old"), 6.0)
    found = tier.find(entry(1).exact, 6.0)
    assert found is not None
    assert found.id == "new"


def test_what_was_hit_stays_and_what_was_not_goes() -> None:
    tier = ExactTier(max_bytes=3 * entry(1).num_bytes)
    for number in (1, 2, 3):
        tier.put(entry(number), 0.0)
    tier.find(entry(1).exact, 1.0)
    tier.find(entry(3).exact, 1.0)
    tier.put(entry(4), 2.0)
    assert {held.id for held in tier} == {"r1", "r3", "r4"}


def test_what_is_dear_to_make_outlives_what_is_cheap() -> None:
    tier = ExactTier(max_bytes=2 * entry(1).num_bytes)
    tier.put(entry(1, cost_tokens=1000), 0.0)
    tier.put(entry(2, cost_tokens=1), 0.0)
    tier.put(entry(3, cost_tokens=500), 0.0)
    assert {held.id for held in tier} == {"r1", "r3"}


def test_an_entry_larger_than_everything_is_not_taken() -> None:
    tier = ExactTier(max_bytes=1000)
    assert not tier.put(entry(1, size=2000), 0.0)
    assert tier.num_bytes == 0


def test_a_quarantined_entry_is_not_served_but_known() -> None:
    tier = ExactTier()
    tier.put(entry(1), 0.0)
    assert tier.quarantine("r1") is not None
    assert tier.find(entry(1).exact, 1.0) is None
    assert tier.is_quarantined("r1")
    assert tier.quarantine("nobody") is None


def test_a_purge_is_dry_by_default() -> None:
    tier = ExactTier()
    tier.put(entry(1), 0.0)
    tier.put(entry(2, tenant="b"), 0.0)
    assert [found.id for found in tier.purge(Selection(tenant="b"))] == ["r2"]
    assert len(tier) == 2
    assert [found.id for found in tier.purge(Selection(text="QUESTION 1"), dry_run=False)] == ["r1"]
    assert [held.id for held in tier] == ["r2"]


class TierMachine(RuleBasedStateMachine):
    """Any order of what may happen leaves the counts right."""

    def __init__(self) -> None:
        super().__init__()
        self.tier = ExactTier(max_bytes=5000)
        self.now = 0.0

    @rule(number=st.integers(0, 20), size=st.integers(0, 3000), cost=st.integers(0, 1000))
    def keep(self, number: int, size: int, cost: int) -> None:
        self.tier.put(entry(number, size=size, created_at=self.now, cost_tokens=cost), self.now)

    @rule(number=st.integers(0, 20))
    def find(self, number: int) -> None:
        found = self.tier.find(entry(number).exact, self.now)
        assert found is None or (found.id == f"r{number}" and found.expires_at > self.now)

    @rule(number=st.integers(0, 20))
    def quarantine(self, number: int) -> None:
        self.tier.quarantine(f"r{number}")
        assert self.tier.find(entry(number).exact, self.now) is None

    @rule(seconds=st.floats(0, 40))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def expire(self) -> None:
        self.tier.expire(self.now)
        assert all(held.expires_at > self.now for held in self.tier)

    @invariant()
    def counts_are_right(self) -> None:
        self.tier.check_integrity()


TestTier = TierMachine.TestCase
TestTier.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
