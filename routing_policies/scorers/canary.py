"""Scorer that gives a share of the conversations to one candidate, and the rest to the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from routing_policies.decision import Cause
from routing_policies.policy.members import group_of
from routing_policies.share import share_of
from routing_policies.views import FIRST_ATTEMPT, Attempt, DeploymentView


@dataclass(frozen=True, slots=True)
class CanaryShare:
    """Score by the side a conversation belongs to; a conversation in a small share is in every larger one too.

    Either side takes over when the other cannot serve.
    """

    candidate: str
    ratio: float
    name: str = "canary"

    def scores(self, views: Sequence[DeploymentView], attempt: Attempt = FIRST_ATTEMPT) -> list[float]:
        """Return 1 on the side that the conversation belongs to, 0 on the other."""
        is_in = self._is_in(attempt)
        return [1.0 if (group_of(view.id) == self.candidate) is is_in else 0.0 for view in views]

    def cause(self, chosen: DeploymentView, attempt: Attempt) -> Cause:
        """Return the side that answers."""
        return "canary" if group_of(chosen.id) == self.candidate else "stable"

    def _is_in(self, attempt: Attempt) -> bool:
        return attempt.key is not None and share_of(attempt.key, f"canary:{self.candidate}") < self.ratio
