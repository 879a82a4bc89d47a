"""LaneShare: one lane's part of one deployment, with its queue, its permits and the times they are held."""

from __future__ import annotations

import math
from typing import Final

from gateway.limits.adaptive_limit import AdaptiveLimit
from gateway.limits.fair_queue import FairQueue
from gateway.limits.lane import LiveLane
from gateway.limits.permit import AdmissionRequest, PrefillWindow
from gateway.limits.reserve import Reserve

MISSES: Final = 0.01
"""Share of admitted requests whose first token may miss its target."""

TRICKLE: Final = 0.5
"""Share of returning permits that are granted again while a lane exceeds its limit.

A limit that has just fallen thereby slows the queue without stopping it.
"""

SPARSE_MARGIN: Final = 0.2
"""Share of a shared lane's limit that only tenants below a fair part may fill."""
_SHARED_LOAD: Final = 1.0 / (1.0 - SPARSE_MARGIN)
CROWDED_PART: Final = 0.6
"""Share of the time to a target that a tenant above its fair part may use; the rest serves the others."""
SHARED_S: Final = 30.0
"""Seconds for which a lane counts as shared after several tenants used it."""

NOTICED_S: Final = 0.005
"""Seconds that a tenant below its fair part may lose to others, beyond the tolerance, before the limit shrinks."""

FADING_S: Final = 20.0
CAUTION_FADING_S: Final = 300.0

_OVERRUN_UP: Final = 0.15
_MAX_OVERRUN: Final = 4.0
_MAX_SAMPLES: Final = 32
MIN_CAUTION: Final = 2.0
_MAX_CAUTION: Final = 6.0
_CAUTION_UP: Final = 0.1
_CAUTION_DOWN: Final = 0.0005
"""Decrease of the caution with a timely grant; with the increase above, one waiting request in 200 runs out of time."""


class HoldTimes:
    """Mean duration and work of permits over the last few dozen."""

    __slots__ = ("_num", "mean_s", "mean_tokens")

    def __init__(self) -> None:
        self._num = 0
        self.mean_s = 0.0
        self.mean_tokens = 0.0

    @property
    def is_known(self) -> bool:
        """True if any permit has returned."""
        return self._num > 0

    def note(self, held_s: float, tokens: int) -> None:
        """Record a permit that returned."""
        if self._num < _MAX_SAMPLES:
            self._num += 1
        self.mean_s += (held_s - self.mean_s) / self._num
        self.mean_tokens += (tokens - self.mean_tokens) / self._num


class Overrun:
    """Factor by which forecasts are assumed to be exceeded, so only few admitted requests miss their target.

    A miss raises the factor. A hit lowers it by so much less that they balance at MISSES. Requests admitted before the
    last raise do not raise it again. The factor also fades with time, because the causes of wrong forecasts pass.
    """

    __slots__ = ("_noted_at", "_raised_at", "ratio")

    def __init__(self) -> None:
        self.ratio = 1.0
        """Factor that forecasts are multiplied by."""
        self._noted_at = 0.0
        self._raised_at = -math.inf

    def note(self, now: float, admission_request: AdmissionRequest) -> None:
        """Learn from the first token of a request, which came now."""
        if admission_request.ttft_by is None:
            return
        if now <= admission_request.ttft_by:
            faded = (self.ratio - 1.0) * math.exp((self._noted_at - now) / FADING_S)
            lowered = 1.0 + faded - MISSES * _OVERRUN_UP
            self.ratio = lowered if lowered > 1.0 else 1.0
            self._noted_at = now
        elif admission_request.arrived_at >= self._raised_at:
            self._raised_at = self._noted_at = now
            self.ratio = min(self.ratio + _OVERRUN_UP, _MAX_OVERRUN)


