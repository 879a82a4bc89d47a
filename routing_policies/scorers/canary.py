"""Prefers one candidate for a share of the conversations, and any other for the rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from routing_policies.decision import Cause
from routing_policies.share import share_of
from routing_policies.views import FIRST_ATTEMPT, Attempt, DeploymentView


@dataclass(frozen=True, slots=True)
class CanaryShare:
    """Who is in at a small ratio is in at every larger one; either side stands in for the other."""

    candidate: str
    ratio: float
    name: str = "canary"

    def scores(self, views: Sequence[DeploymentView], attempt: Attempt = FIRST_ATTEMPT) -> list[float]:
        """1 on the side the conversation belongs to, 0 on the other."""
        is_in = self._is_in(attempt)
        return [1.0 if (view.id == self.candidate) is is_in else 0.0 for view in views]

    def cause(self, chosen: DeploymentView, attempt: Attempt) -> Cause:
        """The side that answers."""
        return "canary" if chosen.id == self.candidate else "stable"

    def _is_in(self, attempt: Attempt) -> bool:
        return attempt.key is not None and share_of(attempt.key, f"canary:{self.candidate}") < self.ratio
