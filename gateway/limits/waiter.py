"""Waiter: one request that waits in a queue for a permit."""

from __future__ import annotations

import asyncio

from gateway.errors import Shed
from gateway.limits.admission_request import AdmissionRequest


class Waiter:
    """A waiting request; `granted` yields None with the permit already counted, or the refusal to raise."""

    __slots__ = (
        "claim",
        "due_at",
        "granted",
        "is_lane_short",
        "is_long",
        "is_tenant_short",
        "is_waiting",
        "since",
        "tokens",
        "unread",
    )

    def __init__(self, claim: AdmissionRequest, since: float, granted: asyncio.Future[Shed | None]) -> None:
        self.claim = claim
        self.tokens = claim.tokens
        self.is_long = claim.is_long
        self.since = since
        self.due_at = claim.start_by
        """Last instant at which starting it is of use; `NEVER` without a deadline."""
        self.granted = granted
        self.is_lane_short = False
        """True if it waits although its lane holds less than its weight's part of the permits."""
        self.is_tenant_short = False
        """True if it waits although its tenant holds less than a fair part of the lane's permits."""
        self.unread = 0
        """Tokens that its prompt counts until its first token, once granted."""
        self.is_waiting = False
        """True while in a queue; maintained by the queue."""
