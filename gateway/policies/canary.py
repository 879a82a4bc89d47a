"""CanaryTrial: a policy in force for some of the traffic, beside the revision that it may replace."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from routing_policies.trial import TrialGuard

CanaryState = Literal["running", "rolled_back", "promoted", "stopped"]


class CanaryTrial(msgspec.Struct, frozen=True, kw_only=True):
    """One trial, from its start to its end; what it measured stays in it."""

    id: str
    state: CanaryState
    base: dict[str, Any]
    """The revision it is compared with, without its document."""
    revision: str
    """First 12 hex digits of the sha256 of its document."""
    document: str
    percent: int
    tenants: tuple[str, ...] | None
    """None: all of them."""
    author: str
    reason: str
    at: float
    promote_after_s: float | None = None
    guard: TrialGuard = TrialGuard()
    slow_above_ms: float | None = None
    """The old policy's 95th percentile of the time to the first token, once enough was seen of it."""
    evidence: dict[str, Any] = {}
    ended_at: float | None = None
    ended_by: str | None = None
    why: str | None = None

    @property
    def is_running(self) -> bool:
        """Whether it is in force."""
        return self.state == "running"

    def shown(self) -> dict[str, Any]:
        """For the API."""
        shown: dict[str, Any] = msgspec.to_builtins(self)
        return shown
