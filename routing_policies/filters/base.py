"""Interface of filters."""

from __future__ import annotations

from typing import Protocol

from routing_policies.decision import DropReason
from routing_policies.views import Attempt, DeploymentView


class Filter(Protocol):
    """Stateless check of one candidate at a time."""

    def drop_reason(self, view: DeploymentView, attempt: Attempt) -> DropReason | None:
        """Return the reason to drop the candidate, or None to keep it."""
        ...
