"""LiveFeed: server-sent events for open pages, one a second. It runs and stores nothing while no page is open.

All pages of a topic get their events at the same moments, so that each document is made once for all of them. The
topics have their moments one after another, so that the event loop is never busy for long.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Hashable
from contextlib import suppress
from functools import partial
from typing import Any, Final, TypeVar

from starlette.responses import Response, StreamingResponse

from gateway.admin.api.request import AdminRequest, serves
from gateway.admin.handlers.requests import Position, RequestHandlers, filters
from gateway.admin.views.view import DEFAULT_WINDOW_S, View
from gateway.api.application import NO_STORE, encode_json
from gateway.errors import ErrorType, GatewayError, InvalidRequest
from gateway.http.asgi import Receive, Scope, Send
from gateway.telemetry.records.recent import Filter
from gateway.telemetry.window import STEP_S, WINDOWS_S
from gateway.timeline import Clock

T = TypeVar("T")

LIVE_PATH: Final = "/admin/api/live"
MAX_SUBSCRIBERS: Final = 32
PERIOD_S: Final = 1.0
_PHASES: Final = {"overview": 0.0, "deployments": 0.25, "load": 0.5, "requests": 0.75}
"""Offset of each topic's moment in a period, in periods."""
_MAX_NEW: Final = 100
"""Maximum number of requests in one event; beyond it, only the newest are sent."""
_RETRY_MS: Final = 2000
_EVENT_STREAM: Final = "text/event-stream"
MAX_STREAM_S: Final = 600.0
"""Longest life of a stream. Then a page has to call again, so that an expired login ends it."""
_SLACK_S: Final = 0.002
"""Margin for a timer that fires a millisecond early and would find the period before."""


class TooManyPages(GatewayError):
    """503: the limit of open pages is reached."""

    status = 503
    type: ErrorType = "service_unavailable_error"
    code = "too_many_live"


class LiveFeed:
    """`GET /admin/api/live?topic=`. A page that reads slowly misses events and delays no other page."""

    def __init__(self, view: View, requests: RequestHandlers, *, clock: Clock) -> None:
        self._view = view
        self._requests = requests
        self._clock = clock
        self._made: dict[str, tuple[int, dict[Hashable, Any]]] = {}
        """The documents made for each topic, with their period."""
        self.num_subscribers = 0

    @serves(LIVE_PATH)
    async def subscribe(self, request: AdminRequest) -> Response:
        """Stream events to one page until it leaves or the server stops. Raises InvalidRequest or TooManyPages."""
        feed = self._feed(request)
        if request.method == "HEAD":
            return Response(headers=NO_STORE, media_type=_EVENT_STREAM)
        if self.num_subscribers >= MAX_SUBSCRIBERS:
            raise TooManyPages(f"{MAX_SUBSCRIBERS} pages are open already; close one, or read the API without live.")
        return _FeedResponse(self, self._events(feed, request.scope["state"].get("draining")))

    async def _events(self, feed: _Feed, draining: asyncio.Event | None) -> AsyncIterator[bytes]:
        yield b"retry: %d\n\n" % _RETRY_MS
        over_at = self._clock() + MAX_STREAM_S
        while self._clock() < over_at and not (draining is not None and draining.is_set()):
            yield feed.event()
            wait_s = PERIOD_S - (self._clock() + feed.phase_s) % PERIOD_S + _SLACK_S
            await _sleep(wait_s, draining)
        yield b"event: over\ndata: {}\n\n"

    def enter(self) -> None:
        """Count a page in."""
        self.num_subscribers += 1

    def leave(self) -> None:
        """Count a page out; the last page's documents go with it."""
        self.num_subscribers -= 1
        if not self.num_subscribers:
            self._made.clear()

    def _feed(self, request: AdminRequest) -> _Feed:
        topic = request.text("topic") or "overview"
        window_s = request.choice("window", DEFAULT_WINDOW_S, WINDOWS_S)
        if topic == "requests":
            after = request.integer("after", 0, least=0, most=2**53)
            return _NewRequests(self, self._requests, after, filters(request))
        if topic not in ("overview", "deployments", "load"):
            raise InvalidRequest("topic: expected overview, requests, deployments or load.", param="topic")
        return _Documents(self, topic, window_s)

    def period(self, topic: str) -> int:
        """Return the number of the topic's current period of PERIOD_S, which begins at the topic's moment."""
        return int((self._clock() + _PHASES[topic] * PERIOD_S) / PERIOD_S)

    def once(self, topic: str, key: Hashable, make: Callable[[], T]) -> T:
        """Return the result of `make`, called once in a period for all pages with the same key."""
        period, (made_in, made) = self.period(topic), self._made.get(topic, (-1, {}))
        if made_in != period:
            made = {}
            self._made[topic] = period, made
        if key not in made:
            made[key] = make()
        found: T = made[key]
        return found

    def document(self, topic: str, window_s: int, *, is_whole: bool) -> bytes:
        """Return the event of one topic."""
        if topic == "overview":
            document = self._view.overview(window_s, with_series=is_whole)
        elif topic == "deployments":
            self._view.refresh_engines()
            document = self._view.deployments(window_s)
        else:
            document = self._view.load(window_s)
        return _event(topic, document)


class _FeedResponse(StreamingResponse):
    """The stream of one page, counted for as long as it is open."""

    def __init__(self, owner: LiveFeed, events: AsyncIterator[bytes]) -> None:
        super().__init__(events, headers={**NO_STORE, "content-type": _EVENT_STREAM})
        self._owner = owner
        owner.enter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._owner.leave()


class _Feed:
    """The stream of events for one page."""

    def __init__(self, owner: LiveFeed, topic: str) -> None:
        self._owner = owner
        self._topic = topic
        self.phase_s = _PHASES[topic] * PERIOD_S

    def event(self) -> bytes:
        """Return the next event."""
        raise NotImplementedError


class _Documents(_Feed):
    """A whole document in each event, with charts only when one of their steps is over."""

    def __init__(self, owner: LiveFeed, topic: str, window_s: int) -> None:
        super().__init__(owner, topic)
        self._window_s = window_s
        self._is_first = True

    def event(self) -> bytes:
        """Implement `_Feed.event`."""
        is_whole = self._is_first or self._owner.period(self._topic) % int(STEP_S / PERIOD_S) == 0
        self._is_first = False
        made = partial(self._owner.document, self._topic, self._window_s, is_whole=is_whole)
        return self._owner.once(self._topic, (self._window_s, is_whole), made)


class _NewRequests(_Feed):
    """Requests that finished since the last event."""

    def __init__(self, owner: LiveFeed, requests: RequestHandlers, after: int, where: dict[Filter, str]) -> None:
        super().__init__(owner, "requests")
        self._requests = requests
        self._after = Position(after, {})
        self._where = where

    def event(self) -> bytes:
        """Implement `_Feed.event`."""
        key = tuple(self._where.items()), self._after.own, tuple(self._after.others.items())
        event, self._after = self._owner.once(self._topic, key, self._make)
        return event

    def _make(self) -> tuple[bytes, Position]:
        document, after = self._requests.listed(after=self._after, limit=_MAX_NEW, where=self._where)
        return _event("requests", document), after


def _event(topic: str, document: dict[str, Any]) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (topic.encode("ascii"), encode_json(document))


async def _sleep(seconds: float, draining: asyncio.Event | None) -> None:
    """Wait so long, or until the server stops."""
    if draining is None:
        await asyncio.sleep(seconds)
        return
    with suppress(TimeoutError):
        await asyncio.wait_for(draining.wait(), seconds)
