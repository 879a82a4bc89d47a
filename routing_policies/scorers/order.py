"""Scorer in the order that the route lists its candidates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from routing_policies.policy.members import SEPARATOR, group_of
from routing_policies.views import FIRST_ATTEMPT, Attempt, DeploymentView

_LOAD_SHARE: Final = 0.5
"""Part of a position by which load separates members of one group."""


@dataclass(frozen=True, slots=True)
class Order:
    """Score from 1 for the first evenly down to 1/n for the last of n; load alone orders the members of a group."""

    name: str = "order"

    def scores(self, views: Sequence[DeploymentView], attempt: Attempt = FIRST_ATTEMPT) -> list[float]:
        """Return (n - position) / n, in which a group has its first member's position and half a position for load."""
        num = len(views)
        if not any(SEPARATOR in view.id for view in views):
            return [(num - position) / num for position in range(num)]
        first: dict[str, int] = {}
        for position, view in enumerate(views):
            first.setdefault(group_of(view.id), position)
        return [
            (
                num
                - first[group_of(view.id)]
                - (_LOAD_SHARE * min(view.load_ratio, 1.0) if SEPARATOR in view.id else 0.0)
            )
            / num
            for view in views
        ]
