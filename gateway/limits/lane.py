"""LiveLane: one class of traffic, with the length of its queue and its drain rate."""

from __future__ import annotations

import math

import msgspec

from gateway.errors import MIN_RETRY_AFTER_S
from routing_policies.policy.document import Lane as LaneEntry
from routing_policies.policy.values import EnginePriority, OverloadStep

DEFAULT_MAX_QUEUE = 1024
RATE_WINDOW_S = 10.0
MAX_PREDICTION_S = 3600.0


class DrainMeter:
    """Requests leaving per second, as an exponentially decaying average; the time is passed in."""

    __slots__ = ("_at", "_count", "_since")

    def __init__(self) -> None:
        self._count = 0.0
        self._at = 0.0
        self._since: float | None = None

    def add(self, now: float) -> None:
        """Count one request that left."""
        if self._since is None:
            self._since = self._at = now
        self._count = self._count * math.exp((self._at - now) / RATE_WINDOW_S) + 1.0
        self._at = now

    def per_s(self, now: float) -> float | None:
        """Return the rate, or None before the first request left."""
        if self._since is None:
            return None
        warm = 1.0 - math.exp((self._since - now) / RATE_WINDOW_S)
        decayed = self._count * math.exp((self._at - now) / RATE_WINDOW_S)
        return decayed / (RATE_WINDOW_S * max(warm, 0.01))


class LaneRules(msgspec.Struct, frozen=True, kw_only=True):
    """Rules of a lane, from the policy."""

    weight: float = 1.0
    max_queue: int | None = None
    ttft_slo_s: float | None = None
    tpot_slo_s: float | None = None
    on_overload: tuple[OverloadStep, ...] = ("shed",)
    degraded_max_tokens: int = 256
    """Length in tokens to which the ladder's step `max_tokens` limits an answer."""
    max_prompt_tokens: int | None = None
    longer: str | None = None
    """Lane of prompts with more than `max_prompt_tokens`."""
    priority: EnginePriority = "interactive"
    """Priority sent to upstreams."""
    is_longer: bool = False
    """True if the lane takes the long prompts of another lane."""


def lane_rules(entry: LaneEntry, *, is_longer: bool) -> LaneRules:
    """Return the rules in a policy entry, with times in seconds."""
    slo = entry.slo
    return LaneRules(
        weight=entry.weight,
        max_queue=entry.max_queue,
        ttft_slo_s=None if slo is None else slo.ttft_p95_ms / 1000,
        tpot_slo_s=None if slo is None or slo.tpot_p95_ms is None else slo.tpot_p95_ms / 1000,
        on_overload=entry.on_overload,
        degraded_max_tokens=entry.degraded_max_tokens,
        max_prompt_tokens=entry.max_prompt_tokens,
        longer=entry.longer,
        priority=entry.engine_priority,
        is_longer=is_longer,
    )


class LiveLane:
    """Queue bound and live counts of one lane, over all deployments."""

    __slots__ = ("drained", "engine_lane", "id", "max_queue", "num_waiting", "rules", "stride", "upstream_priority")

    def __init__(
        self, lane_id: str, *, weight: float = 1.0, max_queue: int | None = None, rules: LaneRules | None = None
    ) -> None:
        """Create an empty lane, from `rules` or from the two most used ones."""
        self.id = lane_id
        self.num_waiting = 0
        self.drained = DrainMeter()
        self.configure(rules or LaneRules(weight=weight, max_queue=max_queue))

    def configure(self, rules: LaneRules) -> None:
        """Adopt the rules of a new policy revision; waiting requests keep waiting."""
        self.rules = rules
        self.stride = 1.0 / rules.weight
        """Cost of one token granted to this lane; the lane that has spent least is next."""
        self.max_queue = DEFAULT_MAX_QUEUE if rules.max_queue is None else rules.max_queue
        self.upstream_priority = rules.priority.encode("ascii")
        self.engine_lane = "long" if rules.is_longer and rules.priority == "interactive" else rules.priority
        """Lane of the bundled engine that the requests wait in."""

    @property
    def total_waiting(self) -> int:
        """Number of waiting requests that `max_queue` bounds."""
        return self.num_waiting

    @property
    def is_full(self) -> bool:
        """True if no further request may wait."""
        return self.total_waiting >= self.max_queue

    def predicted_wait_s(self, now: float) -> float:
        """Return the forecast seconds until a request that arrives now is served, from the lane's drain rate."""
        rate = self.drained.per_s(now)
        if rate is None:
            return MIN_RETRY_AFTER_S
        return (self.num_waiting + 1) / rate if rate > 1 / MAX_PREDICTION_S else MAX_PREDICTION_S
