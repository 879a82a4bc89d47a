"""The shape of a filter."""

from __future__ import annotations

from typing import Protocol

from routing_policies.decision import DropReason
from routing_policies.views import Attempt, DeploymentView


class Filter(Protocol):
    """Looks at one candidate at a time; keeps no state."""

    def drop_reason(self, view: DeploymentView, attempt: Attempt) -> DropReason | None:
        """Why the candidate is out, or None when it may stay."""
        ...
