"""Prefers the first candidate unless the prompt is beyond it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from routing_policies.decision import Cause
from routing_policies.views import FIRST_ATTEMPT, Attempt, DeploymentView


@dataclass(frozen=True, slots=True)
class WorthTrying:
    """For cascades: a model whose answer will surely not do is not asked for one, nor is one that nothing is known of
    for this prompt."""

    skip_below: float
    name: str = "worth_trying"

    def scores(self, views: Sequence[DeploymentView], attempt: Attempt = FIRST_ATTEMPT) -> list[float]:
        """1 for the worthy, 0 for the others; the order written settles the rest."""
        return [1.0 if self._is_worthy(view) else 0.0 for view in views]

    def cause(self, chosen: DeploymentView, attempt: Attempt) -> Cause:
        """Whether there was a prediction to go by."""
        return "tried_first" if chosen.is_known_prompt else "unknown_prompt"

    def _is_worthy(self, view: DeploymentView) -> bool:
        return view.quality >= self.skip_below
