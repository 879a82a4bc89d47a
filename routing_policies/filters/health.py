"""Filter of candidates that would fail."""

from __future__ import annotations

from dataclasses import dataclass

from routing_policies.decision import DropReason
from routing_policies.views import Attempt, DeploymentView


@dataclass(frozen=True, slots=True)
class Health:
    """Filter that drops ejected candidates and those not ready; of both reasons, ejection is reported."""

    def drop_reason(self, view: DeploymentView, attempt: Attempt) -> DropReason | None:
        """Return `ejected`, `not_ready` or None."""
        if view.is_ejected:
            return "ejected"
        return None if view.is_ready else "not_ready"
