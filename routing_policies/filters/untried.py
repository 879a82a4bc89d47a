"""Filter of candidates that the request has already failed on."""

from __future__ import annotations

from dataclasses import dataclass

from routing_policies.decision import DropReason
from routing_policies.views import Attempt, DeploymentView


@dataclass(frozen=True, slots=True)
class Untried:
    """Filter that drops candidates of earlier attempts, so a retry goes to another one or nowhere."""

    def drop_reason(self, view: DeploymentView, attempt: Attempt) -> DropReason | None:
        """Return `already_tried` or None."""
        return "already_tried" if view.id in attempt.already_tried else None
