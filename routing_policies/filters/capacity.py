"""Filter of candidates without a free permit."""

from __future__ import annotations

from dataclasses import dataclass

from routing_policies.decision import DropReason
from routing_policies.views import Attempt, DeploymentView


@dataclass(frozen=True, slots=True)
class Capacity:
    """Filter that drops full candidates; it runs last, so `full` means that nothing else is wrong."""

    def drop_reason(self, view: DeploymentView, attempt: Attempt) -> DropReason | None:
        """Return `full` or None."""
        return "full" if view.is_full else None
