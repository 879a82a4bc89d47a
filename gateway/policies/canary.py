"""CanaryTrial: a policy in force for part of the traffic, beside the revision that it may replace."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from routing_policies.trial import TrialGuard

CanaryState = Literal["running", "rolled_back", "promoted", "stopped"]


class CanaryTrial(msgspec.Struct, frozen=True, kw_only=True):
    """One trial from start to end, with its measurements."""

    id: str
    state: CanaryState
    base: dict[str, Any]
    """Revision to compare with, without its document."""
    revision: str
    """First 12 hex digits of the document's SHA-256."""
    document: str
    percent: int
    tenants: tuple[str, ...] | None
    """Tenants on trial; None for all."""
    author: str
    reason: str
    at: float
    promote_after_s: float | None = None
    guard: TrialGuard = TrialGuard()
    slow_above_ms: float | None = None
    """95th percentile of TTFT under the old policy in milliseconds; None until enough requests were seen."""
    evidence: dict[str, Any] = {}
    ended_at: float | None = None
    ended_by: str | None = None
    why: str | None = None

    @property
    def is_running(self) -> bool:
        """True while the trial is in force."""
        return self.state == "running"

    def shown(self) -> dict[str, Any]:
        """Return the trial as JSON values for the API."""
        shown: dict[str, Any] = msgspec.to_builtins(self)
        return shown
