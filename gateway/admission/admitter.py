"""Admitter: who asks, in which lane, and until when an answer is of use."""

from __future__ import annotations

import msgspec

from gateway.admission.lane import Lane
from gateway.chat_head import ChatHead
from gateway.errors import Shed, ShedReason
from gateway.keys import Caller
from gateway.routing.snapshot import PolicySnapshot
from gateway.timeline import Clock

DRAIN_RETRY_AFTER_S = 1.0
"""Another replica, or the next process on this address, is expected at once."""


class Admission(msgspec.Struct, frozen=True):
    """A request that may go on."""

    caller: Caller
    lane: Lane
    deadline_at: float | None
    """Monotonic instant after which the client no longer waits for a first byte."""


class Admitter:
    """The decisions that need no body."""

    __slots__ = ("_clock",)

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def identify(self, snapshot: PolicySnapshot, head: ChatHead, client_host: str | None) -> Caller:
        """Who is asking; raises InvalidApiKey."""
        return snapshot.keys.authenticate(head.authorization, client_host)

    def admit(
        self, snapshot: PolicySnapshot, head: ChatHead, caller: Caller, *, received_at: float, is_draining: bool
    ) -> Admission:
        """The lane and the deadline; raises Shed when draining or when the client's time is already over."""
        lane = self._lane(snapshot, head, caller)
        if is_draining:
            raise draining(lane.id)
        timeout_s = head.client_timeout_s
        deadline_at = None if timeout_s is None else received_at + timeout_s
        if deadline_at is not None and self._clock() >= deadline_at:
            raise too_late(lane)
        return Admission(caller, lane, deadline_at)

    def _lane(self, snapshot: PolicySnapshot, head: ChatHead, caller: Caller) -> Lane:
        wanted = head.lane
        if wanted not in snapshot.lanes:
            wanted = None
        return snapshot.lanes[caller.lane(wanted, snapshot.default_lane)]


def draining(lane: str) -> Shed:
    """The refusal of a gateway that is about to stop."""
    return Shed(
        ShedReason.DRAINING,
        lane=lane,
        message="This gateway is shutting down. Try again; another one will answer.",
        hint="The same request at another replica, or in a moment.",
        retry_after_s=DRAIN_RETRY_AFTER_S,
        predicted_wait_s=DRAIN_RETRY_AFTER_S,
    )


def too_late(lane: Lane) -> Shed:
    """The refusal of work whose answer nobody would wait for."""
    return Shed(
        ShedReason.DEADLINE,
        lane=lane.id,
        message="The client's own timeout has passed. Nothing was started.",
        hint="A longer client timeout.",
        queue_depth=lane.num_waiting,
    )
