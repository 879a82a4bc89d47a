"""WaitingRoom: requests wait here while every deployment that could answer them is still starting.

They stand in their lane's queue, so its bound applies, and they count as waiting. A request that would wait too long
is refused, at once or as soon as that is forecast.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final, Literal

from gateway.limits import refusal
from gateway.limits.limiter import RETRY_SHARE
from gateway.limits.permit import AdmissionRequest
from gateway.routing.planned_route import PlannedRoute
from gateway.timeline import Clock

LOOK_S: Final = 0.5
"""Seconds without news after which forecasts are read again."""

StartWaitEnd = Literal["ready", "late", "lost", "left"]
"""End of a wait. `lost`: no deployment was starting any more. `left`: the client, or the whole gateway, went first."""


class WaitingRoom:
    """Waiting room of one gateway process for requests whose deployments are starting.

    Callers invoke `wake` whenever a deployment's state may have changed.
    """

    __slots__ = ("_clock", "_count", "_news")

    def __init__(self, clock: Clock, count: Callable[[str, StartWaitEnd], None]) -> None:
        """Create a waiting room; `count` gets the route and the end of each wait."""
        self._clock = clock
        self._count = count
        self._news = asyncio.Event()

    def wake(self) -> None:
        """Wake all waiting requests, which then check again."""
        self._news.set()
        self._news.clear()

    async def until_ready(self, planned: PlannedRoute, admission_request: AdmissionRequest) -> bool:
        """Wait for a deployment that is starting.

        Returns:
            False at once when none is starting; True after a wait, when one is ready or none starts any more.

        Raises:
            Shed: There is no room to wait, or no time.
        """
        lane, now = admission_request.lane, self._clock()
        start = planned.next_start(now)
        if start is None:
            return False
        if lane.total_waiting >= lane.max_queue * (RETRY_SHARE if admission_request.is_retry else 1.0):
            raise refusal.queue_full(lane, now)
        assert planned.stream_timeouts.total_s is not None, "every route has a limit to the whole"
        give_up_at = min(admission_request.start_by, now + planned.stream_timeouts.total_s)
        end: StartWaitEnd = "left"
        lane.num_waiting += 1
        try:
            while start is not None:
                if now + start.left_s > give_up_at:
                    end = "late"
                    raise refusal.still_starting(lane, planned.route.id, start.left_s)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._news.wait(), LOOK_S)
                now = self._clock()
                start = planned.next_start(now)
            end = "ready" if planned.has_ready else "lost"
        finally:
            lane.num_waiting -= 1
            self._count(planned.route.id, end)
        return True
