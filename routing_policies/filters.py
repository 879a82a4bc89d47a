"""Filters: each returns the reason why a candidate cannot take an attempt, or None."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from routing_policies.decision import DropReason
from routing_policies.views import Attempt, DeploymentView


class Filter(Protocol):
    """Stateless check of one candidate at a time."""

    def drop_reason(self, view: DeploymentView, attempt: Attempt) -> DropReason | None:
        """Return the reason to drop the candidate, or None to keep it."""
        ...


@dataclass(frozen=True, slots=True)
class Health:
    """Filter that drops ejected candidates and those not ready; of both reasons, ejection is reported."""

    def drop_reason(self, view: DeploymentView, attempt: Attempt) -> DropReason | None:
        """Return `ejected`, `not_ready` or None."""
        if view.is_ejected:
            return "ejected"
        return None if view.is_ready else "not_ready"


@dataclass(frozen=True, slots=True)
class Untried:
    """Filter that drops candidates of earlier attempts, so a retry goes to another one or nowhere."""

    def drop_reason(self, view: DeploymentView, attempt: Attempt) -> DropReason | None:
        """Return `already_tried` or None."""
        return "already_tried" if view.id in attempt.already_tried else None


@dataclass(frozen=True, slots=True)
class InTime:
    """Filter that drops candidates that admission forecast to miss the request's target or deadline."""

    def drop_reason(self, view: DeploymentView, attempt: Attempt) -> DropReason | None:
        """Return `too_late` or None."""
        return "too_late" if view.id in attempt.avoid else None


@dataclass(frozen=True, slots=True)
class Warm:
    """Filter that drops new members that leave this request to others."""

    def drop_reason(self, view: DeploymentView, attempt: Attempt) -> DropReason | None:
        """Return `warming` or None."""
        return "warming" if view.id in attempt.cold else None


@dataclass(frozen=True, slots=True)
class Capacity:
    """Filter that drops full candidates; it runs last, so `full` means that nothing else is wrong."""

    def drop_reason(self, view: DeploymentView, attempt: Attempt) -> DropReason | None:
        """Return `full` or None."""
        return "full" if view.is_full else None
