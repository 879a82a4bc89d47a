"""Pause of a task between two looks, which an event ends early."""

from __future__ import annotations

import asyncio
from contextlib import suppress


async def until_set_again(event: asyncio.Event, timeout_s: float) -> None:
    """Clear an event, and wait until it is set again, for at most `timeout_s` seconds."""
    event.clear()
    with suppress(TimeoutError):
        async with asyncio.timeout(timeout_s):
            await event.wait()
