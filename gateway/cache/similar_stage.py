"""SimilarAnswers: the semantic tier in a request's way through the pipeline."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from functools import partial
from typing import Any, Final, Protocol

from gateway.cache.audit.route_book import RouteBook, RouteBooks, Whose
from gateway.cache.cache_race import Race
from gateway.cache.exact.answers import Lookup
from gateway.cache.exact.entry import CacheEntry
from gateway.cache.exact.needs import needs_of
from gateway.cache.semantic.guards import guard_of
from gateway.cache.semantic.quest import Quest
from gateway.cache.semantic.semantic import Embeds, Finding, SemanticTier
from gateway.chat.request import ChatRequest
from gateway.forwarding.dispatch import Dispatch
from gateway.request_context import Turn
from gateway.routing.planned_route import PlannedRoute
from gateway.telemetry.records.record import CacheResult, Neighbourhood
from gateway.timeline import Clock, Stage

MODE: Final = "exact_then_semantic"


class Audits(Protocol):
    """Whoever wants to know what became of similar answers; never waits and never fails."""

    def served(self, turn: Turn, request: ChatRequest, planned: PlannedRoute, quest: Quest) -> None:
        """A similar answer is given."""
        ...

    def compare(self, request_id: str, quest: Quest, finding: Finding, fresh: CacheEntry) -> None:
        """One might have been given, and a deployment has answered."""
        ...


class SimilarAnswers:
    """Looks beside or before the deployment is asked, whichever costs less; routes without it never come here."""

    __slots__ = ("_audits", "_books", "_clock", "_embedder", "_tier", "_wall", "_workers")

    def __init__(
        self,
        tier: SemanticTier,
        embedder: Embeds,
        books: RouteBooks,
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

    def note_request(self, turn: Turn, planned: PlannedRoute) -> None:
        """One of those whose wrong answers are bounded."""
        self._book(turn, planned).note_request(self._wall())

    async def look(self, turn: Turn, request: ChatRequest, planned: PlannedRoute, lookup: Lookup) -> Lookup | None:
        """A similar answer, if that is worth waiting for; if not, `race` looks."""
        book = self._book(turn, planned)
        turn.seek = partial(self._begin, turn, request, planned, lookup, book)
        if planned.encoders:  # the router wants the vector too, before anybody is asked
            turn.seek()
        if lookup.result is not CacheResult.MISS or not book.order.waits(_load(planned)):
            return None
        quest = turn.quest if turn.seek is None else turn.seek()
        if quest is None:
            return None
        await quest.done
        turn.record.timeline.charge(Stage.CACHE, quest.search_s)
        turn.mark(Stage.EMBED)
        return self._found(turn, request, planned, quest)

    async def race(
        self, turn: Turn, request: ChatRequest, planned: PlannedRoute, forward: Coroutine[Any, Any, None]
    ) -> Lookup | None:
        """Let the deployment answer unless a similar answer is found sooner. Raises what `forward` does.

        Looking begins when the request is on its way, or waits for a permit: until then it would make a miss late.
        """
        race, timeline = Race(turn), turn.record.timeline

        def look() -> None:
            quest = turn.quest if turn.seek is None else turn.seek()
            if quest is not None:
                race.watch(quest)

        dispatch = Dispatch(forward, self._clock, look)
        async with race:
            await dispatch
        quest = turn.quest
        if quest is None:  # nothing similar may be given, or there was nothing to wait for
            return None
        if quest.finding is not None:
            timeline.spent[Stage.EMBED] = quest.embed_s  # it ran beside other stages: their sum is above the total
        if race.is_lost:
            quest.book.order.note_called_off(dispatch.worked_s)
            return self._found(turn, request, planned, quest)
        if turn.record.cache is CacheResult.MISS:
            turn.record.cache_reason = quest.reason
        self._note_neighbour(turn, quest)
        first_byte_s = timeline.spent[Stage.UPSTREAM_FIRST_BYTE]
        if first_byte_s is not None:
            quest.book.order.note_upstream(first_byte_s)
        return None

    def _begin(
        self, turn: Turn, request: ChatRequest, planned: PlannedRoute, lookup: Lookup, book: RouteBook
    ) -> Quest | None:
        turn.seek = None
        key, wanted, record = lookup.key, lookup.wanted, turn.record
        assert key is not None, "what may be kept has a key"
        assert wanted is not None, "and somebody who wants it kept"
        is_miss = lookup.result is CacheResult.MISS
        reason = guard_of(request, wanted.rule)
        if reason is not None or key.text is None or not self._embedder.is_ready:
            if is_miss:
                record.cache_reason = reason or "no_vector"
            return None
        quest = turn.quest = Quest(
            self._tier,
            turn.vector(self._embedder, key.text),
            key=key,
            wanted=wanted,
            whose=Whose(record.tenant, record.route),
            book=book,
            clock=self._clock,
            workers=self._workers,
            looks=is_miss,
            needs=needs_of(request),
        )
        request_id = record.request_id
        quest.on_other = lambda quest, finding, fresh: self._audits.compare(request_id, quest, finding, fresh)
        lookup.on_kept = quest.kept
        return quest

    def _found(self, turn: Turn, request: ChatRequest, planned: PlannedRoute, quest: Quest) -> Lookup | None:
        finding = quest.finding
        if finding is None or not finding.is_hit or finding.entry is None:
            if finding is not None:
                turn.record.cache_reason = finding.reason
            return None
        entry, now = finding.entry, self._wall()
        self._tier.use(entry)
        turn.record.cache, turn.record.cache_reason = CacheResult.HIT_SEMANTIC, "similar"
        self._note_neighbour(turn, quest)
        quest.book.note_hit(now, quest.key.exact, entry.exact, finding.careful_chance)
        self._audits.served(turn, request, planned, quest)
        age_s = max(0.0, now - entry.created_at)
        return Lookup(CacheResult.HIT_SEMANTIC, "similar", answer=entry.answer, age_s=age_s, entry_id=entry.id)

    def _note_neighbour(self, turn: Turn, quest: Quest) -> None:
        finding = quest.finding
        if finding is not None and finding.entry is not None:
            turn.record.neighbour = Neighbourhood(
                entry_id=finding.entry.id,
                similarity=finding.similarity,
                runner_up=finding.runner_up,
                chance_right=finding.chance,
                floor=finding.floor,
                served=turn.record.cache is CacheResult.HIT_SEMANTIC,
                why=turn.record.cache_reason,
            )

    def _book(self, turn: Turn, planned: PlannedRoute) -> RouteBook:
        return self._books.of(Whose(turn.record.tenant, planned.route.id))


def _load(planned: PlannedRoute) -> float:
    """Of the least loaded candidate: 1 when requests wait even there."""
    return min(
        1.0 if live.limiter.num_waiting else live.in_flight / live.limiter.limit for live, _ in planned.candidates
    )
