"""OpenQuotes: the quotes of this process that may still be sent back, and the permits that they hold."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Final, TypeVar

import msgspec

from gateway.chat.request import ChatRequest
from gateway.deployments.live import LiveDeployment
from gateway.limits.permit import AdmissionRequest
from gateway.quotes.reserved_permit import PermitReservation
from gateway.routing.planned_route import PlannedRoute
from gateway.routing.routing_request import RoutingRequest
from gateway.timeline import Clock

K = TypeVar("K")

PERMIT_DIVISOR: Final = 4
"""All quotes together hold at most this part of a deployment's permits."""
_LEAST_DELAY_S: Final = 0.001
MAX_USED: Final = 10_000
"""Ids of used quotes that are remembered; they are forgotten when they expire, or the oldest beyond this number."""


class OpenQuote(msgspec.Struct, frozen=True, kw_only=True):
    """One quote with a reserved permit, and the form in which its request was admitted."""

    id: str
    tenant: str
    policy: str
    """Revision of the policy that admitted it."""
    route: str
    admission_request: AdmissionRequest
    request: ChatRequest | None
    """Request after the cuts of the degradation ladder; None without cuts, since the client sends it again."""
    avoid: frozenset[str]
    stand_in: PlannedRoute | None
    """Route that supplies the deployment instead of the request's own."""
    routing_request: RoutingRequest | None
    """Price and history of the request; None where another process gave the quote, so that this one computes them."""
    degraded: tuple[str, ...]
    trimmed: tuple[tuple[str, int], ...]
    reserved: PermitReservation
    expires_at: float
    """Monotonic instant."""


class OpenQuotes:
    """Quotes by id, in the order of their ends. Instants are those of the injected clock."""

    def __init__(self, clock: Clock, *, num_processes: int = 1, on_lapse: Callable[[], None] = lambda: None) -> None:
        """Create an empty collection.

        Args:
            clock: Monotonic clock.
            num_processes: Number of processes that share the deployments' permits.
            on_lapse: Callback for each quote that expired unused.
        """
        self._clock = clock
        self._num_processes = num_processes
        self._on_lapse = on_lapse
        self._open: dict[str, OpenQuote] = {}
        self._by_tenant: Counter[str] = Counter()
        self._by_deployment: Counter[LiveDeployment] = Counter()
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._used: dict[str, float] = {}

    def __len__(self) -> int:
        return len(self._open)

    def may_hold(self, tenant: str, live: LiveDeployment, max_held: int) -> bool:
        """Return whether one more permit may be held for a tenant at a deployment.

        A deployment with fewer than two permits for each process is never held.
        """
        self.expire()
        limit = live.limiter.limit
        most = max(limit // (PERMIT_DIVISOR * self._num_processes), int(limit >= 2 * self._num_processes))
        return self._by_tenant[tenant] < max_held and self._by_deployment[live] < most

    def add(self, quote: OpenQuote) -> None:
        """Hold a quote until it expires; the event loop ends it even when no other quote comes."""
        self._open[quote.id] = quote
        self._by_tenant[quote.tenant] += 1
        self._by_deployment[quote.reserved.live] += 1
        self._watch_end(quote)

    def take(self, quote_id: str) -> OpenQuote | None:
        """Remove and return a quote; None once it has expired or was taken."""
        self.expire()
        quote = self._open.pop(quote_id, None)
        if quote is not None:
            self._uncount(quote)
        return quote

    def use_once(self, quote_id: str, expires_at: float) -> bool:
        """Return whether a quote is used for the first time in this process."""
        if quote_id in self._used:
            return False
        now = self._clock()
        for old in [old for old, until in self._used.items() if until <= now]:
            del self._used[old]
        if len(self._used) >= MAX_USED:
            del self._used[next(iter(self._used))]
        self._used[quote_id] = expires_at
        return True

    def expire(self) -> None:
        """Return the permits of the quotes whose time is over."""
        now = self._clock()
        for quote in [quote for quote in self._open.values() if quote.expires_at <= now]:
            del self._open[quote.id]
            self._uncount(quote)
            quote.reserved.release()
            self._on_lapse()

    def close(self) -> None:
        """Return all permits, at the end of the process."""
        while self._open:
            _, quote = self._open.popitem()
            self._uncount(quote)
            quote.reserved.release()

    def _watch_end(self, quote: OpenQuote) -> None:
        """Let the event loop end a quote; a timer that comes before the clock's instant is set again."""
        self.expire()
        if quote.id in self._open:
            delay_s = max(quote.expires_at - self._clock(), _LEAST_DELAY_S)
            self._timers[quote.id] = asyncio.get_running_loop().call_later(delay_s, self._watch_end, quote)

    def _uncount(self, quote: OpenQuote) -> None:
        timer = self._timers.pop(quote.id, None)
        if timer is not None:
            timer.cancel()
        _subtract(self._by_tenant, quote.tenant)
        _subtract(self._by_deployment, quote.reserved.live)


def _subtract(counts: Counter[K], key: K) -> None:
    counts[key] -= 1
    if not counts[key]:
        del counts[key]
