"""Time limits and pauses for peers that leave out the time in which this process itself was late."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

MAX_GRACE_S: Final = 1.0
"""Longest extension in seconds of a limit or pause in which the event loop was late."""
_PART_S: Final = 0.05


@asynccontextmanager
async def time_limit(seconds: float | None) -> AsyncIterator[None]:
    """Cancel the body after `seconds`; where the event loop comes late to that, as much later again.

    A process that was blocked, or a machine that stood still, has not read yet what its peers sent meanwhile.

    Args:
        seconds: The limit; None for no limit.

    Raises:
        TimeoutError: The limit passed.
    """
    if seconds is None:
        yield
        return
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(None) as limit:

        def extend() -> None:
            now = loop.time()
            limit.reschedule(now + min(now - timer.when(), MAX_GRACE_S))

        timer = loop.call_later(seconds, extend)
        try:
            yield
        finally:
            timer.cancel()


async def sleep_running(seconds: float) -> None:
    """Sleep until the event loop has run for `seconds`, at most MAX_GRACE_S longer than that.

    Notice to peers is of use only while they can act on it, and a machine that stands still stops them, too.
    """
    loop = asyncio.get_running_loop()
    latest, left = loop.time() + seconds + MAX_GRACE_S, seconds
    while True:
        await asyncio.sleep(min(left, _PART_S))
        left -= _PART_S
        if left <= 0 or loop.time() >= latest:
            return
