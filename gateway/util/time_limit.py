"""Time limits for peers that leave out the time in which this process itself was late."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

MAX_GRACE_S: Final = 1.0
"""Longest extension in seconds of a limit whose end the event loop noticed late."""


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
