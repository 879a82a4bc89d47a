"""GcPolicy: a look for garbage among all that lives stops everything for milliseconds, so nobody should wait then."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from typing import Final

LOOK_EVERY_S: Final = 1.0
WHEN_IDLE: Final = 5
"""Collections of the young since the last whole one from which an idle process does one: some thousands of requests."""
AT_LATEST: Final = 1_000
"""The same for a process that never is: some hundred thousand requests. They leave no cycles, but a rare path may."""
_YOUNG: Final = (20_000, 20)
"""Objects more than were freed, and collections of the youngest, from which on the young are looked through."""
_NEVER_BY_ITSELF: Final = 1 << 30


class GcPolicy:
    """Has the interpreter look through the young by itself, and through everything when `is_idle`."""

    def __init__(self, is_idle: Callable[[], bool], *, collect: Callable[[], int] = gc.collect) -> None:
        """`is_idle`: whether nobody waits for this process at the moment."""
        self._is_idle = is_idle
        self._collect = collect

    def start(self) -> None:
        """What lives now is never looked through again; from here on whole collections are this one's."""
        gc.collect()
        gc.freeze()
        gc.set_threshold(*_YOUNG, _NEVER_BY_ITSELF)

    async def run(self) -> None:
        """Look again and again."""
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            self.look(gc.get_count()[2])

    def look(self, num_young: int) -> None:
        """Collect if it is time; `num_young`: collections of the young since the last whole one."""
        if num_young >= AT_LATEST or (num_young >= WHEN_IDLE and self._is_idle()):
            self._collect()
