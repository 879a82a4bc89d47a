"""Ledger: the permits of one deployment by lane, the order of grants, and the forecast of waits.

A permit is free for a request under three conditions. The deployment's limit leaves one, the lane's adaptive limit
leaves tokens, and the permit is not reserved. Permits are reserved for other lanes below their weight's part, and
inside a lane for tenants below a fair part. The size of the reserves is learned from waits, for lanes with a latency
target only.
"""

from __future__ import annotations

from typing import Final

from gateway.limits.adaptive_limit import SLACK_S, AdaptiveLimit
from gateway.limits.fair_queue import IsEligible
from gateway.limits.lane import LiveLane
from gateway.limits.lane_share import LaneShare
from gateway.limits.limit import Limit
from gateway.limits.permit import AdmissionRequest, Waiter

_STALLED_RATIO: Final = 3.0
"""Multiple of the usual gap between returning permits after which that gap no longer counts."""
_NOTABLE_WAIT_S: Final = 0.005
_NOTABLE_WAIT_RATIO: Final = 0.1
"""Share of a lane's latency target below which a wait enlarges no reserve."""
_MAX_SPARSE_RATIO: Final = 0.25
_SLACK_RATIO: Final = 0.2
"""Share of a lane's latency target that may pass in the deployment's own queue."""
_MIN_CROWD: Final = 4
"""Number of waiting requests below which they are always served in order."""
_MAX_SHARES: Final = 64


