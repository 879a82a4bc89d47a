"""OutstandingRequests: the gateway's requests at one deployment, by lane and by phase."""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import Final

from gateway.deployments.flight import InFlightRequest
from routing_policies.estimation.estimators import TINY_BUSY_S, DrainRate

_RATE_WINDOW_S: Final = 5.0
_MAX_OVERTAKEN: Final = 8
_LEAST_LEFT: Final = 0.1
"""Share of the waiting prompt tokens that is surely not computed yet."""
TINY_S: Final = 1e-4
"""Smallest forecast in seconds; smaller ones are raised to it."""


class PromptQueue:
    """Requests of one lane without a first token, oldest first; lanes do not wait for each other."""

    __slots__ = (
        "_begun_sent_at",
        "_drain",
        "_head_since",
        "_is_next_known",
        "_next",
        "_seen_sent_at",
        "flights",
        "tokens",
    )

    def __init__(self) -> None:
        self._drain = DrainRate(window_s=_RATE_WINDOW_S)
        self._head_since = 0.0
        """Instant since which the oldest request is the oldest, a lower bound on the time spent on its prompt."""
        self._begun_sent_at = 0.0
        """Sending time of the latest request whose first token was observed or assumed."""
        self._seen_sent_at = 0.0
        """Sending time of the latest request whose first token was observed, not assumed."""
        self._next: InFlightRequest | None = None
        self._is_next_known = True
        """True if `_next` is the result of `next_up`."""
        self.flights: OrderedDict[InFlightRequest, None] = OrderedDict()
        self.tokens = 0
        """Number of uncached prompt tokens of all requests."""

    def add(self, flight: InFlightRequest, now: float) -> None:
        """Add a request that is sent."""
        if not self.flights:
            self._head_since = now
            self._drain.start(now)
        if self._next is None:
            self._is_next_known = False
        self.flights[flight] = None
        self.tokens += flight.price.uncached_tokens

    def remove(self, flight: InFlightRequest, now: float) -> None:
        """Remove a request that has a first token or has ended."""
        flights, tokens = self.flights, flight.price.uncached_tokens
        is_head = next(iter(flights)) is flight
        del flights[flight]
        if self._next is flight or self._next is None:
            self._next, self._is_next_known = None, False
        self.tokens -= tokens
        self._drain.leave(now, tokens, is_last=not flights)
        if is_head:
            self._head_since = now

    def note_begun(self, flight: InFlightRequest, *, is_assumed: bool = False) -> None:
        """Record that a request has its first token, or is assumed to have it."""
        if not is_assumed and flight.sent_at > self._seen_sent_at:
            self._seen_sent_at = flight.sent_at
        if flight.sent_at > self._begun_sent_at:
            self._begun_sent_at = flight.sent_at
            self._next, self._is_next_known = None, False

    def has_begun_since(self, flight: InFlightRequest) -> bool:
        """Return whether the first token of a request that was sent later was observed."""
        return flight.sent_at < self._seen_sent_at

    def next_up(self) -> InFlightRequest | None:
        """Return the oldest request that no later one has overtaken; an overtaken one waits for a reason of its own."""
        if not self._is_next_known:
            self._next, self._is_next_known = self._find_next(), True
        return self._next

    def _find_next(self) -> InFlightRequest | None:
        for checked, flight in enumerate(self.flights):
            if flight.sent_at >= self._begun_sent_at:
                return flight
            if checked == _MAX_OVERTAKEN:
                return None
        return None

    def look(self, now: float) -> tuple[float, float]:
        """Return the prompt tokens not computed yet, and the wait of `next_up` as a multiple of its forecast.

        The multiple is 0 for a request without a stream, whose first token is not observed. Called only while requests
        wait.
        """
        oldest, late = self._next if self._is_next_known else self.next_up(), 0.0
        if oldest is not None and oldest.is_stream:
            forecast_s = oldest.forecast_ttft_s
            late = (now - oldest.sent_at) / (forecast_s if forecast_s > TINY_S else TINY_S)
        drain, tokens = self._drain, self.tokens
        busy_s = drain.busy_s
        if busy_s <= TINY_BUSY_S:
            return float(tokens), late
        left, least = tokens - drain.units / busy_s * (now - self._head_since), _LEAST_LEFT * tokens
        return left if left > least else least, late


