"""Filter of candidates that would be too late."""

from __future__ import annotations

from dataclasses import dataclass

from routing_policies.decision import DropReason
from routing_policies.views import Attempt, DeploymentView


@dataclass(frozen=True, slots=True)
class InTime:
    """Filter that drops candidates that admission forecast to miss the request's target or deadline."""

    def drop_reason(self, view: DeploymentView, attempt: Attempt) -> DropReason | None:
        """Return `too_late` or None."""
        return "too_late" if view.id in attempt.avoid else None
