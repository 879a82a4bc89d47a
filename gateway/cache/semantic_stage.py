"""SemanticStage: the semantic tier in a request's way through the pipeline."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from functools import partial
from typing import Any, Final, Protocol

from gateway.cache.audit.route_stats import RouteStats, RouteStatsTable, TenantRoute
from gateway.cache.cache_race import CacheRace
from gateway.cache.exact.answers import CacheLookup
from gateway.cache.exact.entry import CacheEntry
from gateway.cache.exact.needs import needs_of
from gateway.cache.semantic.guards import guard_of
from gateway.cache.semantic.semantic_lookup import LookupSubject, SemanticLookup
from gateway.cache.semantic.semantic_tier import Embeds, SemanticResult, SemanticTier
from gateway.chat.request import ChatRequest
from gateway.forwarding.dispatch import Dispatch
from gateway.request_context import RequestContext
from gateway.routing.planned_route import PlannedRoute
from gateway.telemetry.records.record import CacheResult, Neighbourhood
from gateway.timeline import Clock, Stage

MODE: Final = "exact_then_semantic"


class Audits(Protocol):
    """Whoever wants to know what became of similar answers; never waits and never fails."""

    def served(self, ctx: RequestContext, request: ChatRequest, planned: PlannedRoute, quest: SemanticLookup) -> None:
        """A similar answer is given."""
        ...

    def compare(self, request_id: str, quest: SemanticLookup, finding: SemanticResult, fresh: CacheEntry) -> None:
        """One might have been given, and a deployment has answered."""
        ...


class SemanticStage:
    """Looks beside or before the deployment is asked, whichever costs less; routes without it never come here."""

    __slots__ = ("_audits", "_books", "_clock", "_embedder", "_tier", "_wall", "_workers")

    def __init__(
        self,
        tier: SemanticTier,
        embedder: Embeds,
        books: RouteStatsTable,
        audits: Audits,
        *,
        clock: Clock,
        wall: Callable[[], float],
        workers: Executor,
    ) -> None:
        self._tier = tier
        self._embedder = embedder
        self._books = books
        self._audits = audits
        self._clock = clock
        self._wall = wall
        self._workers = workers

    def note_request(self, ctx: RequestContext, planned: PlannedRoute) -> None:
        """One of those whose wrong answers are bounded."""
        self._book(ctx, planned).note_request(self._wall())

    async def look(
        self, ctx: RequestContext, request: ChatRequest, planned: PlannedRoute, lookup: CacheLookup
    ) -> CacheLookup | None:
        """A similar answer, if that is worth waiting for; if not, `race` looks."""
        book = self._book(ctx, planned)
        ctx.seek = partial(self._begin, ctx, request, planned, lookup, book)
        if planned.encoders:  # the router wants the vector too, before anybody is asked
            ctx.seek()
        if lookup.result is not CacheResult.MISS or not book.order.waits(_load(planned)):
            return None
        quest = ctx.quest if ctx.seek is None else ctx.seek()
        if quest is None:
            return None
        await quest.done
        ctx.record.timeline.charge(Stage.CACHE, quest.search_s)
        ctx.mark(Stage.EMBED)
        return self._found(ctx, request, planned, quest)

    async def race(
        self, ctx: RequestContext, request: ChatRequest, planned: PlannedRoute, forward: Coroutine[Any, Any, None]
    ) -> CacheLookup | None:
        """Let the deployment answer unless a similar answer is found sooner. Raises what `forward` does.

        Looking begins when the request is on its way, or waits for a permit: until then it would make a miss late.
        """
        race, timeline = CacheRace(ctx), ctx.record.timeline

        def look() -> None:
            quest = ctx.quest if ctx.seek is None else ctx.seek()
            if quest is not None:
                race.watch(quest)

        dispatch = Dispatch(forward, self._clock, look)
        async with race:
            await dispatch
        quest = ctx.quest
        if quest is None:  # nothing similar may be given, or there was nothing to wait for
            return None
        if quest.finding is not None:
            timeline.spent[Stage.EMBED] = quest.embed_s  # it ran beside other stages: their sum is above the total
        if race.is_lost:
            quest.book.order.note_called_off(dispatch.worked_s)
            return self._found(ctx, request, planned, quest)
        if ctx.record.cache is CacheResult.MISS:
            ctx.record.cache_reason = quest.reason
        self._note_neighbour(ctx, quest)
        first_byte_s = timeline.spent[Stage.UPSTREAM_FIRST_BYTE]
        if first_byte_s is not None:
            quest.book.order.note_upstream(first_byte_s)
        return None

    def _begin(
        self, ctx: RequestContext, request: ChatRequest, planned: PlannedRoute, lookup: CacheLookup, book: RouteStats
    ) -> SemanticLookup | None:
        ctx.seek = None
        key, wanted, record = lookup.key, lookup.wanted, ctx.record
        assert key is not None, "what may be kept has a key"
        assert wanted is not None, "and somebody who wants it kept"
        is_miss = lookup.result is CacheResult.MISS
        reason = guard_of(request, wanted.rule)
        if reason is not None or key.text is None or not self._embedder.is_ready:
            if is_miss:
                record.cache_reason = reason or "no_vector"
            return None
        quest = ctx.quest = SemanticLookup(
            self._tier,
            ctx.vector(self._embedder, key.text),
            subject=LookupSubject(key, wanted, TenantRoute(record.tenant, record.route), book, needs_of(request)),
            clock=self._clock,
            workers=self._workers,
            looks=is_miss,
        )
        request_id = record.request_id
        quest.on_other = lambda quest, finding, fresh: self._audits.compare(request_id, quest, finding, fresh)
        lookup.on_kept = quest.kept
        return quest

    def _found(
        self, ctx: RequestContext, request: ChatRequest, planned: PlannedRoute, quest: SemanticLookup
    ) -> CacheLookup | None:
        finding = quest.finding
        if finding is None or not finding.is_hit or finding.entry is None:
            if finding is not None:
                ctx.record.cache_reason = finding.reason
            return None
        entry, now = finding.entry, self._wall()
        self._tier.use(entry)
        ctx.record.cache, ctx.record.cache_reason = CacheResult.HIT_SEMANTIC, "similar"
        self._note_neighbour(ctx, quest)
        quest.book.note_hit(now, quest.key.exact, entry.exact, finding.careful_chance)
        self._audits.served(ctx, request, planned, quest)
        age_s = max(0.0, now - entry.created_at)
        return CacheLookup(CacheResult.HIT_SEMANTIC, "similar", answer=entry.answer, age_s=age_s, entry_id=entry.id)

    def _note_neighbour(self, ctx: RequestContext, quest: SemanticLookup) -> None:
        finding = quest.finding
        if finding is not None and finding.entry is not None:
            ctx.record.neighbour = Neighbourhood(
                entry_id=finding.entry.id,
                similarity=finding.similarity,
                runner_up=finding.runner_up,
                chance_right=finding.chance,
                floor=finding.floor,
                served=ctx.record.cache is CacheResult.HIT_SEMANTIC,
                why=ctx.record.cache_reason,
            )

    def _book(self, ctx: RequestContext, planned: PlannedRoute) -> RouteStats:
        return self._books.of(TenantRoute(ctx.record.tenant, planned.route.id))


def _load(planned: PlannedRoute) -> float:
    """Of the least loaded candidate: 1 when requests wait even there."""
    return min(
        1.0 if live.limiter.num_waiting else live.in_flight / live.limiter.limit for live, _ in planned.candidates
    )
