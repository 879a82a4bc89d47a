"""The shape of a scorer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from routing_policies.decision import Cause
from routing_policies.views import FIRST_ATTEMPT, Attempt, DeploymentView


class Scorer(Protocol):
    """Compares candidates; keeps no state. Equal candidates get equal scores, except by `order`."""

    @property
    def name(self) -> str:
        """Names the score in decisions."""
        ...

    def scores(self, views: Sequence[DeploymentView], attempt: Attempt = FIRST_ATTEMPT) -> list[float]:
        """One score in [0, 1] for each view, in the order given, for this attempt; `views` is never empty."""
        ...


@runtime_checkable
class Explaining(Protocol):
    """A scorer that can say why the candidate it put first is there."""

    def cause(self, chosen: DeploymentView, attempt: Attempt) -> Cause:
        """Why this one."""
        ...
