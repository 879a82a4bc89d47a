"""SemanticStage: the semantic tier as a stage of the pipeline."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from functools import partial
from typing import Any, Final, Protocol

from gateway.cache.audit.lookup_times import ResponseOrigin
from gateway.cache.audit.route_stats import RouteStats, RouteStatsTable, TenantRoute
from gateway.cache.cache_race import CacheRace
from gateway.cache.exact.cache_lookup import CacheLookup
from gateway.cache.exact.entry import CacheEntry
from gateway.cache.exact.needs import needs_of
from gateway.cache.grammar.vocabulary import ranks
from gateway.cache.semantic.canonical_question import canonical_question
from gateway.cache.semantic.guards import guard_of
from gateway.cache.semantic.late_index import LateIndex, Place, QueuedEmbeds
from gateway.cache.semantic.near_miss import draft_of
from gateway.cache.semantic.semantic_lookup import LookupSubject, SemanticLookup
from gateway.cache.semantic.semantic_tier import SemanticTier, Vector
from gateway.cache.similarity.language import is_unguarded
from gateway.chat.operation import CHAT
from gateway.chat.request import ChatRequest
from gateway.forwarding.dispatch import Dispatch
from gateway.request_context import RequestContext
from gateway.routing.planned_route import PlannedRoute
from gateway.telemetry.records.cache_reasons import SimilarReason
from gateway.telemetry.records.record import CacheResult, Neighbourhood, RequestPhase
from gateway.timeline import Clock, Stage

MODE: Final = "exact_then_semantic"
_OK: Final = 200
MAX_HELD_RATIO: Final = 1.0
"""Part of its own time to the first byte by which a stream is held back for a lookup, at most."""
MAX_HELD_S: Final = 0.5


class Audits(Protocol):
    """Receiver of the outcomes of semantic lookups; no method waits or fails."""

    def served(
        self, ctx: RequestContext, request: ChatRequest, planned: PlannedRoute, semantic: SemanticLookup
    ) -> None:
        """Take a semantic hit that is served."""
        ...

    def compare(
        self,
        ctx: RequestContext,
        request: ChatRequest,
        planned: PlannedRoute,
        semantic: SemanticLookup,
        fresh: CacheEntry,
    ) -> None:
        """Take a lookup whose entry might have been served, and a deployment's response to the same request."""
        ...


