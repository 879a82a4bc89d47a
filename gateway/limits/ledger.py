"""Ledger: the permits of one deployment, by lane: what is out, who may have the next one, and how soon there is one.

A permit is free for a claim when the deployment's own limit leaves one, the lane's adaptive limit leaves tokens, and it
is not one of the few that are kept free: for another lane that holds less than its weight's part, or inside a lane for
tenants that hold less than a fair part. How many are kept is learned from waits, for lanes with a latency target only.
"""

from __future__ import annotations

from typing import Final

from gateway.limits.adaptive_limit import SLACK_S, AdaptiveLimit
from gateway.limits.fair_queue import MayGo
from gateway.limits.lane import LiveLane
from gateway.limits.lane_share import LaneShare
from gateway.limits.limit import Limit
from gateway.limits.permit import AdmissionRequest, Waiter

_STALLED_RATIO: Final = 3.0
"""So many times the usual gap between permits that come back, and the usual gap is not believed any more."""
_NOTABLE_WAIT_S: Final = 0.005
_NOTABLE_WAIT_RATIO: Final = 0.1
"""Of a lane's latency target: a shorter wait is no reason to keep permits free."""
_MAX_SPARSE_RATIO: Final = 0.25
_SLACK_RATIO: Final = 0.2
"""Of a lane's latency target, what may pass in the deployment's own queue."""
_MIN_CROWD: Final = 4
"""Fewer waiters than this are served in order in any case."""
_MAX_SHARES: Final = 64


