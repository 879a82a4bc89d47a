"""Waiter: one request that stands in a queue for a permit."""

from __future__ import annotations

import asyncio

from gateway.errors import Shed
from gateway.limits.admission_request import AdmissionRequest


class Waiter:
    """`granted` ends with None and the permit's work already counted, or with the refusal to raise."""

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
        """After this it is no longer worth starting; `claim.NEVER` when it always is."""
        self.granted = granted
        self.is_lane_short = False
        """It has to wait although its lane holds less than its weight's part of the permits."""
        self.is_tenant_short = False
        """It has to wait although its tenant holds less than a fair part of the lane's permits."""
        self.unread = 0
        """Once granted, what its prompt counts until its first token."""
        self.is_waiting = False
        """In a queue now; kept by the queue."""
