"""The outcome of routing one request, with everything that led to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

DropReason = Literal["not_ready", "ejected", "full", "already_tried"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Which deployment answers, and why. Every candidate is either in `dropped` or in `scores`."""

    deployment: str | None
    """None when every candidate was dropped."""
    policy: str
    reason: str
    """One phrase for logs and pages."""
    dropped: Mapping[str, DropReason]
    scores: Mapping[str, Mapping[str, float]]
    """Candidate → scorer → score in [0, 1], before weighting."""
    totals: Mapping[str, float]
    """Candidate → weighted mean of its scores, in [0, 1]."""

    @property
    def is_saturated(self) -> bool:
        """Whether nobody was chosen although waiting would help: some candidate lacks only a free permit."""
        return self.deployment is None and "full" in self.dropped.values()

    @property
    def candidates(self) -> tuple[str, ...]:
        """Those that passed every filter, in the route's order."""
        return tuple(self.totals)
