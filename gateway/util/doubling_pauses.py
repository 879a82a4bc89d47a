"""DoublingPauses: pauses after failures in a row, each twice as long as the one before; and work that begins again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final

Report = Callable[[str, BaseException], None]
"""Callback with the name of a task and its failure."""
Work = Callable[[], Coroutine[Any, Any, None]]
"""Function that begins some work anew."""
Keep = Callable[[Work, str], None]
"""Start of work in the background, by name; it begins again whenever it fails."""

FIRST_PAUSE_S: Final = 0.5
LAST_PAUSE_S: Final = 60.0
"""Longest time between a failure and the next start, and how long work must run for the first pause to hold again."""


class DoublingPauses:
    """Pauses in seconds, from `first_s` up to `longest_s`."""

    __slots__ = ("_first_s", "_longest_s", "_next_s")

    def __init__(self, first_s: float, longest_s: float) -> None:
        self._first_s = first_s
        self._longest_s = longest_s
        self._next_s = first_s

    def failed(self) -> float:
        """Return the seconds to wait after a further failure."""
        pause_s, self._next_s = self._next_s, min(2.0 * self._next_s, self._longest_s)
        return pause_s

    def reset(self) -> None:
        """Begin anew after a success."""
        self._next_s = self._first_s


async def lasting(work: Work, name: str, report: Report) -> None:
    """Do the work until it ends by itself; after an unexpected failure, report it, pause, and begin again."""
    clock = asyncio.get_running_loop().time
    pauses = DoublingPauses(FIRST_PAUSE_S, LAST_PAUSE_S)
    while True:
        began_at = clock()
        try:
            await work()
            return
        except Exception as error:  # whatever it is, the rest of the process goes on
            report(name, error)
        if clock() - began_at >= LAST_PAUSE_S:
            pauses.reset()
        await asyncio.sleep(pauses.failed())
