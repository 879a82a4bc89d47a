"""Scorer for the deployment that answered the conversation's last request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from routing_policies.views import FIRST_ATTEMPT, Attempt, DeploymentView


@dataclass(frozen=True, slots=True)
class Session:
    """Score that keeps a conversation at one deployment where other scores are equal."""

    name: str = "session"

    def scores(self, views: Sequence[DeploymentView], attempt: Attempt = FIRST_ATTEMPT) -> list[float]:
        """Return 1 for the last deployment, else 0."""
        return [1.0 if view.is_same_session else 0.0 for view in views]
