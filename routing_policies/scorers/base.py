"""Interface of scorers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from routing_policies.decision import Cause
from routing_policies.views import FIRST_ATTEMPT, Attempt, DeploymentView


class Scorer(Protocol):
    """Stateless comparison of candidates; equal candidates get equal scores, except from `order`."""

    @property
    def name(self) -> str:
        """Name of the score in decisions."""
        ...

    def scores(self, views: Sequence[DeploymentView], attempt: Attempt = FIRST_ATTEMPT) -> list[float]:
        """Return one score in [0, 1] for each view, in order, for this attempt; `views` is never empty."""
        ...


@runtime_checkable
class ComparesQuality(Protocol):
    """Scorer that depends on the quality of the candidates' answers."""

    @property
    def quality_threshold(self) -> float | None:
        """Least quality that the scorer takes; None without a threshold."""
        ...


@runtime_checkable
class Explaining(Protocol):
    """Scorer that can give the cause of its first choice."""

    def cause(self, chosen: DeploymentView, attempt: Attempt) -> Cause:
        """Return the cause of the choice."""
        ...
