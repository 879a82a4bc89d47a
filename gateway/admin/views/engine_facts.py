"""EngineFacts: counters of our own engines that their load feed leaves out, fetched while a page is open."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec

from gateway.deployments.live import LiveDeployment
from gateway.timeline import Clock
from gateway.upstreams.http1.errors import UpstreamError
from gateway.upstreams.http1.request import ExchangeTimeouts, UpstreamRequest

_MIN_AGE_S: Final = 2.0
_TIMEOUTS: Final = ExchangeTimeouts(connect_s=0.5, first_byte_s=1.0, total_s=1.5)
_METRICS: Final = UpstreamRequest(b"GET", b"/metrics", ((b"accept", b"text/plain"),))
_MAX_BYTES: Final = 512 * 1024
_WANTED: Final = {
    "engine_prefix_cache_queries_tokens_total": "prefix_queried_tokens",
    "engine_prefix_cache_hits_tokens_total": "prefix_hit_tokens",
    "engine_speculation_drafted_tokens_total": "drafted_tokens",
    "engine_speculation_accepted_tokens_total": "accepted_tokens",
    "engine_speculation_enabled": "speculates",
    "engine_preemptions_total": "preemptions",
    "engine_generation_tokens_total": "generated_tokens",
}


class EngineCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Counters of one engine since its start."""

    prefix_queried_tokens: int = 0
    prefix_hit_tokens: int = 0
    drafted_tokens: int = 0
    accepted_tokens: int = 0
    preemptions: int = 0
    generated_tokens: int = 0
    speculates: bool = False


class EngineFacts:
    """The counters of all our engines; each engine is read at most every other second."""

    def __init__(self, deployments: Callable[[], Iterable[LiveDeployment]], clock: Clock) -> None:
        self._deployments = deployments
        self._clock = clock
        self._requested_at = -_MIN_AGE_S
        self._found: dict[str, EngineCounts] = {}
        self._requesting: asyncio.Task[None] | None = None

    def of(self, deployment: str) -> EngineCounts | None:
        """Return an engine's last report, None where the deployment is no engine of ours."""
        return self._found.get(deployment)

    async def refresh(self) -> None:
        """Request again unless that was just done."""
        self.refresh_soon()
        if self._requesting is not None:
            await asyncio.shield(self._requesting)

    def refresh_soon(self) -> None:
        """Start a refresh without waiting for the answers."""
        now = self._clock()
        if self._requesting is None and now - self._requested_at >= _MIN_AGE_S:
            self._requested_at = now
            self._requesting = asyncio.get_running_loop().create_task(self._request_all(), name="engine facts")

    async def aclose(self) -> None:
        """Leave off."""
        if self._requesting is not None:
            self._requesting.cancel()
            await asyncio.gather(self._requesting, return_exceptions=True)

    async def _request_all(self) -> None:
        try:
            bare = [live for live in self._deployments() if live.is_bare]
            answers = await asyncio.gather(*(_request(live) for live in bare))
            pairs = zip(bare, answers, strict=True)
            self._found = {live.id: counts for live, counts in pairs if counts is not None}
        finally:
            self._requesting = None


async def _request(live: LiveDeployment) -> EngineCounts | None:
    try:
        async with await live.client.send(_METRICS, _TIMEOUTS) as response:
            return _counts(await response.read(_MAX_BYTES)) if response.status == 200 else None
    except UpstreamError:
        return None


def _counts(text: bytes) -> EngineCounts | None:
    """Parse Prometheus' text format; None when it contains none of the names."""
    found: dict[str, Any] = {}
    for line in text.decode("utf-8", "replace").splitlines():
        name, _, value = line.partition(" ")
        if name in _WANTED:
            try:
                found[_WANTED[name]] = int(float(value))
            except (ValueError, OverflowError):
                continue
    if not found:
        return None
    return EngineCounts(**{**found, "speculates": bool(found.get("speculates", 0))})
