"""Departures: members that a source no longer lists, until their last response has ended and their time is over.

A member that the source lists again within that time continues with its connections, permits, forecast and health.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable
from typing import Final

from gateway.deployments.live import LiveDeployment
from gateway.timeline import Clock
from routing_policies.policy.deployment import Deployment

DRAIN_S: Final = 30.0
_LOOK_S: Final = 0.5


class Departures:
    """Members that drain; several may have had one address, one after another."""

    def __init__(self, clock: Clock, drain_s: float = DRAIN_S) -> None:
        self._clock = clock
        self.drain_s = drain_s
        """Least time in seconds for which a member's state is kept."""
        self._left: dict[LiveDeployment, float] = {}
        """Monotonic time at which each one left."""

    @property
    def members(self) -> tuple[LiveDeployment, ...]:
        """Members that drain."""
        return tuple(self._left)

    def note_left(self, live: LiveDeployment) -> None:
        """Drain a member that left: it gets no new requests, and those in flight finish."""
        live.depart(has_left=True)
        self._left[live] = self._clock()

    def recalled(self, deployment: Deployment) -> LiveDeployment | None:
        """Return the state of a member that comes back, which may admit requests again; None where none is kept."""
        return next((live for live in self._left if live.id == deployment.id and live.serves(deployment)), None)

    def note_back(self, lives: Iterable[LiveDeployment]) -> None:
        """Stop draining those that are in force again."""
        for live in lives:
            if self._left.pop(live, None) is not None:
                live.depart(has_left=False)

    async def run(self) -> None:
        """Close members whose time is over, until cancelled."""
        while True:
            await asyncio.sleep(_LOOK_S)
            await self.sweep()

    async def sweep(self) -> None:
        """Close members that have been gone for `drain_s` and have nothing in flight."""
        due_at = self._clock() - self.drain_s
        for live in tuple(self._left):  # each may come back while another's connections close
            if self._left.get(live, math.inf) <= due_at and not live.is_busy:
                del self._left[live]
                await live.client.aclose()