class LaneShare:
    """State of one lane at one deployment, on which the Limiter decides."""

    __slots__ = (
        "_cautioned_at",
        "_load",
        "_trickle",
        "begun_at",
        "by_tenant",
        "caution",
        "holds",
        "in_flight",
        "lane",
        "limit",
        "overrun",
        "paces",
        "queue",
        "reserve",
        "shared_until",
        "sparse",
        "spent",
        "tokens",
    )

    def __init__(self, lane: LiveLane, limit: AdaptiveLimit | None) -> None:
        self.lane = lane
        self.limit = limit
        """Adaptive limit; None where only the deployment's limit holds."""
        self.queue = FairQueue()
        self.in_flight = 0
        self.tokens = 0
        """Work tokens of all permits in use."""
        self.by_tenant: dict[str, int] = {}
        """Permits in use by tenant; tenants without any are absent."""
        self.holds = HoldTimes()
        self.spent = 0.0
        """Strides spent; of the lanes that wait, the one with the least is next."""
        self.reserve = Reserve()
        """Permits reserved for this lane against other lanes."""
        self.sparse = Reserve()
        """Permits reserved inside this lane for tenants below their fair part."""
        self.caution = MIN_CAUTION
        """Learned factor by which a queue delays more than its length suggests."""
        self._cautioned_at = 0.0
        self.overrun = Overrun()
        self.paces = (PrefillWindow(), PrefillWindow())
        """Prefill windows of short and of long prompts, which do not wait for each other in the deployment."""
        self.begun_at = -math.inf
        """Instant of the last grant."""
        self.shared_until = -math.inf
        """Instant until which the lane counts as shared by several tenants."""
        self._load = 1.0
        """Weight of a token in flight against the limit, for a tenant above its fair part."""
        self._trickle = 0.0
        """Permits returned above the limit that may be granted again."""

    def open(self, admission_request: AdmissionRequest, is_long: bool, now: float) -> int:
        """Count one more permit; return the tokens that its prompt counts until its first token."""
        tenant, by_tenant = admission_request.tenant, self.by_tenant
        self.in_flight += 1
        self.begun_at = now
        self.tokens += admission_request.tokens
        by_tenant[tenant] = by_tenant.get(tenant, 0) + 1
        if self.limit is not None:
            self.limit.note_size(admission_request.tokens)
            self._trickle = 0.0
        if len(by_tenant) > 1:
            self.shared_until = now + SHARED_S
        self._load = _SHARED_LOAD if now < self.shared_until else 1.0
        return self.paces[is_long].send(now, admission_request.prompt_tokens)

    def close(self, admission_request: AdmissionRequest, tokens: int) -> None:
        """Uncount one permit."""
        in_flight = self.in_flight = self.in_flight - 1
        tokens_out = self.tokens = self.tokens - tokens
        if self.limit is not None and not self.limit.allows(in_flight, tokens_out):
            self._trickle = min(self._trickle + TRICKLE, 1.0)
        by_tenant, tenant = self.by_tenant, admission_request.tenant
        left = by_tenant[tenant] - 1
        if left:
            by_tenant[tenant] = left
        else:
            del by_tenant[tenant]
        assert in_flight >= 0 <= tokens_out, "a permit was released twice"

    @property
    def has_room(self) -> bool:
        """True if the lane's own limit allows one more request of any tenant; the first is always allowed."""
        limit = self.limit
        return (
            limit is None
            or self.in_flight == 0
            or self._trickle >= 1.0
            or limit.allows(self.in_flight, int(self.tokens * self._load))
        )

    def has_room_for(self, tenant: str) -> bool:
        """Return whether the limit allows one more request of the tenant.

        The last part of a shared lane's limit is for tenants below their fair part.
        """
        if self.has_room:
            return True
        return self.limit is not None and self.limit.allows(self.in_flight, self.tokens) and self.is_sparse(tenant)

    @property
    def has_unread(self) -> bool:
        """True if prompts without a first token may delay others."""
        short, long = self.paces
        return short.room is not None and (short.num_unread > 0 or long.num_unread > 0)

    def is_crowding(self, tenant: str, now: float) -> bool:
        """Return whether the tenant holds more than a fair part of a shared lane."""
        return now < self.shared_until and not self.is_sparse(tenant)

    def is_paced(self, tenant: str, is_long: bool, now: float) -> bool:
        """Return whether the tenant's next prompt of this kind must wait for first tokens of others.

        These are prompts of its own kind. For a tenant above a fair part of a shared lane, both kinds count.
        """
        if not self.has_unread:
            return False
        if not self.is_crowding(tenant, now):
            return not self.paces[is_long].is_open(now, is_crowding=False)
        short, long = self.paces
        return not (short.is_open(now, is_crowding=True) and long.is_open(now, is_crowding=True))

    def note_ttft(self, now: float, admission_request: AdmissionRequest, measured_s: float, expected_s: float) -> None:
        """Learn from a first token whether forecasts hold, and whether others delay tenants below their fair part."""
        self.overrun.note(now, admission_request)
        if self.limit is not None and now < self.shared_until and self.is_sparse(admission_request.tenant):
            self.limit.note_delayed(now, measured_s, expected_s, NOTICED_S, self.tokens)

    def part_of_time(self, tenant: str, now: float) -> float:
        """Return the share of the time to a target that a tenant may use.

        It is less than 1 for a tenant above a fair part of a shared lane.
        """
        return 1.0 if now >= self.shared_until or self.is_sparse(tenant) else CROWDED_PART

    def is_sparse(self, tenant: str) -> bool:
        """Return whether a tenant holds less than a fair part of the lane's permits here."""
        num_held = self.by_tenant.get(tenant)
        if num_held is None:
            return self.in_flight > 0
        return num_held * max(len(self.by_tenant), self.queue.num_tenants, 2) < self.in_flight

    def note_granted(self, now: float) -> None:
        """Learn from a request that was granted in time."""
        faded = (self.caution - MIN_CAUTION) * math.exp((self._cautioned_at - now) / CAUTION_FADING_S)
        self.caution = max(MIN_CAUTION + faded - _CAUTION_DOWN, MIN_CAUTION)
        self._cautioned_at = now

    def note_late(self, now: float) -> None:
        """Learn from a request that ran out of time."""
        self.caution = min(self.caution + _CAUTION_UP, _MAX_CAUTION)
        self._cautioned_at = now

    def check_integrity(self) -> None:
        """Check the invariants; raises AssertionError."""
        self.queue.check_integrity()
        assert self.in_flight == sum(self.by_tenant.values())
        assert all(self.by_tenant.values())
        assert self.in_flight > 0 or self.tokens == 0, "work is out without a permit"
