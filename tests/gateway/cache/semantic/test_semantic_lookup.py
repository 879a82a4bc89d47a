"""One lookup for similar answers: it ends once, whenever its vector comes, and tells why it had no effect."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from gateway.cache.audit.route_stats import TenantRoute
from gateway.cache.exact.entry import CacheEntry
from gateway.cache.semantic.semantic_lookup import LookupSubject, SemanticLookup
from gateway.cache.semantic.semantic_tier import SemanticTier
from tests.gateway.cache.semantic.test_semantic_tier import World, request, wanted_by


class Lookup:
    """A lookup in a world with one answer, whose vector the test brings."""

    def __init__(self, *, has_entry: bool = True, checks: bool = True) -> None:
        self.world = World()
        if has_entry:
            self.world.keep(request(), wanted_by(), number=1)
        self.vector: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.hits: list[bool] = []
        requested, wanted = request("Where is the red button of it, then?"), wanted_by()
        self.key = self.world.key(requested, wanted)
        self.lookup = SemanticLookup(
            self.world.semantic,
            self.vector,
            subject=LookupSubject(self.key, wanted, TenantRoute("acme", "faq"), self.world.stats),
            clock=lambda: self.world.now,
            workers=ThreadPoolExecutor(1),
            is_lookup=checks,
        )
        self.lookup.on_hit = lambda: self.hits.append(True)

    async def comes(self, vector: Any) -> None:
        self.vector.set_result(vector)
        await asyncio.sleep(0)
        await asyncio.sleep(0)


async def test_a_hit_is_reported_once_its_vector_is_there() -> None:
    case = Lookup()
    assert case.lookup.reason(None) == "late", "it has not ended"
    case.world.now += 0.5
    await case.comes(case.world.vector)
    assert case.hits == [True]
    assert case.lookup.done.done()
    assert case.lookup.finding is not None
    assert case.lookup.finding.is_hit
    assert case.lookup.embed_s == 0.5


async def test_without_a_neighbour_or_without_a_vector_there_is_no_hit_and_a_reason() -> None:
    alone, blind = Lookup(has_entry=False), Lookup()
    await alone.comes(alone.world.vector)
    await blind.comes(None)
    assert (alone.lookup.reason(None), blind.lookup.reason(None)) == ("alone", "no_vector")
    assert alone.hits == blind.hits == []


async def test_a_search_or_a_comparison_that_fails_ends_the_lookup_and_is_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise IndexError("of a text that nobody thought of")

    for name in ("find", "nearest"):
        case = Lookup()
        with monkeypatch.context() as patched:
            patched.setattr(SemanticTier, name, fail)
            await case.comes(case.world.vector)
        assert case.lookup.done.done(), name
        assert (case.lookup.reason(None), case.hits) == ("failed", [])
        assert [type(error) for error in case.world.failures] == [IndexError]


async def test_a_lookup_that_was_closed_reports_nobody_and_lets_go_of_its_vector() -> None:
    case = Lookup()
    case.lookup.close()
    await asyncio.sleep(0)
    assert case.vector.cancelled()
    assert case.lookup.done.cancelled()
    assert case.hits == []


async def test_an_answer_that_comes_before_the_vector_is_placed_with_it() -> None:
    case = Lookup(has_entry=False)
    shared: list[CacheEntry] = []
    stored = case.world.keep(request("Something else?"), wanted_by("other"), number=9)
    entry = CacheEntry(
        id="r2",
        exact=case.key.exact,
        context=case.key.context,
        text=case.key.text,
        answer=b"2",
        tenant="acme",
        route="faq",
        deployment="small",
        created_at=case.world.now,
        expires_at=stored.expires_at,
    )
    case.lookup.stored(entry, shared.append)
    case.lookup.close()
    assert shared == [], "it waits for the vector"
    await case.comes(case.world.vector)
    (packed,) = shared
    assert packed.id == "r2"
    assert packed.vector != b""


async def test_without_a_vector_an_answer_is_shared_as_it_is() -> None:
    case = Lookup(checks=False)
    shared: list[CacheEntry] = []
    entry = case.world.keep(request("Something else?"), wanted_by(), number=9)
    await case.comes(None)
    case.lookup.stored(entry, shared.append)
    assert shared == [entry]
    assert case.lookup.finding is None


async def test_the_routes_stats_learns_how_long_lookups_take() -> None:
    case = Lookup()
    before = case.world.stats.order.lookup_s
    case.world.now += 0.25
    await case.comes(case.world.vector)
    assert before < case.world.stats.order.lookup_s < 0.25


async def test_what_a_lookup_took_is_reported_also_when_it_is_closed_before_its_end() -> None:
    ended, closed, blind = Lookup(), Lookup(), Lookup()
    took: list[tuple[float, float | None]] = []
    for case in (ended, closed, blind):
        case.lookup.on_end = lambda took_s, search_s: took.append((took_s, search_s))
        case.world.now += 0.5
    await ended.comes(ended.world.vector)
    closed.lookup.close()
    await blind.comes(None)
    assert took == [(0.5, 0.0), (0.5, None)], "without a vector nothing was looked up"


async def test_a_lookup_that_ends_behind_the_response_is_late_whatever_it_found() -> None:
    alone, hit = Lookup(has_entry=False), Lookup()
    for case in (alone, hit):
        responded_at = case.world.now
        assert case.lookup.is_late(responded_at)
        case.world.now += 0.5
        await case.comes(case.world.vector)
        assert case.lookup.reason(responded_at) == "late"
        assert not case.lookup.is_late(case.world.now)
    assert alone.lookup.reason(alone.world.now) == "alone"