class Ledger:
    """Counts and decisions of a limiter; it has no clock and wakes no request."""

    __slots__ = (
        "_is_adaptive",
        "_limit",
        "_max_num_seqs",
        "_may_move",
        "_released_at",
        "_reserved",
        "_room",
        "_start",
        "cap",
        "elsewhere",
        "in_flight",
        "limit",
        "shares",
        "waiting",
    )

    def __init__(self, limit: Limit, *, start: int | None, is_adaptive: bool) -> None:
        self.shares: dict[LiveLane, LaneShare] = {}
        self.waiting: dict[LiveLane, LaneShare] = {}
        """Lanes in which requests wait."""
        self._reserved = 0
        """Upper bound on the permits that all reserves keep free."""
        self._max_num_seqs: int | None = None
        self._may_move = False
        """True once a lane may have learned a limit; until then no first token changes the limits."""
        self._room: int | None = None
        self._released_at = 0.0
        self.in_flight = 0
        self.elsewhere = 0
        """Permits that others have of this deployment's; 0 where one process has them all."""
        self.limit = 1
        """Permits that may be in use at once, all lanes together."""
        self.cap = 1
        """Permits that may be in use at once, regardless of the lanes' own limits."""
        self.set_limit(limit, start=start, is_adaptive=is_adaptive)

    def set_limit(self, limit: Limit, *, start: int | None, is_adaptive: bool) -> None:
        """Use another Limit, with or without adaptive limits in the lanes."""
        self._limit = limit
        self._start = start
        self._is_adaptive = is_adaptive or start is not None
        for share in self.shares.values():
            share.limit = self._adaptive(share.lane, share.limit)
        self.refresh_limit()

    def bound_seqs(self, max_num_seqs: int | None) -> bool:
        """Bound the permits to `max_num_seqs`; return whether the bound changed."""
        if max_num_seqs == self._max_num_seqs:
            return False
        self._max_num_seqs = max_num_seqs
        self.refresh_limit()
        return True

    def set_room(self, step_tokens: int | None) -> bool:
        """Set the prompt tokens that one step of the deployment computes, or None when unknown.

        Returns:
            True if the new room is larger.
        """
        if step_tokens == self._room:
            return False
        is_more = step_tokens is None or (self._room is not None and step_tokens > self._room)
        self._room = step_tokens
        for share in self.shares.values():
            self._set_room(share)
        return is_more

    def _set_room(self, share: LaneShare) -> None:
        """Set the room of a lane's prefill windows, if the lane has a TTFT target."""
        for pace in share.paces:
            pace.room = None if share.lane.rules.ttft_slo_s is None else self._room

    def share_of(self, lane: LiveLane) -> LaneShare:
        """Return the share of a lane, created on first use."""
        return self.shares.get(lane) or self._adopt(lane)

    # Grants

    def may_start(self, share: LaneShare, tenant: str, is_long: bool, now: float) -> bool:
        """Return whether a permit is free for this lane and tenant, and a prompt of this kind may be sent."""
        free, limit = self.cap - self.in_flight - self.elsewhere, share.limit
        # Usually the lane never had a queue, and only the deployment's own limit holds.
        is_limited = limit is not None and (limit.value is not None or limit.start is not None)
        if free <= 0 or (is_limited and not share.has_room_for(tenant)):
            return False
        if self._room is not None and share.is_paced(tenant, is_long, now):
            return False
        if free > self._reserved or not self.in_flight:  # with no permit in use, no return would end the wait
            return True
        free -= self._reserved_for_other_lanes(share, now)
        return free > 0 and (free > share.sparse.level(now) or share.is_sparse(tenant))

    def may_pass(self, share: LaneShare, tenant: str, is_long: bool) -> bool:
        """Return whether a new request may precede the waiting ones of its lane.

        That holds when they are of the other kind, or when permits are reserved for its tenant.
        """
        queue = share.queue
        return queue.num_waiting == 0 or not queue.has_waiting(is_long=is_long) or share.is_sparse(tenant)

    def next_waiter(self, now: float) -> tuple[LaneShare, Waiter] | None:
        """Remove and return the next request that may start, from the lane that has spent least for its weight."""
        shares = self.waiting.values()
        for share in sorted(shares, key=_spent) if len(shares) > 1 else shares:
            free = self.cap - self.in_flight - self.elsewhere
            if free <= 0:
                return None
            is_for_sparse = False
            if free <= self._reserved and self.in_flight:
                free -= self._reserved_for_other_lanes(share, now)
                if free <= 0:
                    continue
                is_for_sparse = free <= share.sparse.level(now) and share.has_room
            is_eligible = _is_eligible(share, now, is_for_sparse=is_for_sparse)
            waiter = share.queue.pop(newest_first=self._is_saturated(share, now), is_eligible=is_eligible)
            if waiter is not None:
                return share, waiter
        return None

    def open(self, share: LaneShare, admission_request: AdmissionRequest, is_long: bool, now: float) -> int:
        """Count one more permit; return the tokens that its prompt counts until its first token."""
        if not self.in_flight:
            self._released_at = now  # no permit could return before
        self.in_flight += 1
        return share.open(admission_request, is_long, now)

    def close(self, share: LaneShare, admission_request: AdmissionRequest, tokens: int) -> None:
        """Uncount a permit of `tokens`."""
        self.in_flight -= 1
        share.close(admission_request, tokens)

    # Learning

    def note_held(self, share: LaneShare, now: float, held_s: float, tokens: int) -> None:
        """Learn from a permit that returned after its work."""
        self._released_at = now
        share.holds.note(held_s, tokens)

    def note_short(self, share: LaneShare, waiter: Waiter) -> None:
        """Record whether a request must wait although its lane or tenant is below its fair part."""
        if share.lane.rules.ttft_slo_s is not None:
            waiter.is_tenant_short = share.is_sparse(waiter.admission_request.tenant)
            waiter.is_lane_short = share.in_flight < self._lane_part(share)

    def note_waited(self, share: LaneShare, waiter: Waiter, now: float) -> None:
        """Reserve one more permit where a request waited although its lane or tenant was below its fair part."""
        slo_s = share.lane.rules.ttft_slo_s
        if slo_s is None or now - waiter.since < max(_NOTABLE_WAIT_RATIO * slo_s, _NOTABLE_WAIT_S):
            return
        if waiter.is_lane_short:
            share.reserve.note_wait(now, min(self._lane_part(share), self.cap - 1))
        elif waiter.is_tenant_short:
            share.sparse.note_wait(now, int(_MAX_SPARSE_RATIO * self.cap))
        else:
            return
        self._reserved = sum([other.reserve.most + other.sparse.most for other in self.shares.values()])

    def note_ttft(
        self, share: LaneShare, admission_request: AdmissionRequest, now: float, measured_s: float, expected_s: float
    ) -> None:
        """Learn from a request's first token; a late one shrinks the limits of active lanes of less weight."""
        share.note_ttft(now, admission_request, measured_s, expected_s)
        own = share.limit
        if own is None:
            return
        stride = share.lane.stride
        lighter = [other for other in self.shares.values() if other.in_flight > 1 and other.lane.stride > stride]
        for other in lighter:
            if other.limit is not None:
                other.limit.note_delayed(now, measured_s, expected_s, own.slack_s, other.tokens)
        if not lighter:
            own.note_ttft(now, measured_s, expected_s, share.tokens)
        self._may_move = self._may_move or bool(lighter) or own.value is not None
        if self._may_move:
            self.refresh_limit()

    # Forecasts

    def wait_s(
        self,
        now: float,
        admission_request: AdmissionRequest,
        hold_s: float | None = None,
        *,
        is_newcomer: bool = False,
        is_long: bool = False,
    ) -> float | None:
        """Return the forecast seconds until this request may start, 0 when it may now, or None without a basis.

        Args:
            now: Monotonic seconds.
            admission_request: The request.
            hold_s: Duration of a permit until one has returned.
            is_newcomer: Forecast for a tenant without waiting requests.
            is_long: Forecast for a long prompt, whatever the admission request contains.
        """
        share = self.shares.get(admission_request.lane) or self._adopt(admission_request.lane)
        is_long = is_long or admission_request.is_long
        if self.may_pass(share, admission_request.tenant, is_long) and self.may_start(
            share, admission_request.tenant, is_long, now
        ):
            return 0.0
        queue, num_ahead = share.queue, 0.0
        if queue.num_waiting:
            num_ahead = (
                queue.tokens_ahead("" if is_newcomer else admission_request.tenant) * queue.num_waiting / queue.tokens
            )
        rate = self._release_rate(now, share, hold_s)
        is_free = self.in_flight + self.elsewhere < self.cap
        if is_free and share.has_room and share.is_paced(admission_request.tenant, is_long, now):
            # Permits are free: the wait is for first tokens of this kind, or of any kind for a crowding tenant.
            is_long = is_long and not share.is_crowding(admission_request.tenant, now)
            rate = max(rate or 0.0, share.paces[is_long].per_s or 0.0) or None
            num_kind = queue.num_long if is_long else queue.num_waiting - queue.num_long
            num_ahead *= num_kind / max(queue.num_waiting, 1)
        else:
            num_ahead += self._num_ahead_elsewhere(num_ahead)
        if rate is None:
            return None
        ahead = share.caution * num_ahead + 1.0
        return (ahead if share.limit is None else ahead + share.limit.excess(share.tokens)) / rate

    def _is_saturated(self, share: LaneShare, now: float) -> bool:
        """Return whether the waiting requests need more time than the lane's target, so in order all would be late."""
        slo_s, num_waiting = share.lane.rules.ttft_slo_s, share.queue.num_waiting
        if slo_s is None or num_waiting < _MIN_CROWD:
            return False
        rate = self._release_rate(now, share, None)
        return rate is not None and num_waiting + self._num_ahead_elsewhere(num_waiting) > rate * slo_s

    def _num_held_elsewhere(self) -> int:
        """Return the permits that others hold and will return."""
        return 0

    def _num_ahead_elsewhere(self, num_ahead: float) -> float:
        """Return how many requests of others get a permit before one with `num_ahead` ahead of it here."""
        return 0.0

    def _release_rate(self, now: float, share: LaneShare, hold_s: float | None) -> float | None:
        """Return the permits per second that return to this lane's waiting requests; None when unknown."""
        rate_elsewhere = 0.0
        if share.has_room:
            part = self._weight_part(share, [other for other in self.waiting.values() if other is not share])
            rate = part * sum([_rate(other, hold_s) for other in self.shares.values() if other.in_flight])
            num_elsewhere = self._num_held_elsewhere()
            if num_elsewhere:
                rate_elsewhere = part * _per_s(num_elsewhere, share, hold_s)
        else:
            rate = _rate(share, hold_s)
        idle_s = now - self._released_at
        if rate * idle_s > _STALLED_RATIO:
            rate = _STALLED_RATIO / idle_s
        return rate + rate_elsewhere or None

    # Limits and reserves

    def refresh_limit(self) -> None:
        """Recompute `cap` and `limit`."""
        cap, rows = self._limit.value, self._max_num_seqs
        cap = self.cap = cap if rows is None or cap < rows else rows
        allowed = [cap if share.limit is None else share.limit.requests() or cap for share in self.shares.values()]
        self.limit = min(cap, sum(allowed)) if allowed else cap

    def _reserved_for_other_lanes(self, share: LaneShare, now: float) -> int:
        """Return the permits that this lane may not take, and apply the decay of all reserves."""
        retained = most = 0
        for other in self.shares.values():
            level = other.reserve.level(now)
            most += level + other.sparse.level(now)
            if other is not share:
                retained += max(level - other.in_flight, 0)
        self._reserved = most
        return retained

    def _lane_part(self, share: LaneShare) -> int:
        """Return the permits due to a lane by its weight among active lanes; 0 when it is the only one."""
        rivals = [other for other in self.shares.values() if other is not share and other.in_flight]
        return max(int(self.cap * self._weight_part(share, rivals)), 1) if rivals else 0

    def _weight_part(self, share: LaneShare, rivals: list[LaneShare]) -> float:
        own = share.lane.rules.weight
        return own / (own + sum([other.lane.rules.weight for other in rivals]))

    def _adopt(self, lane: LiveLane) -> LaneShare:
        if len(self.shares) >= _MAX_SHARES:  # most belong to lanes that left the policy
            self.shares = {
                retained: share
                for retained, share in self.shares.items()
                if share.in_flight or retained in self.waiting
            }
        share = self.shares[lane] = LaneShare(lane, self._adaptive(lane, None))
        self._set_room(share)
        self.refresh_limit()
        return share

    def _adaptive(self, lane: LiveLane, retained: AdaptiveLimit | None) -> AdaptiveLimit | None:
        if not self._is_adaptive:
            return None
        limit = retained or AdaptiveLimit()
        limit.start = self._start
        limit.slack_s = max(SLACK_S, _SLACK_RATIO * (lane.rules.ttft_slo_s or 0.0))
        return limit

    def check_integrity(self) -> None:
        """Check the invariants, for tests and idle moments; raises AssertionError."""
        assert self.in_flight == sum(share.in_flight for share in self.shares.values())
        for lane, share in self.shares.items():
            assert (lane in self.waiting) == (share.queue.num_waiting > 0), "a queue is empty and kept, or lost"
            share.check_integrity()


def _is_eligible(share: LaneShare, now: float, *, is_for_sparse: bool) -> IsEligible | None:
    """Return the predicate for waiting requests that may have the lane's next permit; None when all may."""
    is_full, is_paced = not share.has_room, share.has_unread
    if not (is_full or is_paced or is_for_sparse):
        return None

    def is_eligible(tenant: str, is_long: bool) -> bool:
        return (
            not (is_paced and share.is_paced(tenant, is_long, now))
            and not (is_full and not share.has_room_for(tenant))
            and not (is_for_sparse and not share.is_sparse(tenant))
        )

    return is_eligible


def _spent(share: LaneShare) -> float:
    return share.spent


def _rate(share: LaneShare, hold_s: float | None) -> float:
    """Return the permits per second that return to one lane; 0 when unknown."""
    return _per_s(share.in_flight, share, hold_s)


def _per_s(num_held: int, share: LaneShare, hold_s: float | None) -> float:
    """Return how many of `num_held` permits return per second, if they are held as long as this lane's."""
    if share.holds.is_known:
        return num_held / max(share.holds.mean_s, 1e-6)
    return num_held / hold_s if hold_s else 0.0
