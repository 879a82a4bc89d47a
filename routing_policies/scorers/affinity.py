"""Scorer for replicas that hold the prompt's prefix."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from routing_policies.views import FIRST_ATTEMPT, Attempt, DeploymentView


@dataclass(frozen=True, slots=True)
class Affinity:
    """Score by the share of the prompt whose keys and values a replica probably holds.

    It breaks near ties of `latency`, whose forecast already includes the time saved. A holder that is busier than the
    saving loses there.
    """

    name: str = "affinity"

    def scores(self, views: Sequence[DeploymentView], attempt: Attempt = FIRST_ATTEMPT) -> list[float]:
        """Return affinity tokens / prompt tokens."""
        return [
            view.affinity_tokens / view.prompt_tokens if view.affinity_tokens < view.prompt_tokens else _all_of(view)
            for view in views
        ]


def _all_of(view: DeploymentView) -> float:
    return 1.0 if view.prompt_tokens else 0.0
