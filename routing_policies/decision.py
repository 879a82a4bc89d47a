"""Decision: the result of routing one request, with everything that led to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, Protocol

import msgspec

from routing_policies.views import DeploymentView

Cause = Literal[
    "first", "within_slo", "good_enough", "not_good_enough", "unknown_prompt", "too_slow",
    "within_cap", "over_cap", "sticky", "canary", "stable", "tried_first", "explored",
]  # fmt: skip
"""Reason why the chosen candidate ranked above the others; a metric label."""
DropReason = Literal["not_ready", "ejected", "full", "already_tried", "too_late", "warming", "drained"]
"""Reason why a candidate was not considered. Only previews tell `drained` from `not_ready`; no filter does."""


ExplorationResult = Literal["explored", "preferred", "bound", "alone"]
"""Outcome of the draw of a route that explores; a metric label.

- `explored`: the candidate was drawn at random.
- `preferred`: the policy's own choice stood.
- `bound`: the request belongs to a deployment by its conversation or cached prefix, so it was not drawn.
- `alone`: no second candidate was admissible.
"""


class Exploration(msgspec.Struct, frozen=True, kw_only=True):
    """Draw behind one decision; candidates have their ids in the policy, so a group is one candidate."""

    ratio: float
    """Share of such requests that are drawn at random; 0 for `bound` and `alone`."""
    result: ExplorationResult
    preferred: str
    """Candidate that the policy would have chosen without exploration."""
    chosen: str
    propensities: Mapping[str, float]
    """Probability of each candidate under the policy that ran; they add up to 1."""

    @property
    def probability(self) -> float:
        """Probability with which the chosen candidate was chosen."""
        return self.propensities[self.chosen]


class RankedCandidates(Protocol):
    """Scores of the candidates that passed every filter, computed on first access."""

    @property
    def views(self) -> Sequence[DeploymentView]:
        """Views of the candidates, in the route's order."""
        ...

    @property
    def scores(self) -> Mapping[str, Mapping[str, float]]:
        """Scores by candidate and scorer."""
        ...

    @property
    def totals(self) -> Mapping[str, float]:
        """Weighted mean of the scores by candidate."""
        ...

    @property
    def qualities(self) -> Mapping[str, float]:
        """Quality in [0, 1] by candidate; empty where no scorer compares it."""
        ...

    @property
    def quality_threshold(self) -> float | None:
        """Least quality that a scorer takes; None without a threshold."""
        ...


class Decision(msgspec.Struct, frozen=True):
    """Chosen deployment and the reasons; every candidate considered is in `dropped` or in `scores`."""

    deployment: str | None
    """Id of the chosen deployment; None when every candidate was dropped."""
    policy: str
    dropped: Mapping[str, DropReason]
    ranked: RankedCandidates | None = None
    """Ranking of the candidates; None when every candidate was dropped."""
    cause: Cause = "first"
    exploration: Exploration | None = None
    """Draw behind the choice; None on a route that does not explore."""
    is_panic: bool = False
    """True if every candidate was ejected, and one is used all the same."""

    @property
    def scores(self) -> Mapping[str, Mapping[str, float]]:
        """Scores in [0, 1] by candidate and scorer, before weighting."""
        return {} if self.ranked is None else self.ranked.scores

    @property
    def totals(self) -> Mapping[str, float]:
        """Weighted mean of the scores by candidate, in [0, 1]."""
        return {} if self.ranked is None else self.ranked.totals

    @property
    def qualities(self) -> Mapping[str, float]:
        """Quality in [0, 1] by candidate, predicted or configured; empty where the policy does not compare it."""
        return {} if self.ranked is None else self.ranked.qualities

    @property
    def quality_threshold(self) -> float | None:
        """Least quality that the policy takes; None without a threshold."""
        return None if self.ranked is None else self.ranked.quality_threshold

    @property
    def reason(self) -> str:
        """Summary in one phrase, for logs and pages."""
        out = ", ".join(f"{candidate} {reason.replace('_', ' ')}" for candidate, reason in self.dropped.items())
        if self.deployment is None:
            picked = "no candidate left" if out else "no candidates"
        else:
            picked = f"chosen from {len(self.totals)}"
        return f"{picked}; {out}" if out else picked

    @property
    def is_saturated(self) -> bool:
        """True if none was chosen although waiting would help, because some candidate lacks only a free permit."""
        return self.deployment is None and "full" in self.dropped.values()

    @property
    def is_possible(self) -> bool:
        """True if the request can be served here, now or after waiting."""
        return self.deployment is not None or self.is_saturated

    @property
    def candidates(self) -> tuple[str, ...]:
        """Ids of the candidates that passed every filter, in the route's order."""
        return tuple(self.totals)
