"""LivenessWatch: a periodic check that deployments with requests still produce tokens."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

from gateway.deployments.live import LiveDeployment
from gateway.timeline import Clock

SWEEP_INTERVAL_S: Final = 0.25
_MAX_LATE_S: Final = 0.2
"""Delay in seconds of a sweep that is left out, because what arrived meanwhile is not read yet."""


class LivenessWatch:
    """Periodic sweep over all deployments.

    An open port and a healthy probe prove nothing about the step loop behind them; tokens do.
    """

    def __init__(
        self,
        deployments: Callable[[], Iterable[LiveDeployment]],
        clock: Clock,
        *,
        interval_s: float = SWEEP_INTERVAL_S,
    ) -> None:
        self._deployments = deployments
        self._clock = clock
        self._interval_s = interval_s

    async def run(self) -> None:
        """Sweep periodically until cancelled."""
        was_late = False
        while True:
            due_at = self._clock() + self._interval_s
            await asyncio.sleep(self._interval_s)
            was_late = not was_late and self._clock() - due_at >= _MAX_LATE_S
            if not was_late:  # the next one takes place in any case
                self.sweep()

    def sweep(self) -> None:
        """Sweep all deployments once."""
        now = self._clock()
        for deployment in self._deployments():
            deployment.health.sweep(now, deployment.whole_answers.peak)
