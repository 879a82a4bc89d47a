"""The outcome of routing one request, with everything that led to it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, Protocol

import msgspec

Cause = Literal[
    "first", "within_slo", "good_enough", "not_good_enough", "unknown_prompt", "too_slow",
    "within_cap", "over_cap", "sticky", "canary", "stable", "tried_first",
]  # fmt: skip
"""Why the one that was chosen stood above the others; a metric label."""
DropReason = Literal["not_ready", "ejected", "full", "already_tried", "too_late"]


class RankedCandidates(Protocol):
    """What the candidates that passed every filter were weighed by, worked out when somebody looks."""

    @property
    def scores(self) -> Mapping[str, Mapping[str, float]]:
        """As the decision's."""
        ...

    @property
    def totals(self) -> Mapping[str, float]:
        """As the decision's."""
        ...


class Decision(msgspec.Struct, frozen=True):
    """Which deployment answers, and why. Every candidate that was looked at is either in `dropped` or in `scores`."""

    deployment: str | None
    """None when every candidate was dropped."""
    policy: str
    dropped: Mapping[str, DropReason]
    ranked: RankedCandidates | None = None
    """None when every candidate was dropped."""
    cause: Cause = "first"

    @property
    def scores(self) -> Mapping[str, Mapping[str, float]]:
        """Candidate → scorer → score in [0, 1], before weighting."""
        return {} if self.ranked is None else self.ranked.scores

    @property
    def totals(self) -> Mapping[str, float]:
        """Candidate → weighted mean of its scores, in [0, 1]."""
        return {} if self.ranked is None else self.ranked.totals

    @property
    def reason(self) -> str:
        """One phrase for logs and pages."""
        out = ", ".join(f"{candidate} {reason}" for candidate, reason in self.dropped.items())
        if self.deployment is None:
            picked = "nobody left" if out else "no candidates"
        else:
            picked = f"chosen from {len(self.totals)}"
        return f"{picked}; {out}" if out else picked

    @property
    def is_saturated(self) -> bool:
        """Whether nobody was chosen although waiting would help: some candidate lacks only a free permit."""
        return self.deployment is None and "full" in self.dropped.values()

    @property
    def is_possible(self) -> bool:
        """Whether the request can be answered here, now or after waiting."""
        return self.deployment is not None or self.is_saturated

    @property
    def candidates(self) -> tuple[str, ...]:
        """Those that passed every filter, in the route's order."""
        return tuple(self.totals)
