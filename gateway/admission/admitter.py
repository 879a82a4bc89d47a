"""Admitter: a request's caller, lane, deadline and admission request."""

from __future__ import annotations

import msgspec

from gateway.access.api_keys import Caller
from gateway.admission.guard import OverloadGuard
from gateway.chat.headers import ChatHead
from gateway.errors import Shed, ShedReason
from gateway.limits.lane import LiveLane
from gateway.limits.permit import AdmissionRequest
from gateway.request_context import RequestContext
from gateway.routing.snapshot import PolicySnapshot
from gateway.telemetry.tracing.tracing import Tracing
from gateway.timeline import Clock
from routing_policies.estimation.estimators import Price

DRAIN_RETRY_AFTER_S = 1.0
"""Seconds until another replica, or the next process on this address, is expected."""

_MAX_LONGER_HOPS = 4
"""Maximum number of `longer` lanes that are followed from one lane; a policy has no use for more."""


class Admission(msgspec.Struct, frozen=True):
    """A request that may go on."""

    caller: Caller
    lane: LiveLane
    deadline_at: float | None
    """Monotonic instant after which the client no longer waits for a first byte."""
    received_at: float = 0.0


class Admitter:
    """The decisions that need no deployment."""

    __slots__ = ("_clock", "_guard", "_tracing")

    def __init__(self, clock: Clock, guard: OverloadGuard, tracing: Tracing | None = None) -> None:
        """Create an admitter; `tracing` is None where no spans are sent."""
        self._clock = clock
        self._guard = guard
        self._tracing = tracing

    def identify(self, ctx: RequestContext, head: ChatHead, client_host: str | None) -> Caller:
        """Return the caller.

        Raises:
            InvalidApiKey: The key is absent, malformed or unknown.
            Shed: The gateway itself is overloaded for the caller's lane.
        """
        record, snapshot = ctx.record, ctx.snapshot
        record.client_request_id = head.client_request_id
        record.is_retry = head.is_retry
        ctx.wants_timing = head.wants_timing
        if self._tracing is not None:
            record.trace = self._tracing.begin(head)
        caller = ctx.caller = snapshot.keys.authenticate(head.authorization, client_host)
        record.tenant = caller.tenant
        ctx.cache_salt = caller.cache_salt
        if self._guard.strain:
            lane, lanes = self.lane(snapshot, head, caller), snapshot.lanes.values()
            record.lane = lane.id
            self._guard.check(lane, max(other.rules.weight for other in lanes), is_retry=head.is_retry)
        return caller

    def admit(
        self, snapshot: PolicySnapshot, head: ChatHead, caller: Caller, *, received_at: float, is_draining: bool
    ) -> Admission:
        """Return the lane and the deadline.

        Raises:
            Shed: The gateway drains, or the client's time is already over.
        """
        lane = self.lane(snapshot, head, caller)
        if is_draining:
            raise draining(lane.id)
        timeout_s = head.client_timeout_s
        deadline_at = None if timeout_s is None else received_at + timeout_s
        if deadline_at is not None and self._clock() >= deadline_at:
            raise too_late(lane)
        return Admission(caller, lane, deadline_at, received_at)

    def lane(self, snapshot: PolicySnapshot, head: ChatHead, caller: Caller) -> LiveLane:
        """Return the requested lane if it exists and the caller may use it, else the caller's own."""
        wanted = head.lane
        given = caller.lane(wanted if wanted in snapshot.lanes else None, snapshot.default_lane)
        if wanted is not None and wanted != given and "x-penstock-priority" not in head.ignored:
            head.ignored = (*head.ignored, "x-penstock-priority")
        return snapshot.lanes[given]

    def admission_request(
        self, snapshot: PolicySnapshot, head: ChatHead, admission: Admission, price: Price
    ) -> tuple[AdmissionRequest, float | None]:
        """Return the admission request at this price, and the most seconds a token that it accepts.

        A long prompt goes to its own lane. The lane's targets hold unless the client wants tighter ones.
        """
        lane = admission.lane
        longest = lane.rules.max_prompt_tokens
        if longest is not None and price.prompt_tokens > longest:
            lane = _lane_of_length(snapshot, lane, price.prompt_tokens)
        ttft_s, tpot_s = lane.rules.ttft_slo_s, lane.rules.tpot_slo_s
        if head.has_targets:
            ttft_s, tpot_s = _tighter(head.slo_s("ttft"), ttft_s), _tighter(head.slo_s("tpot"), tpot_s)
        received_at = admission.received_at
        admission_request = AdmissionRequest(
            lane,
            admission.caller.tenant,
            price.work_tokens,
            admission.deadline_at,
            None if ttft_s is None else received_at + ttft_s,
            head.is_retry,
            received_at,
        )
        return admission_request, tpot_s


def _lane_of_length(snapshot: PolicySnapshot, lane: LiveLane, prompt_tokens: int) -> LiveLane:
    """Return the lane for a prompt of this length."""
    for _ in range(_MAX_LONGER_HOPS):
        longer, most = lane.rules.longer, lane.rules.max_prompt_tokens
        if longer is None or most is None or prompt_tokens <= most:
            break
        lane = snapshot.lanes[longer]
    return lane


def _tighter(wanted: float | None, given: float | None) -> float | None:
    """Return the tighter limit: a client may shorten the lane's, never extend it."""
    if wanted is None or given is None:
        return given if wanted is None else wanted
    return min(wanted, given)


def draining(lane: str) -> Shed:
    """Return the refusal of a gateway that drains."""
    return Shed(
        ShedReason.DRAINING,
        lane=lane,
        message="This gateway is shutting down. Try again; another one will answer.",
        hint="The same request at another replica, or in a moment.",
        retry_after_s=DRAIN_RETRY_AFTER_S,
        predicted_wait_s=DRAIN_RETRY_AFTER_S,
    )


def too_late(lane: LiveLane) -> Shed:
    """Return the refusal of work whose client would be gone before the answer."""
    return Shed(
        ShedReason.DEADLINE,
        lane=lane.id,
        message="The client's own timeout has passed. Nothing was started.",
        hint="A longer client timeout.",
        queue_depth=lane.total_waiting,
    )
