"""Lane: one class of traffic, how much of it waits and how fast it leaves."""

from __future__ import annotations

import math

from gateway.errors import MIN_RETRY_AFTER_S

DEFAULT_MAX_QUEUE = 1024
RATE_WINDOW_S = 10.0
MAX_PREDICTION_S = 3600.0


class DrainMeter:
    """Requests leaving per second, as an exponentially decaying average; it is told the time."""

    __slots__ = ("_at", "_count", "_since")

    def __init__(self) -> None:
        self._count = 0.0
        self._at = 0.0
        self._since: float | None = None

    def add(self, now: float) -> None:
        """One request left."""
        if self._since is None:
            self._since = self._at = now
        self._count = self._count * math.exp((self._at - now) / RATE_WINDOW_S) + 1.0
        self._at = now

    def per_s(self, now: float) -> float | None:
        """The rate, or None before the first request left."""
        if self._since is None:
            return None
        warm = 1.0 - math.exp((self._since - now) / RATE_WINDOW_S)
        decayed = self._count * math.exp((self._at - now) / RATE_WINDOW_S)
        return decayed / (RATE_WINDOW_S * max(warm, 0.01))


class Lane:
    """Queue bounds and the live counts of one lane, over all deployments."""

    __slots__ = ("drained", "id", "max_queue", "num_waiting", "stride")

    def __init__(self, lane_id: str, *, weight: float = 1.0, max_queue: int | None = None) -> None:
        self.id = lane_id
        self.num_waiting = 0
        self.drained = DrainMeter()
        self.configure(weight=weight, max_queue=max_queue)

    def configure(self, *, weight: float, max_queue: int | None) -> None:
        """Take over the numbers of a new policy revision; whoever waits keeps waiting."""
        self.stride = 1.0 / weight
        """What one grant costs this lane; the lane that has spent least is next."""
        self.max_queue = DEFAULT_MAX_QUEUE if max_queue is None else max_queue

    @property
    def is_full(self) -> bool:
        """Whether one more request may not wait."""
        return self.num_waiting >= self.max_queue

    def predicted_wait_s(self, now: float) -> float:
        """Seconds until a request that came now would be served, from the lane's own drain rate."""
        rate = self.drained.per_s(now)
        if rate is None:
            return MIN_RETRY_AFTER_S
        return (self.num_waiting + 1) / rate if rate > 1 / MAX_PREDICTION_S else MAX_PREDICTION_S
