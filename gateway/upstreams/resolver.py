"""Resolver: addresses of host names, by a bounded number of threads, one lookup at a time per name, cached.

The operating system's resolver hides the record's TTL, so answers are fresh for `ttl_s` (30 s by default). After that
they are looked up again. While the lookup fails, or takes long, the last answer serves for `stale_s` (300 s). A name
server that is down or silent for a minute thus does not take healthy upstreams with it.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Final

from gateway.upstreams.http1.errors import ResolveError
from gateway.util.workers import Workers

Lookup = Callable[[str], list[str]]

PATIENCE_S: Final = 0.2
"""Longest wait for a new lookup where an earlier answer is known."""


def system_lookup(host: str) -> list[str]:
    """Return the operating system's addresses in its order of preference; blocks, and raises OSError."""
    answers = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(answer[4][0]) for answer in answers))


@dataclass(frozen=True, slots=True)
class _Answer:
    addresses: tuple[str, ...]
    at: float


class Resolver:
    """Cache of lookups made off the event loop; one serves any number of clients on one loop."""

    def __init__(
        self,
        *,
        clock: Callable[[], float],
        ttl_s: float = 30.0,
        stale_s: float = 300.0,
        max_threads: int = 2,
        lookup: Lookup = system_lookup,
    ) -> None:
        self._clock = clock
        self._ttl_s = ttl_s
        self._stale_s = stale_s
        self._lookup = lookup
        self._threads = Workers(max_threads, name="resolve")  # starts none until used
        self._answers: dict[str, _Answer] = {}
        self._pending: dict[str, asyncio.Future[list[str]]] = {}

    async def resolve(self, host: str) -> tuple[str, ...]:
        """Return the addresses to try, in order and never empty; raises ResolveError."""
        if _is_address(host):
            return (host,)
        known = self._answers.get(host)
        if known is not None:
            age_s = self._clock() - known.at
            if age_s < self._ttl_s:
                return known.addresses
            if age_s >= self._stale_s:
                known = None
        pending = self._pending.get(host)
        if pending is None:
            pending = self._start(host)
        elif known is not None:
            return known.addresses
        try:
            async with asyncio.timeout(None if known is None else PATIENCE_S):
                addresses = tuple(await asyncio.shield(pending))
        except (OSError, UnicodeError) as error:  # TimeoutError included
            if known is not None:
                return known.addresses
            raise ResolveError(f"{host}: no address found ({error})") from error
        if not addresses:
            raise ResolveError(f"{host}: no address found")
        return addresses

    def close(self) -> None:
        """Start no more lookups; one that hangs in the operating system ends by itself."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _start(self, host: str) -> asyncio.Future[list[str]]:
        future = asyncio.get_running_loop().run_in_executor(self._threads, self._lookup, host)
        self._pending[host] = future
        future.add_done_callback(lambda done: self._note_end(host, done))
        return future

    def _note_end(self, host: str, done: asyncio.Future[list[str]]) -> None:
        """Store an answer, whether or not a request still waits for it."""
        del self._pending[host]
        if not done.cancelled() and done.exception() is None and done.result():
            self._answers[host] = _Answer(tuple(done.result()), self._clock())


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
