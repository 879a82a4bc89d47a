"""Scorer that keeps each conversation or tenant at one candidate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from routing_policies.decision import Cause
from routing_policies.share import share_of
from routing_policies.views import FIRST_ATTEMPT, Attempt, DeploymentView


@dataclass(frozen=True, slots=True)
class Rendezvous:
    """Score by highest random weight (Thaler and Ravishankar, 1998).

    When a candidate comes or goes, only the keys that it gains or had move, in proportion to its weight.
    """

    name: str = "rendezvous"

    def scores(self, views: Sequence[DeploymentView], attempt: Attempt = FIRST_ATTEMPT) -> list[float]:
        """Return the candidate's share of the key, raised to the heaviest weight over its own.

        Without a key all candidates score 1.
        """
        key = attempt.key
        if key is None:
            return [1.0] * len(views)
        heaviest = max(view.weight for view in views)
        return [share_of(key, view.id) ** (heaviest / view.weight) for view in views]

    def cause(self, chosen: DeploymentView, attempt: Attempt) -> Cause:
        """Return `sticky`, or `first` without a key."""
        return "first" if attempt.key is None else "sticky"
