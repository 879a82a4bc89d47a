"""Drops candidates without a free permit."""

from __future__ import annotations

from dataclasses import dataclass

from routing_policies.decision import DropReason
from routing_policies.views import Attempt, DeploymentView


@dataclass(frozen=True, slots=True)
class Capacity:
    """Comes last, so that `full` means: nothing else is wrong with it."""

    def drop_reason(self, view: DeploymentView, attempt: Attempt) -> DropReason | None:
        """`full` or None."""
        return "full" if view.is_full else None
