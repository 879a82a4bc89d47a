"""Task that takes a history's readings at their instants."""

from __future__ import annotations

import asyncio

from gateway.telemetry.window import History


async def keep_history(history: History) -> None:
    """Take readings until cancelled."""
    while True:
        await asyncio.sleep(history.next_in_s)
        history.take()