class Ledger:
    """Counts and computes; it knows no clock and wakes nobody."""

    __slots__ = (
        "_is_adaptive",
        "_kept",
        "_limit",
        "_max_rows",
        "_may_move",
        "_released_at",
        "_room",
        "_start",
        "cap",
        "in_flight",
        "limit",
        "shares",
        "waiting",
    )

    def __init__(self, limit: Limit, *, start: int | None, is_adaptive: bool) -> None:
        self.shares: dict[LiveLane, LaneShare] = {}
        self.waiting: dict[LiveLane, LaneShare] = {}
        """Only those in which somebody waits."""
        self._kept = 0
        """At least as many permits as all reserves together keep free."""
        self._max_rows: int | None = None
        self._may_move = False
        """Whether a lane may have learned a limit: until then no first token changes what is allowed."""
        self._room: int | None = None
        self._released_at = 0.0
        self.in_flight = 0
        self.limit = 1
        """Permits that may be out at once now, all lanes together."""
        self.cap = 1
        """The same, whatever the lanes' own limits say."""
        self.set_limit(limit, start=start, is_adaptive=is_adaptive)

    def set_limit(self, limit: Limit, *, start: int | None, is_adaptive: bool) -> None:
        """Use another Limit, and adaptive limits in the lanes or none."""
        self._limit = limit
        self._start = start
        self._is_adaptive = is_adaptive or start is not None
        for share in self.shares.values():
            share.limit = self._adaptive(share.lane, share.limit)
        self.refresh_limit()

    def bound_rows(self, max_rows: int | None) -> bool:
        """Let no more than `max_rows` permits out; whether that is news."""
        if max_rows == self._max_rows:
            return False
        self._max_rows = max_rows
        self.refresh_limit()
        return True

    def set_room(self, step_tokens: int | None) -> bool:
        """What one step of the deployment reads, None where nobody knows; whether that is more than it was."""
        if step_tokens == self._room:
            return False
        is_more = step_tokens is None or (self._room is not None and step_tokens > self._room)
        self._room = step_tokens
        for share in self.shares.values():
            self._set_room(share)
        return is_more

    def _set_room(self, share: LaneShare) -> None:
        """Only where somebody wants first tokens soon."""
        for pace in share.paces:
            pace.room = None if share.lane.rules.ttft_slo_s is None else self._room

    def share_of(self, lane: LiveLane) -> LaneShare:
        """The books of one lane, opened when there are none."""
        return self.shares.get(lane) or self._adopt(lane)

    # Who may start

    def may_start(self, share: LaneShare, tenant: str, is_long: bool, now: float) -> bool:
        """Whether a permit is free for this lane and tenant, and such a prompt may be sent."""
        free, limit = self.cap - self.in_flight, share.limit
        # Mostly no queue was ever seen in the lane, and nothing but the deployment's own limit holds.
        is_limited = limit is not None and (limit.value is not None or limit.start is not None)
        if free <= 0 or (is_limited and not share.has_room_for(tenant)):
            return False
        if self._room is not None and share.is_paced(tenant, is_long, now):
            return False
        if free > self._kept or not self.in_flight:  # where nothing is out, nothing would end a wait
            return True
        free -= self._kept_for_other_lanes(share, now)
        return free > 0 and (free > share.sparse.level(now) or share.is_sparse(tenant))

    def may_pass(self, share: LaneShare, tenant: str, is_long: bool) -> bool:
        """Whether a newcomer need not stand behind those of its lane that wait: they are of the other kind, or permits
        are kept free for its like."""
        queue = share.queue
        return queue.num_waiting == 0 or not queue.has_waiting(is_long=is_long) or share.is_sparse(tenant)

    def next_waiter(self, now: float) -> tuple[LaneShare, Waiter] | None:
        """The next who may start, taken out of its queue; of the lanes, the one that has spent least for its weight."""
        shares = self.waiting.values()
        for share in sorted(shares, key=_spent) if len(shares) > 1 else shares:
            free = self.cap - self.in_flight
            if free <= 0:
                return None
            is_for_sparse = False
            if free <= self._kept and self.in_flight:
                free -= self._kept_for_other_lanes(share, now)
                if free <= 0:
                    continue
                is_for_sparse = free <= share.sparse.level(now) and share.has_room
            may_go = _may_go(share, now, is_for_sparse=is_for_sparse)
            waiter = share.queue.pop(newest_first=self._is_saturated(share, now), may_go=may_go)
            if waiter is not None:
                return share, waiter
        return None

    def open(self, share: LaneShare, claim: AdmissionRequest, is_long: bool, now: float) -> int:
        """One more permit is out; what its prompt counts while it is unread."""
        self.in_flight += 1
        return share.open(claim, is_long, now)

    def close(self, share: LaneShare, claim: AdmissionRequest, tokens: int) -> None:
        """A permit that counted `tokens` is out no more."""
        self.in_flight -= 1
        share.close(claim, tokens)

    # What is learned

    def note_held(self, share: LaneShare, now: float, held_s: float, tokens: int) -> None:
        """A permit came back after its work."""
        self._released_at = now
        share.holds.note(held_s, tokens)

    def note_short(self, share: LaneShare, waiter: Waiter) -> None:
        """Somebody has to wait: remember whether it is for want of a fair part."""
        if share.lane.rules.ttft_slo_s is not None:
            waiter.is_tenant_short = share.is_sparse(waiter.claim.tenant)
            waiter.is_lane_short = share.in_flight < self._lane_part(share)

    def note_waited(self, share: LaneShare, waiter: Waiter, now: float) -> None:
        """It waited: keep one permit more free where that was for want of a fair part."""
        slo_s = share.lane.rules.ttft_slo_s
        if slo_s is None or now - waiter.since < max(_NOTABLE_WAIT_RATIO * slo_s, _NOTABLE_WAIT_S):
            return
        if waiter.is_lane_short:
            share.reserve.note_wait(now, min(self._lane_part(share), self.cap - 1))
        elif waiter.is_tenant_short:
            share.sparse.note_wait(now, int(_MAX_SPARSE_RATIO * self.cap))
        else:
            return
        self._kept = sum([other.reserve.most + other.sparse.most for other in self.shares.values()])

    def note_ttft(
        self, share: LaneShare, claim: AdmissionRequest, now: float, measured_s: float, expected_s: float
    ) -> None:
        """A claim's first token came. While a lane of less weight is at work, that one gives way when it was late."""
        share.note_ttft(now, claim, measured_s, expected_s)
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

    # What is forecast

    def wait_s(
        self,
        now: float,
        claim: AdmissionRequest,
        hold_s: float | None = None,
        *,
        is_newcomer: bool = False,
        is_long: bool = False,
    ) -> float | None:
        """Seconds until this claim may start, 0 when it may now; None when nothing is known.

        `hold_s` is how long a request is held, for as long as none was seen to end; `is_newcomer` forecasts for a
        tenant of which nothing waits, `is_long` for a claim that does not say how long its prompt is.
        """
        share = self.shares.get(claim.lane) or self._adopt(claim.lane)
        is_long = is_long or claim.is_long
        if self.may_pass(share, claim.tenant, is_long) and self.may_start(share, claim.tenant, is_long, now):
            return 0.0
        queue, num_ahead = share.queue, 0.0
        if queue.num_waiting:
            num_ahead = queue.tokens_ahead("" if is_newcomer else claim.tenant) * queue.num_waiting / queue.tokens
        rate = self._release_rate(now, share, hold_s)
        if share.has_room and self.in_flight < self.cap and share.is_paced(claim.tenant, is_long, now):
            # There are permits: what is waited for is that prompts of the kind are read, and by who crowds, any.
            is_long = is_long and not share.is_crowding(claim.tenant, now)
            rate = max(rate or 0.0, share.paces[is_long].per_s or 0.0) or None
            num_kind = queue.num_long if is_long else queue.num_waiting - queue.num_long
            num_ahead *= num_kind / max(queue.num_waiting, 1)
        if rate is None:
            return None
        ahead = share.caution * num_ahead + 1.0
        return (ahead if share.limit is None else ahead + share.limit.excess(share.tokens)) / rate

    def _is_saturated(self, share: LaneShare, now: float) -> bool:
        """Whether those who wait would need more time than the lane's target leaves: in order all would come late."""
        slo_s, num_waiting = share.lane.rules.ttft_slo_s, share.queue.num_waiting
        if slo_s is None or num_waiting < _MIN_CROWD:
            return False
        rate = self._release_rate(now, share, None)
        return rate is not None and num_waiting > rate * slo_s

    def _release_rate(self, now: float, share: LaneShare, hold_s: float | None) -> float | None:
        """Permits a second that come back to this lane's waiters; None when nothing is known yet."""
        if share.has_room:
            rate = sum([_rate(other, hold_s) for other in self.shares.values() if other.in_flight])
            rate *= self._weight_part(share, [other for other in self.waiting.values() if other is not share])
        else:
            rate = _rate(share, hold_s)
        if rate <= 0.0:
            return None
        quiet_s = now - self._released_at
        return rate if rate * quiet_s <= _STALLED_RATIO else _STALLED_RATIO / quiet_s

    # Limits and reserves

    def refresh_limit(self) -> None:
        """Work out `cap` and `limit` anew."""
        cap, rows = self._limit.value, self._max_rows
        cap = self.cap = cap if rows is None or cap < rows else rows
        allowed = [cap if share.limit is None else share.limit.requests() or cap for share in self.shares.values()]
        self.limit = min(cap, sum(allowed)) if allowed else cap

    def _kept_for_other_lanes(self, share: LaneShare, now: float) -> int:
        """Permits that this lane may not take; forgets what time took off all reserves."""
        kept = most = 0
        for other in self.shares.values():
            level = other.reserve.level(now)
            most += level + other.sparse.level(now)
            if other is not share:
                kept += max(level - other.in_flight, 0)
        self._kept = most
        return kept

    def _lane_part(self, share: LaneShare) -> int:
        """Permits due to a lane by its weight among those at work; 0 when it is alone, with nobody in its way."""
        rivals = [other for other in self.shares.values() if other is not share and other.in_flight]
        return max(int(self.cap * self._weight_part(share, rivals)), 1) if rivals else 0

    def _weight_part(self, share: LaneShare, rivals: list[LaneShare]) -> float:
        own = share.lane.rules.weight
        return own / (own + sum([other.lane.rules.weight for other in rivals]))

    def _adopt(self, lane: LiveLane) -> LaneShare:
        if len(self.shares) >= _MAX_SHARES:  # most are of lanes that left the policy
            self.shares = {
                kept: share for kept, share in self.shares.items() if share.in_flight or kept in self.waiting
            }
        share = self.shares[lane] = LaneShare(lane, self._adaptive(lane, None))
        self._set_room(share)
        self.refresh_limit()
        return share

    def _adaptive(self, lane: LiveLane, kept: AdaptiveLimit | None) -> AdaptiveLimit | None:
        if not self._is_adaptive:
            return None
        limit = kept or AdaptiveLimit()
        limit.start = self._start
        limit.slack_s = max(SLACK_S, _SLACK_RATIO * (lane.rules.ttft_slo_s or 0.0))
        return limit

    def check_integrity(self) -> None:
        """Raises AssertionError when the counts contradict each other; for tests and idle moments."""
        assert self.in_flight == sum(share.in_flight for share in self.shares.values())
        for lane, share in self.shares.items():
            assert (lane in self.waiting) == (share.queue.num_waiting > 0), "a queue is empty and kept, or lost"
            share.check_integrity()


def _may_go(share: LaneShare, now: float, *, is_for_sparse: bool) -> MayGo | None:
    """Who of those that wait in a lane may have its next permit; None: anybody."""
    is_full, is_paced = not share.has_room, share.has_unread
    if not (is_full or is_paced or is_for_sparse):
        return None

    def may_go(tenant: str, is_long: bool) -> bool:
        return (
            not (is_paced and share.is_paced(tenant, is_long, now))
            and not (is_full and not share.has_room_for(tenant))
            and not (is_for_sparse and not share.is_sparse(tenant))
        )

    return may_go


def _spent(share: LaneShare) -> float:
    return share.spent


def _rate(share: LaneShare, hold_s: float | None) -> float:
    """Permits a second that come back to one lane; 0 when nobody knows."""
    if share.holds.is_known:
        return share.in_flight / max(share.holds.mean_s, 1e-6)
    return share.in_flight / hold_s if hold_s else 0.0
