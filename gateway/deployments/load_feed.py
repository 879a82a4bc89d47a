"""LoadFeeds: listeners to the load of engines, off the request path.

The engine of this project publishes a feed of reports. Other engines publish gauges, which are read every second. A
server with neither is left alone for a while.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

from gateway.deployments.engine_metrics import parse_metrics
from gateway.deployments.live import LiveDeployment
from gateway.deployments.load_report import parse_event
from gateway.timeline import Clock
from gateway.upstreams.http1.errors import UpstreamError
from gateway.upstreams.http1.request import ExchangeTimeouts, UpstreamRequest
from gateway.upstreams.http1.response import UpstreamResponse
from gateway.upstreams.http1.sse import SseDecoder, SseError

LOOK_INTERVAL_S: Final = 1.0
FEED_TIMEOUTS: Final = ExchangeTimeouts(connect_s=1.0, first_byte_s=2.0, inter_chunk_s=2.0)
RETRY_S: Final = 0.5
MAX_RETRY_S: Final = 15.0
SILENT_S: Final = 60.0
"""Seconds until a server without a load feed is tried again, as another server may run there by then."""

METRICS_INTERVAL_S: Final = 1.0
METRICS_FRESH_S: Final = 1.5
"""Age in seconds up to which gauges describe the load; one reading may fail to arrive in time."""

_FEED: Final = UpstreamRequest(b"GET", b"/engine/load", ((b"accept", b"text/event-stream"),))
_METRICS: Final = UpstreamRequest(b"GET", b"/metrics", ((b"accept", b"text/plain"),))
_MAX_EVENT_BYTES: Final = 64 * 1024
_MAX_METRICS_BYTES: Final = 4 * 1024 * 1024


class LoadFeeds:
    """One listener for each deployment whose URL is a server's root; the set of deployments is read every second."""

    def __init__(
        self,
        deployments: Callable[[], Iterable[LiveDeployment]],
        clock: Clock,
        *,
        interval_s: float = LOOK_INTERVAL_S,
    ) -> None:
        self._deployments = deployments
        self._clock = clock
        self._interval_s = interval_s
        self._listeners: dict[LiveDeployment, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Follow the set of deployments until cancelled, then cancel all listeners.

        A listener's unexpected error ends all of them and is raised here.
        """
        try:
            while True:
                await asyncio.sleep(self._interval_s)
                self._follow()
        finally:
            listeners = tuple(self._listeners.values())
            for listener in listeners:
                listener.cancel()
            await asyncio.gather(*listeners, return_exceptions=True)
            self._listeners.clear()

    def _follow(self) -> None:
        """Start listeners for new deployments, and end those of deployments that are gone."""
        for listener in self._listeners.values():
            if listener.done():
                listener.result()
        current = {live for live in self._deployments() if live.is_bare}
        for live in self._listeners.keys() - current:
            self._listeners.pop(live).cancel()
        for live in current - self._listeners.keys():
            listener = asyncio.get_running_loop().create_task(self._listen(live), name=f"load {live.id}")
            self._listeners[live] = listener

    async def _listen(self, live: LiveDeployment) -> None:
        pause_s = RETRY_S
        while True:
            try:
                has_feed = await self._hear(live)
                if not has_feed:
                    await self._read_metrics(live)
            except (UpstreamError, SseError):
                has_feed = True  # unknown; readiness and health decide whether the server is up
            if not has_feed:
                pause_s = SILENT_S
            elif live.forecast.age_s(self._clock()) < MAX_RETRY_S:  # it reported just now
                pause_s = RETRY_S
            else:
                pause_s = min(pause_s * 2, MAX_RETRY_S)
            live.forecast.note_no_report()
            await asyncio.sleep(pause_s)

    async def _read_metrics(self, live: LiveDeployment) -> None:
        """Adopt the gauges of another engine every second, until it no longer publishes them.

        Raises:
            UpstreamError: The connection failed.
        """
        while True:
            async with await live.client.send(_METRICS, FEED_TIMEOUTS) as response:
                page = await response.read(_MAX_METRICS_BYTES) if response.status == 200 else b""
            report = parse_metrics(page)
            if report is None:
                return
            live.forecast.note_report(self._clock(), report, fresh_s=METRICS_FRESH_S)
            await asyncio.sleep(METRICS_INTERVAL_S)

    async def _hear(self, live: LiveDeployment) -> bool:
        """Follow the feed until it ends; return False when there is none.

        Raises:
            UpstreamError: The connection failed.
            SseError: The feed is malformed.
        """
        async with await live.client.send(_FEED, FEED_TIMEOUTS) as response:
            if response.status >= 500:  # it is starting or failing
                return True
            if not _is_feed(response):
                return False
            decoder = SseDecoder(_MAX_EVENT_BYTES)
            async for piece in response.chunks():
                events = decoder.feed(piece)
                report = parse_event(events[-1].data) if events else None  # only the latest event is current
                if report is not None:
                    now = self._clock()
                    live.forecast.note_report(now, report)
                    live.note_stated(now, report.state)
                    live.note_adapters(report.adapters)
                    if report.is_computing:
                        live.health.note_progress(now)
            return True


def _is_feed(response: UpstreamResponse) -> bool:
    return response.status == 200 and response.is_events
