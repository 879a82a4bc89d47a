"""Prefers whoever answered this conversation last."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from routing_policies.views import FIRST_ATTEMPT, Attempt, DeploymentView


@dataclass(frozen=True, slots=True)
class Session:
    """Keeps a conversation in one voice where nothing else speaks against it."""

    name: str = "session"

    def scores(self, views: Sequence[DeploymentView], attempt: Attempt = FIRST_ATTEMPT) -> list[float]:
        """1 for the last one, else 0."""
        return [1.0 if view.is_same_session else 0.0 for view in views]
