"""LaneShare: one lane's part of one deployment: who waits, what is out, how long permits are held."""

from __future__ import annotations

import math
from typing import Final

from gateway.limits.adaptive_limit import AdaptiveLimit
from gateway.limits.fair_queue import FairQueue
from gateway.limits.lane import LiveLane
from gateway.limits.permit import AdmissionRequest, PrefillWindow
from gateway.limits.reserve import Reserve

MISSES: Final = 0.01
"""Of those let in, the share whose first token may come after its target."""

TRICKLE: Final = 0.5
"""Of the permits that come back while a lane is above its limit, the share that goes out again: a limit that has just
fallen slows those who wait down and does not stop them."""

SPARSE_MARGIN: Final = 0.2
"""Of the limit of a lane that several tenants use, what those below a fair part alone may fill."""
_SHARED_LOAD: Final = 1.0 / (1.0 - SPARSE_MARGIN)
CROWDED_PART: Final = 0.6
"""What a tenant above its fair part may expect to use of the time; the rest is what the others are served in."""
SHARED_S: Final = 30.0
"""A lane counts as used by several tenants for so long after the last time it was."""

NOTICED_S: Final = 0.005
"""What a tenant below its fair part may lose to others, beyond the limit's tolerance, before the limit shrinks."""

FADING_S: Final = 20.0
CAUTION_FADING_S: Final = 300.0

_OVERRUN_UP: Final = 0.15
_MAX_OVERRUN: Final = 4.0
_MAX_SAMPLES: Final = 32
MIN_CAUTION: Final = 2.0
_MAX_CAUTION: Final = 6.0
_CAUTION_UP: Final = 0.1
_CAUTION_DOWN: Final = 0.0005
"""Together they let about one waiter in two hundred run out of time."""


class HoldTimes:
    """How long permits are held, and for how much work: means that follow the last few dozen."""

    __slots__ = ("_num", "mean_s", "mean_tokens")

    def __init__(self) -> None:
        self._num = 0
        self.mean_s = 0.0
        self.mean_tokens = 0.0

    @property
    def is_known(self) -> bool:
        """Whether any permit came back yet."""
        return self._num > 0

    def note(self, held_s: float, tokens: int) -> None:
        """A permit came back."""
        if self._num < _MAX_SAMPLES:
            self._num += 1
        self.mean_s += (held_s - self.mean_s) / self._num
        self.mean_tokens += (tokens - self.mean_tokens) / self._num


class Overrun:
    """By how much forecasts are taken to be exceeded, so that of those let in only a few miss their target.

    A miss raises it, a hit lowers it by so much less that they balance at MISSES; requests that were let in before the
    last raise are not counted against it again. It also fades with time, for what made forecasts wrong passes.
    """

    __slots__ = ("_noted_at", "_raised_at", "ratio")

    def __init__(self) -> None:
        self.ratio = 1.0
        """What forecasts are multiplied by."""
        self._noted_at = 0.0
        self._raised_at = -math.inf

    def note(self, now: float, claim: AdmissionRequest) -> None:
        """The first token of this claim came now."""
        if claim.ttft_by is None:
            return
        if now <= claim.ttft_by:
            faded = (self.ratio - 1.0) * math.exp((self._noted_at - now) / FADING_S)
            lowered = 1.0 + faded - MISSES * _OVERRUN_UP
            self.ratio = lowered if lowered > 1.0 else 1.0
            self._noted_at = now
        elif claim.arrived_at >= self._raised_at:
            self._raised_at = self._noted_at = now
            self.ratio = min(self.ratio + _OVERRUN_UP, _MAX_OVERRUN)