class OutstandingRequests:
    """Requests in flight of one DeploymentForecast.

    A request without a stream shows no first token; it is assumed to come at its forecast time.
    """

    __slots__ = ("_assumed", "_plain", "_queues", "most_seqs", "num_pending", "num_seqs")

    def __init__(self) -> None:
        self._queues: dict[str, PromptQueue] = {}
        """Queues by the engine's lanes."""
        self._plain: deque[InFlightRequest] = deque()
        """Pending requests that will show no first token, oldest first; some may have ended."""
        self._assumed: set[InFlightRequest] = set()
        """Requests whose first token is assumed to have come."""
        self.num_pending = 0
        """Number of requests without a first token."""
        self.num_seqs = 0
        """Number of sequences that decode."""
        self.most_seqs = 1
        """Largest number of rows so far; beyond it the capacity is unknown."""

    def send(self, flight: InFlightRequest, now: float) -> None:
        """Add a request that is sent."""
        queue = self._queues.get(flight.lane)
        if queue is None:
            queue = self._queues[flight.lane] = PromptQueue()
        queue.add(flight, now)
        self.num_pending += 1
        if not flight.is_stream:
            self._plain.append(flight)

    def send_unseen(self) -> None:
        """Add a request without a stream that is not tracked, counted as decoding from the start.

        Tracking each of very many is too costly; their waits are learned from those that are tracked.
        """
        self.num_seqs += 1
        if self.num_seqs > self.most_seqs:
            self.most_seqs = self.num_seqs

    def end_unseen(self) -> None:
        """Remove a request that is not tracked."""
        self.num_seqs -= 1

    def begin_answer(self, flight: InFlightRequest, now: float, *, is_assumed: bool = False) -> None:
        """Record a request's first token, observed or assumed."""
        queue = self._queues[flight.lane]
        queue.remove(flight, now)
        queue.note_begun(flight, is_assumed=is_assumed)
        self.num_pending -= 1
        self.num_seqs += 1
        if self.num_seqs > self.most_seqs:
            self.most_seqs = self.num_seqs

    def is_overtaken(self, flight: InFlightRequest) -> bool:
        """Return whether the first token of a request of its lane that was sent later was observed."""
        return self._queues[flight.lane].has_begun_since(flight)

    def end(self, flight: InFlightRequest, now: float) -> None:
        """Remove a request that has ended, in either phase."""
        queue = self._queues[flight.lane]
        if flight in queue.flights:
            queue.remove(flight, now)
            self.num_pending -= 1
        else:
            self._assumed.discard(flight)
            self.num_seqs -= 1

    def look(self, now: float, lane: str) -> tuple[float, float, float, float]:
        """Return the uncomputed prompt tokens and the delays of the lanes.

        Returns:
            The uncomputed prompt tokens in the lane and in all others; the wait of the lane's next request as a
                multiple of its
            forecast, and the largest such multiple of any lane.
        """
        if self._plain:
            self._assume(now)
        own = others = late = latest = 0.0
        if self.num_pending:
            for name, queue in self._queues.items():
                if not queue.flights:
                    continue
                left, waited = queue.look(now)
                if name == lane:
                    own, late = left, waited
                else:
                    others += left
                if waited > latest:
                    latest = waited
        return own, others, late, latest

    def _assume(self, now: float) -> None:
        """Record the first tokens of requests without a stream whose forecast time has come."""
        while self._plain:
            flight = self._plain[0]
            is_pending = flight in self._queues[flight.lane].flights
            if is_pending and now < flight.sent_at + flight.forecast_ttft_s:
                return
            self._plain.popleft()
            if is_pending:
                self._assumed.add(flight)
                self.begin_answer(flight, now, is_assumed=True)

    def check_integrity(self) -> None:
        """Check the invariants, for tests and idle moments; raises AssertionError."""
        assert self.num_seqs >= len(self._assumed), "an answer ended twice"
        pending = [flight for queue in self._queues.values() for flight in queue.flights]
        assert self.num_pending == len(pending)
        assert not self._assumed & set(pending)
        for queue in self._queues.values():
            assert queue.tokens == sum(flight.price.uncached_tokens for flight in queue.flights)
