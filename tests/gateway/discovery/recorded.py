"""What a source reports, and pauses that a test ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress

from gateway.discovery.source import MemberSource
from routing_policies.policy.members import Address

LIMIT_S = 5.0


class Recorded:
    """A Listing that keeps everything, as `host:port` texts, or the reason of a failure."""

    def __init__(self) -> None:
        self.events: asyncio.Queue[list[str] | str] = asyncio.Queue()

    def take(self, members: Sequence[Address]) -> None:
        self.events.put_nowait([str(address) for address in members])

    def fail(self, reason: str) -> None:
        self.events.put_nowait(reason)

    async def next(self) -> list[str] | str:
        """The next report."""
        return await asyncio.wait_for(self.events.get(), LIMIT_S)

    async def failure(self) -> str:
        """The next report, which is a failure."""
        found = await self.next()
        assert isinstance(found, str), found
        return found


class Pauses:
    """Pauses of a source: each is noted, and lasts until the test ends it."""

    def __init__(self) -> None:
        self._begun: asyncio.Queue[float] = asyncio.Queue()
        self._over: asyncio.Queue[None] = asyncio.Queue()

    async def __call__(self, seconds: float) -> None:
        self._begun.put_nowait(seconds)
        await self._over.get()

    async def begun(self) -> float:
        """The length of the next pause, once it has begun."""
        return await asyncio.wait_for(self._begun.get(), LIMIT_S)

    def end(self) -> None:
        """End a pause that has begun."""
        self._over.put_nowait(None)

    async def pass_(self) -> float:
        """Wait for the next pause, end it, and return its length."""
        seconds = await self.begun()
        self.end()
        return seconds


@asynccontextmanager
async def following(source: MemberSource) -> AsyncIterator[Recorded]:
    """A source that is followed until the end of the block."""
    recorded = Recorded()
    task = asyncio.create_task(source.follow(recorded))
    try:
        yield recorded
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