class LaneShare:
    """The books of one lane at one deployment; the Limiter decides by them."""

    __slots__ = (
        "_cautioned_at",
        "_load",
        "_trickle",
        "by_tenant",
        "caution",
        "holds",
        "in_flight",
        "lane",
        "limit",
        "opened_at",
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
        """None: only the deployment's own limit holds."""
        self.queue = FairQueue()
        self.in_flight = 0
        self.tokens = 0
        """Work of the permits that are out."""
        self.by_tenant: dict[str, int] = {}
        """Permits out by tenant, those with any."""
        self.holds = HoldTimes()
        self.spent = 0.0
        """Strides used; of the lanes that wait the one with the least is served next."""
        self.reserve = Reserve()
        """Kept free for this lane against the other lanes."""
        self.sparse = Reserve()
        """Kept free inside this lane for tenants below their fair part."""
        self.caution = MIN_CAUTION
        """By how much more than it seems a queue is taken to delay, as experience has it."""
        self._cautioned_at = 0.0
        self.overrun = Overrun()
        self.paces = (PrefillWindow(), PrefillWindow())
        """Of short prompts and of long ones: in the deployment they do not wait for each other."""
        self.opened_at = -math.inf
        """When the last permit went out."""
        self.shared_until = -math.inf
        """Until then several tenants count as using the lane."""
        self._load = 1.0
        """What a token that is out counts against the limit for a tenant above a fair part."""
        self._trickle = 0.0
        """What has come back while too much was out, as far as it goes out again."""

    def open(self, claim: AdmissionRequest, is_long: bool, now: float) -> int:
        """One more is out; what its prompt counts while it is unread."""
        tenant, by_tenant = claim.tenant, self.by_tenant
        self.in_flight += 1
        self.opened_at = now
        self.tokens += claim.tokens
        by_tenant[tenant] = by_tenant.get(tenant, 0) + 1
        if self.limit is not None:
            self.limit.note_size(claim.tokens)
            self._trickle = 0.0
        if len(by_tenant) > 1:
            self.shared_until = now + SHARED_S
        self._load = _SHARED_LOAD if now < self.shared_until else 1.0
        return self.paces[is_long].send(now, claim.prompt_tokens)

    def close(self, claim: AdmissionRequest, tokens: int) -> None:
        """One came back."""
        in_flight = self.in_flight = self.in_flight - 1
        tokens_out = self.tokens = self.tokens - tokens
        if self.limit is not None and not self.limit.allows(in_flight, tokens_out):
            self._trickle = min(self._trickle + TRICKLE, 1.0)
        by_tenant, tenant = self.by_tenant, claim.tenant
        left = by_tenant[tenant] - 1
        if left:
            by_tenant[tenant] = left
        else:
            del by_tenant[tenant]
        assert in_flight >= 0 <= tokens_out, "a permit was released twice"

    @property
    def has_room(self) -> bool:
        """Whether the lane's own limit allows one more to anybody; the first it always allows."""
        limit = self.limit
        return (
            limit is None
            or self.in_flight == 0
            or self._trickle >= 1.0
            or limit.allows(self.in_flight, int(self.tokens * self._load))
        )

    def has_room_for(self, tenant: str) -> bool:
        """The same for one tenant: where several use the lane, its last part is for those below a fair one."""
        if self.has_room:
            return True
        return self.limit is not None and self.limit.allows(self.in_flight, self.tokens) and self.is_sparse(tenant)

    @property
    def has_unread(self) -> bool:
        """Whether anything is out that others may have to wait for."""
        short, long = self.paces
        return short.room is not None and (short.num_unread > 0 or long.num_unread > 0)

    def is_crowding(self, tenant: str, now: float) -> bool:
        """Whether the tenant holds more than a fair part of a lane that others use as well."""
        return now < self.shared_until and not self.is_sparse(tenant)

    def is_paced(self, tenant: str, is_long: bool, now: float) -> bool:
        """Whether the tenant's next prompt of the kind has to wait until others were read: of its own kind, or, for a
        tenant above a fair part of a lane that others use as well, of either."""
        if not self.has_unread:
            return False
        if not self.is_crowding(tenant, now):
            return not self.paces[is_long].is_open(now, is_crowding=False)
        short, long = self.paces
        return not (short.is_open(now, is_crowding=True) and long.is_open(now, is_crowding=True))

    def note_ttft(self, now: float, claim: AdmissionRequest, measured_s: float, expected_s: float) -> None:
        """A first token came: learn whether forecasts hold, and whether those that ask rarely notice the others."""
        self.overrun.note(now, claim)
        if self.limit is not None and now < self.shared_until and self.is_sparse(claim.tenant):
            self.limit.note_delayed(now, measured_s, expected_s, NOTICED_S, self.tokens)

    def part_of_time(self, tenant: str, now: float) -> float:
        """Of the time to a target, what a tenant may expect to use: less than all of it, above a fair part of a lane
        that others use as well."""
        return 1.0 if now >= self.shared_until or self.is_sparse(tenant) else CROWDED_PART

    def is_sparse(self, tenant: str) -> bool:
        """Whether a tenant holds less than a fair part of what the lane holds here."""
        num_held = self.by_tenant.get(tenant)
        if num_held is None:
            return self.in_flight > 0
        return num_held * max(len(self.by_tenant), self.queue.num_tenants, 2) < self.in_flight

    def note_granted(self, now: float) -> None:
        """A waiter was served in time."""
        faded = (self.caution - MIN_CAUTION) * math.exp((self._cautioned_at - now) / CAUTION_FADING_S)
        self.caution = max(MIN_CAUTION + faded - _CAUTION_DOWN, MIN_CAUTION)
        self._cautioned_at = now

    def note_late(self, now: float) -> None:
        """A waiter ran out of time."""
        self.caution = min(self.caution + _CAUTION_UP, _MAX_CAUTION)
        self._cautioned_at = now

    def check_integrity(self) -> None:
        """Raises AssertionError when the books contradict each other."""
        self.queue.check_integrity()
        assert self.in_flight == sum(self.by_tenant.values())
        assert all(self.by_tenant.values())
        assert self.in_flight > 0 or self.tokens == 0, "work is out without a permit"
