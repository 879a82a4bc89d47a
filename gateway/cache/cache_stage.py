"""CacheStage: the cache as a stage of the pipeline: serves hits, and stores responses."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final

import msgspec

from gateway.background.task_group import BackgroundTasks
from gateway.cache.audit.route_stats import TenantRoute
from gateway.cache.exact.cache_lookup import CacheLookup
from gateway.cache.exact.capture import Capture
from gateway.cache.exact.control import parse_cache_control
from gateway.cache.exact.exact_cache import ExactCache
from gateway.cache.semantic_stage import MODE as SIMILAR_MODE
from gateway.cache.semantic_stage import SemanticStage
from gateway.chat.headers import ChatHead
from gateway.chat.request import ChatRequest
from gateway.completion.prediction_counts import without_prediction_counts
from gateway.forwarding.relay import relay_cached, relay_followed
from gateway.request_context import RequestContext
from gateway.routing.planned_route import PlannedRoute
from gateway.telemetry.records.record import CacheResult
from gateway.timeline import Outcome, Stage

MAX_LEADERS: Final = 3
"""Shared answers that fail a waiting request before it goes upstream itself."""


class CacheStage:
    """The cache in one pipeline; it has no state of its own."""

    __slots__ = ("_cache", "_similar", "_tasks")

    def __init__(self, cache: ExactCache, similar: SemanticStage, tasks: BackgroundTasks) -> None:
        self._cache = cache
        self._similar = similar
        self._tasks = tasks

    async def answer(self, ctx: RequestContext, request: ChatRequest, head: ChatHead, planned: PlannedRoute) -> bool:
        """Serve a hit or join an answer under way; return whether that was done. If not, `ctx` copies its response."""
        record = ctx.record
        wanted = planned.wanted(record.tenant, parse_cache_control(head.cache_control))
        if wanted.rule.regenerate_window_s and not head.is_retry:
            user = ctx.snapshot.router.user_of(request, head)
            wanted = msgspec.structs.replace(wanted, regenerating_user=user)
        is_similar_wanted = wanted.rule.mode == SIMILAR_MODE
        if is_similar_wanted:
            self._similar.note_request(ctx, planned)
        lookup = self._cache.lookup(request, wanted)
        for _ in range(MAX_LEADERS):
            if lookup.following is None:
                break
            record.cache, record.cache_reason = CacheResult.HIT_EXACT, "shared"
            ctx.mark(Stage.CACHE)
            if await relay_followed(ctx, request, lookup.following, created=self._cache.unix_time()):
                record.outcome = Outcome.CACHED
                record.cache_entry = lookup.following.entry_id
                if lookup.following.entry_id is not None:
                    self._cache.note_hit(record.request_id, lookup.following.entry_id)
                return True
            lookup = self._cache.lookup(request, wanted)  # its leader failed: look up again, or lead
        if lookup.answer is not None:
            await self.give(ctx, request, lookup)
            return True
        record.cache, record.cache_reason = lookup.result, lookup.reason
        if lookup.key is not None and not ctx.wants_timing:  # the timing extension belongs to one request
            ctx.lookup = lookup
            operation = request.operation
            ctx.capture = (
                Capture(lookup.leading, operation=operation)
                if ctx.held is None
                else Capture(lookup.leading, ctx.held.try_grow, operation)
            )
        else:
            lookup.drop()
        ctx.mark(Stage.CACHE)
        if is_similar_wanted and lookup.key is not None:
            found = await self._similar.look(ctx, request, planned, lookup)
            if found is not None:
                await self.give_similar(ctx, request, found)
                return True
        return False

    def stored(self, entry_id: str) -> bytes | None:
        """Return the response of an entry, served or not; None where it is gone."""
        entry = self._cache.tier.by_id(entry_id)
        return None if entry is None else entry.answer

    async def peek(self, request: ChatRequest, planned: PlannedRoute, tenant: str) -> CacheLookup:
        """Return the hit that a request would get now, or why it would get none; nothing is counted or held."""
        wanted = planned.wanted(tenant)
        lookup = self._cache.peek(request, wanted)
        if lookup.result is not CacheResult.MISS or wanted.rule.mode != SIMILAR_MODE:
            return lookup
        return await self._similar.peek(request, lookup, TenantRoute(tenant, planned.route.id)) or lookup

    async def race(
        self, ctx: RequestContext, request: ChatRequest, planned: PlannedRoute, forward: Coroutine[Any, Any, None]
    ) -> bool:
        """Let the deployment answer unless a similar answer is found sooner, which is then given: True."""
        found = await self._similar.race(ctx, request, planned, forward)
        if found is None:
            return False
        await self.give_similar(ctx, request, found)
        return True

    async def give_similar(self, ctx: RequestContext, request: ChatRequest, found: CacheLookup) -> None:
        """Serve a semantic hit. Identical requests that wait for this one look it up themselves."""
        if ctx.lookup is not None:
            ctx.lookup.drop()
        ctx.lookup = ctx.capture = None
        await self.give(ctx, request, found)

    async def give(self, ctx: RequestContext, request: ChatRequest, lookup: CacheLookup) -> None:
        """Serve a hit."""
        assert lookup.answer is not None, "a hit has an answer"
        record = ctx.record
        record.cache, record.cache_reason = lookup.result, lookup.reason
        ctx.mark(Stage.CACHE)
        record.cache_entry = lookup.entry_id
        if lookup.entry_id is not None:
            self._cache.note_hit(record.request_id, lookup.entry_id)
        await relay_cached(ctx, request, lookup.answer, created=self._cache.unix_time(), age_s=lookup.age_s)
        record.outcome = Outcome.CACHED

    def store(self, ctx: RequestContext, lookup: CacheLookup, *, is_as_requested: bool) -> None:
        """Store a whole, successful response to the request in its original form.

        A long one is assembled beside the event loop, and stored when that is done.
        """
        record = ctx.record
        capture = ctx.capture if record.outcome is Outcome.COMPLETED else None
        store = partial(
            self._cache.store,
            lookup,
            is_lasting=is_as_requested,
            request_id=record.request_id,
            deployment=record.deployment,
            usage=record.usage,
        )
        if record.usage is not None and record.usage.predicted_tokens is not None:
            store = partial(_store_plain, store)
        if capture is None or not capture.is_long:
            store(None if capture is None else capture.completion())
            return
        if ctx.semantic_lookup is not None:
            ctx.semantic_lookup.expect_answer()
        ctx.lookup = None  # it outlives this request
        self._tasks.spawn(_store_later(store, lookup, capture), "store_response")

    async def aclose(self) -> None:
        """Cancel what is not stored yet."""
        await self._tasks.cancel()


def _store_plain(store: Callable[[bytes | None], None], completion: bytes | None) -> None:
    """Store a response without the counts of a prediction that belonged to one request."""
    store(None if completion is None else without_prediction_counts(completion))


async def _store_later(store: Callable[[bytes | None], None], lookup: CacheLookup, capture: Capture) -> None:
    try:
        store(await capture.completed())
    finally:
        lookup.drop()  # followers of a response that cannot be stored look for another