class SemanticStage:
    """Lookups before or during the upstream call, whichever costs less, or none where it would come too late."""

    __slots__ = ("_audits", "_clock", "_embedder", "_late", "_route_stats", "_tier", "_wall", "_workers")

    def __init__(
        self,
        tier: SemanticTier,
        embedder: QueuedEmbeds,
        route_stats: RouteStatsTable,
        audits: Audits,
        *,
        late: LateIndex,
        clock: Clock,
        wall: Callable[[], float],
        workers: Executor,
    ) -> None:
        self._tier = tier
        self._embedder = embedder
        self._route_stats = route_stats
        self._audits = audits
        self._late = late
        self._clock = clock
        self._wall = wall
        self._workers = workers
        workers.submit(ranks)  # reads a file: not on the event loop, and before the first lookup

    def note_request(self, ctx: RequestContext, planned: PlannedRoute) -> None:
        """Count a request for the error budget."""
        self._stats(ctx, planned).note_request(self._wall())

    async def look(
        self, ctx: RequestContext, request: ChatRequest, planned: PlannedRoute, lookup: CacheLookup
    ) -> CacheLookup | None:
        """Return a semantic hit, where waiting for a lookup pays; elsewhere `race` searches."""
        stats = self._stats(ctx, planned)
        begin = partial(self._begin, ctx, request, planned, lookup, stats)
        ctx.begin_lookup = partial(self._begin_or_skip, ctx, lookup, begin)
        may_race = self._held_ratio(ResponseOrigin(planned.route.id, "", request.stream), stats) is not None
        late_lookup_s = None if may_race else self._route_stats.times.lookup_s(self._embedder.num_waiting)
        waits = lookup.result is CacheResult.MISS and (
            stats.order.waits(_load(planned), late_lookup_s=late_lookup_s, is_paid=planned.is_paid)
            or _may_draft(request, planned)
        )
        if planned.encoders:  # the router needs the vector, too
            ctx.begin_lookup(waits or may_race)
        if not waits:
            return None
        semantic = ctx.semantic_lookup if ctx.begin_lookup is None else ctx.begin_lookup(True)
        if semantic is None:
            return None
        await semantic.done
        ctx.record.timeline.charge(Stage.CACHE, semantic.search_s)
        ctx.mark(Stage.EMBED)
        found = self._found(ctx, request, planned, semantic)
        if found is None and _may_draft(request, planned):
            ctx.draft = draft_of(semantic.finding, planned.route.cache)
        return found

    async def peek(self, request: ChatRequest, lookup: CacheLookup, whose: TenantRoute) -> CacheLookup | None:
        """Return the semantic hit that a request would get behind an exact miss; nothing is counted."""
        try:
            return await self._peek(request, lookup, whose)
        except Exception as error:  # as in a lookup that is counted
            self._tier.on_failure(error)
            return None

    async def _peek(self, request: ChatRequest, lookup: CacheLookup, whose: TenantRoute) -> CacheLookup | None:
        key, wanted = lookup.key, lookup.wanted
        if key is None or wanted is None or key.text is None or not self._embedder.is_ready:
            return None
        if guard_of(request, wanted.rule, wanted.tenant) is not None:
            return None
        vector = await self._embedder.embed(canonical_question(key.text))
        if vector is None:
            return None
        near = await asyncio.get_running_loop().run_in_executor(self._workers, self._tier.nearest, key.context, vector)
        stats = self._route_stats.of(whose)
        found = self._tier.find(near, key, wanted, stats, needs_of(request), is_counted=False)
        if not found.is_hit or found.entry is None:
            return None
        age_s = max(0.0, self._wall() - found.entry.created_at)
        answer, entry_id = found.entry.answer, found.entry.id
        return CacheLookup(CacheResult.HIT_SEMANTIC, "similar", answer=answer, age_s=age_s, entry_id=entry_id)

    async def race(
        self, ctx: RequestContext, request: ChatRequest, planned: PlannedRoute, forward: Coroutine[Any, Any, None]
    ) -> CacheLookup | None:
        """Let the deployment answer unless the lookup hits sooner. Raises what `forward` does.

        The lookup begins when the request is on its way, or waits for a permit: before, it would delay a miss.
        """
        race, stats = CacheRace(ctx), self._stats(ctx, planned)
        dispatched: list[tuple[ResponseOrigin, float]] = []

        def look() -> None:
            source, now = ResponseOrigin(planned.route.id, ctx.record.deployment, request.stream), self._clock()
            dispatched.append((source, now))
            held_ratio, begin = self._held_ratio(source, stats), ctx.begin_lookup
            semantic = ctx.semantic_lookup if begin is None else begin(held_ratio is not None)
            if semantic is not None and semantic.is_lookup:
                race.watch(semantic)
                if held_ratio:
                    ctx.hold = partial(self._hold, semantic, now, held_ratio)

        dispatch = Dispatch(forward, self._clock, look)
        async with race:
            await dispatch
        semantic = ctx.semantic_lookup
        for source, began_at in dispatched:
            self._note_times(ctx, stats, source, began_at, is_lost=race.is_lost)
        if semantic is None:  # the lookup was not allowed, was skipped, or had no time to begin
            return None
        if semantic.finding is not None:  # it ran beside other stages: their sum is above the total
            ctx.record.timeline.spent[Stage.EMBED] = semantic.embed_s
        if race.is_lost:
            ctx.record.was_sent = ctx.place is not RequestPhase.QUEUED
            semantic.stats.order.note_called_off(dispatch.worked_s)
            return self._found(ctx, request, planned, semantic)
        if ctx.record.cache is CacheResult.MISS and semantic.is_lookup:
            ctx.record.cache_reason = semantic.reason(ctx.responded_at)
        self._note_neighbour(ctx, semantic)
        return None

    def _held_ratio(self, source: ResponseOrigin, stats: RouteStats) -> float | None:
        """Return the part of its time for which a response is held back; None: the lookup would be late even so."""
        times, num_waiting, now = self._route_stats.times, self._embedder.num_waiting, self._clock()
        if times.may_begin(source, num_waiting, now):
            return 0.0
        if not source.is_stream or not stats.order.holds(times.late_ratio(source, num_waiting, now)):
            return None
        return MAX_HELD_RATIO if times.may_begin(source, num_waiting, now, held_ratio=MAX_HELD_RATIO) else None

    async def _hold(self, semantic: SemanticLookup, began_at: float, held_ratio: float) -> None:
        """Wait for a lookup, which cancels the caller if it hits."""
        if not semantic.done.done():
            held_s = min(MAX_HELD_S, held_ratio * (self._clock() - began_at))
            await asyncio.wait((semantic.done,), timeout=held_s)

    def _note_times(
        self, ctx: RequestContext, stats: RouteStats, source: ResponseOrigin, began_at: float, *, is_lost: bool
    ) -> None:
        """Note what a dispatch at `began_at` shows about the times of responses and of lookups beside them."""
        times, semantic, now = self._route_stats.times, ctx.semantic_lookup, self._clock()
        if semantic is not None and semantic.is_lookup and not semantic.ended_before(began_at):
            times.note_race(source, now, is_late=not is_lost and semantic.is_late(ctx.responded_at))
        if is_lost or ctx.ready_at is None or ctx.record.status != _OK:
            return
        took_s = ctx.ready_at - began_at
        stats.order.note_upstream(took_s, now - began_at)
        for one in (source, source._replace(deployment="")):
            times.note_response(one, took_s, now)

    def _begin_or_skip(
        self, ctx: RequestContext, lookup: CacheLookup, begin: Callable[[bool], SemanticLookup | None], may_look: bool
    ) -> SemanticLookup | None:
        ctx.begin_lookup = None
        try:
            return begin(may_look)
        except Exception as error:  # whatever a text does to the guards, its request goes on
            self._tier.on_failure(error)
            if lookup.result is CacheResult.MISS:
                ctx.record.cache_reason = "failed"
            return None

    def _begin(
        self,
        ctx: RequestContext,
        request: ChatRequest,
        planned: PlannedRoute,
        lookup: CacheLookup,
        stats: RouteStats,
        may_look: bool,
    ) -> SemanticLookup | None:
        key, wanted, record = lookup.key, lookup.wanted, ctx.record
        assert key is not None, "a lookup that may store has a key"
        assert wanted is not None, "a lookup with a key has an identity"
        is_miss = lookup.result is CacheResult.MISS
        reason = guard_of(request, wanted.rule, wanted.tenant)
        if reason is not None or key.text is None or not self._embedder.is_ready:
            if is_miss:
                record.cache_reason = reason or "no_vector"
            if reason is None and key.text is not None:
                lookup.on_stored = self._index_later
            return None
        subject = LookupSubject(key, wanted, TenantRoute(record.tenant, record.route), stats, needs_of(request))
        is_skipped = is_miss and not may_look
        if is_skipped:
            record.cache_reason = "skipped"
            if not planned.encoders:  # else the vector is computed for the router
                lookup.on_stored = partial(self._look_later, partial(self._place_later, ctx, request, planned, subject))
                return None
        num_waiting = self._embedder.num_waiting
        self._route_stats.times.note_begin(self._clock())
        semantic = ctx.semantic_lookup = SemanticLookup(
            self._tier,
            ctx.vector(self._embedder, key.text if planned.encoders else canonical_question(key.text)),
            subject=subject,
            clock=self._clock,
            workers=self._workers,
            is_lookup=is_miss and may_look,
        )
        semantic.on_end = partial(self._note_end, num_waiting)
        semantic.on_other = partial(self._audits.compare, ctx, request, planned)
        semantic.on_unplaced = self._late.add
        place = partial(self._place_later, ctx, request, planned, subject)
        lookup.on_stored = partial(self._place_skipped, semantic, place) if is_skipped else semantic.stored
        return semantic

    def _note_end(self, num_waiting: int, took_s: float, search_s: float | None) -> None:
        self._route_stats.times.note_lookup(took_s, search_s, num_waiting, self._clock())

    def _index_later(self, entry: CacheEntry, share: Callable[[CacheEntry], None]) -> None:
        share(entry)
        self._late.add(entry, share)

    def _look_later(self, place: Place, entry: CacheEntry, share: Callable[[CacheEntry], None]) -> None:
        share(entry)
        self._late.add(entry, share, place)

    def _place_skipped(
        self, semantic: SemanticLookup, place: Place, entry: CacheEntry, share: Callable[[CacheEntry], None]
    ) -> None:
        """Place an entry whose lookup was skipped, with the vector that was computed for the router."""
        known = semantic.vector
        vector = known.result() if known.done() and not known.cancelled() else None
        if vector is None:
            self._look_later(place, entry, share)
        else:
            place(entry, vector, share)

    def _place_later(
        self,
        ctx: RequestContext,
        request: ChatRequest,
        planned: PlannedRoute,
        subject: LookupSubject,
        entry: CacheEntry,
        vector: Vector,
        share: Callable[[CacheEntry], None],
    ) -> None:
        """Look up what the skipped lookup would have found, for audits alone, and index the entry."""
        known: asyncio.Future[Vector | None] = asyncio.get_running_loop().create_future()
        known.set_result(vector)
        semantic = SemanticLookup(
            self._tier, known, subject=subject, clock=self._clock, workers=self._workers, is_timed=False
        )
        semantic.on_other = partial(self._audits.compare, ctx, request, planned)
        semantic.stored(entry, share)

    def _found(
        self, ctx: RequestContext, request: ChatRequest, planned: PlannedRoute, semantic: SemanticLookup
    ) -> CacheLookup | None:
        finding = semantic.finding
        if finding is None or not finding.is_hit or finding.entry is None:
            if finding is not None:
                ctx.record.cache_reason = finding.reason
            return None
        entry, now = finding.entry, self._wall()
        self._tier.use(entry)
        reason: SimilarReason = "unguarded" if is_unguarded(entry.text or "") else "similar"
        ctx.record.cache, ctx.record.cache_reason = CacheResult.HIT_SEMANTIC, reason
        self._note_neighbour(ctx, semantic)
        semantic.stats.note_hit(now, semantic.key.exact, entry.exact, finding.shipped_probability)
        self._audits.served(ctx, request, planned, semantic)
        age_s = max(0.0, now - entry.created_at)
        return CacheLookup(CacheResult.HIT_SEMANTIC, reason, answer=entry.answer, age_s=age_s, entry_id=entry.id)

    def _note_neighbour(self, ctx: RequestContext, semantic: SemanticLookup) -> None:
        finding = semantic.finding
        if finding is not None and finding.entry is not None:
            ctx.record.neighbour = Neighbourhood(
                entry_id=finding.entry.id,
                similarity=finding.similarity,
                runner_up=finding.runner_up,
                match_probability=finding.match_probability,
                threshold=finding.threshold,
                served=ctx.record.cache is CacheResult.HIT_SEMANTIC,
                drafted=ctx.record.drafted,
                why=ctx.record.cache_reason,
            )

    def _stats(self, ctx: RequestContext, planned: PlannedRoute) -> RouteStats:
        return self._route_stats.of(TenantRoute(ctx.record.tenant, planned.route.id))


def _may_draft(request: ChatRequest, planned: PlannedRoute) -> bool:
    """Return whether a response that is not served may become a prediction; the client's own takes precedence."""
    if planned.route.cache.draft_threshold is None or "prediction" in request.document:
        return False
    return request.operation is CHAT and any(live.takes_drafts for live, _ in planned.candidates)


def _load(planned: PlannedRoute) -> float:
    """Return the load of the least loaded candidate: 1 when requests wait even there."""
    return min(
        1.0 if live.limiter.num_waiting else live.in_flight / live.limiter.limit for live, _ in planned.candidates
    )
