"""Scorer for the first candidate of a cascade, unless the prompt is beyond it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from routing_policies.decision import Cause
from routing_policies.views import FIRST_ATTEMPT, Attempt, DeploymentView


@dataclass(frozen=True, slots=True)
class WorthTrying:
    """Score that skips a model whose predicted quality for this prompt is too low or unknown."""

    skip_below: float
    name: str = "worth_trying"

    @property
    def quality_threshold(self) -> float:
        """Least quality with which a candidate is tried."""
        return self.skip_below

    def scores(self, views: Sequence[DeploymentView], attempt: Attempt = FIRST_ATTEMPT) -> list[float]:
        """Return 1 for candidates worth trying and 0 for the others; the order written decides the rest."""
        return [1.0 if self._is_worthy(view) else 0.0 for view in views]

    def cause(self, chosen: DeploymentView, attempt: Attempt) -> Cause:
        """Return whether a prediction was available."""
        return "tried_first" if chosen.is_known_prompt else "unknown_prompt"

    def _is_worthy(self, view: DeploymentView) -> bool:
        return view.quality >= self.skip_below
