"""GcPolicy: full garbage collections while no request is in flight, because each stops the process for milliseconds."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from typing import Final

LOOK_EVERY_S: Final = 1.0
"""Seconds between two checks."""
WHEN_IDLE: Final = 5
"""Number of young collections after which an idle process does a full one; some thousands of requests."""
AT_LATEST: Final = 1_000
"""Number of young collections after which a busy process does a full one; some hundred thousand requests.

Requests leave no cycles, but a rare code path may.
"""
AT_LATEST_S: Final = 600.0
"""Seconds without a full collection after which a process under light but steady load does one.

Refused bodies and lost connections leave a few objects each, which would add up over hours.
"""
_YOUNG: Final = (20_000, 20)
"""Thresholds of `gc.set_threshold` for the two young generations."""
_NEVER_BY_ITSELF: Final = 1 << 30


class GcPolicy:
    """Schedule of full collections while `is_idle`; young ones stay with the interpreter."""

    def __init__(self, is_idle: Callable[[], bool], *, collect: Callable[[], int] = gc.collect) -> None:
        """Create the policy; `is_idle` returns True while no client waits for this process."""
        self._is_idle = is_idle
        self._collect = collect
        self._num_checks = 0

    def start(self) -> None:
        """Exclude all current objects from collection, and turn off automatic full collections."""
        gc.collect()
        gc.freeze()
        gc.set_threshold(*_YOUNG, _NEVER_BY_ITSELF)

    async def run(self) -> None:
        """Check periodically until cancelled."""
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            self.look(gc.get_count()[2])

    def look(self, num_young: int) -> None:
        """Collect if it is time; `num_young` counts young collections since the last full one."""
        self._num_checks += 1
        is_late = num_young >= AT_LATEST or (num_young > 0 and self._num_checks * LOOK_EVERY_S >= AT_LATEST_S)
        if is_late or (num_young >= WHEN_IDLE and self._is_idle()):
            self._num_checks = 0
            self._collect()
