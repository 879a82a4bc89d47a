"""Prefers candidates that write fast."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from routing_policies.views import FIRST_ATTEMPT, Attempt, DeploymentView

_FLOOR_S: Final = 1e-5


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds per output token beside the rows that run now, relative to the fastest."""

    name: str = "pace"

    def scores(self, views: Sequence[DeploymentView], attempt: Attempt = FIRST_ATTEMPT) -> list[float]:
        """fastest / own; 0 where it is not known, unless it is known of nobody."""
        paces = [None if view.tpot_s is None else max(view.tpot_s, _FLOOR_S) for view in views]
        fastest = min((found for found in paces if found is not None), default=None)
        if fastest is None:
            return [1.0] * len(views)
        return [0.0 if found is None else fastest / found for found in paces]
