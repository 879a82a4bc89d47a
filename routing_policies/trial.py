"""Trial of one policy against another: counts of both sides, and the verdict whether the new one is worse.

Each ratio has a confidence sequence on each side, so it may be examined after every request. Over the whole life of a
trial, a new policy within its limits is found worse with probability at most `alpha`. The union bound splits `alpha`
evenly over all ratios and both sides.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from routing_policies.estimation.confidence import ratio_bounds
from routing_policies.policy.diff import PolicyChange

Measure = Literal["error", "rejected", "slow", "shed", "wrong", "audit"]
MEASURES: Final[tuple[Measure, ...]] = ("error", "rejected", "slow", "shed", "wrong", "audit")
"""Ratios of a trial.

In order: failed requests; requests that the policy or its deployment rejects as wrong; first tokens later than the old
policy's 95th percentile; requests shed; answers that feedback marked as wrong; answers that audits found wrong.
"""

Verdict = Literal["worse", "no worse so far", "too few"]

Rise = Annotated[float, Meta(ge=0.0, le=1.0)]
_SEPARATE_IN_DEPLOYMENTS: Final = ("url", "tls", "model", "cost_per_mtok", "quality", "zone")
_SEPARATE_IN_TENANTS: Final = ("models", "lanes", "flags")


class TrialGuard(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Largest rise of each ratio under the new policy."""

    max_error_rise: Rise = 0.01
    max_rejected_rise: Rise = 0.01
    max_slow_rise: Rise = 0.05
    max_shed_rise: Rise = 0.02
    max_wrong_rise: Rise = 0.02
    min_requests: Annotated[int, Meta(ge=1, le=1_000_000)] = 50
    """Number of requests under the new policy before any verdict."""
    alpha: Annotated[float, Meta(ge=0.0001, le=0.2)] = 0.05

    def limit(self, measure: Measure) -> float:
        """Return the rise allowed for a measure."""
        limits = {
            "error": self.max_error_rise,
            "rejected": self.max_rejected_rise,
            "slow": self.max_slow_rise,
            "shed": self.max_shed_rise,
        }
        return limits.get(measure, self.max_wrong_rise)


class EventCount(msgspec.Struct):
    """Events among the counted requests of one side."""

    events: int = 0
    count: int = 0


Side = dict[Measure, EventCount]


class Arm(msgspec.Struct, frozen=True, kw_only=True):
    """One ratio of one side, with its time-uniform bounds."""

    count: int
    events: int
    ratio: float | None
    low: float
    high: float


class TrialFinding(msgspec.Struct, frozen=True, kw_only=True):
    """One ratio on both sides, with its verdict."""

    name: Measure
    old: Arm
    new: Arm
    limit: float
    verdict: Verdict


def new_side() -> Side:
    """Return empty counts."""
    return {measure: EventCount() for measure in MEASURES}


def evaluate_trial(old: Side, new: Side, guard: TrialGuard) -> tuple[TrialFinding, ...]:
    """Return the finding for every ratio."""
    alpha = guard.alpha / (2 * len(MEASURES))
    return tuple(_finding(measure, old[measure], new[measure], guard, alpha) for measure in MEASURES)


def is_worse(findings: tuple[TrialFinding, ...]) -> bool:
    """Return whether any ratio is surely above its limit."""
    return any(finding.verdict == "worse" for finding in findings)


def shared_changes(changes: tuple[PolicyChange, ...]) -> tuple[PolicyChange, ...]:
    """Return the changes that two policies in force together cannot differ in.

    Queues, permits and quotas are shared by both.
    """
    return tuple(change for change in changes if not _is_separate(change))


def trial_share(percent: int, tenant_limit: int | None) -> int:
    """Return the percentage of a tenant's traffic on trial; the tenant may limit it, down to 0."""
    return percent if tenant_limit is None else min(percent, tenant_limit)


def _finding(measure: Measure, old: EventCount, new: EventCount, guard: TrialGuard, alpha: float) -> TrialFinding:
    before, after, limit = _arm(old, alpha), _arm(new, alpha), guard.limit(measure)
    verdict: Verdict = "no worse so far"
    if new.count < guard.min_requests or old.count == 0:
        verdict = "too few"
    elif after.low > before.high + limit:
        verdict = "worse"
    return TrialFinding(name=measure, old=before, new=after, limit=limit, verdict=verdict)


def _arm(tally: EventCount, alpha: float) -> Arm:
    bounds = ratio_bounds(tally.events, tally.count, alpha)
    ratio = tally.events / tally.count if tally.count else None
    return Arm(count=tally.count, events=tally.events, ratio=ratio, low=bounds.low, high=bounds.high)


def _is_separate(change: PolicyChange) -> bool:
    if change.what in ("route", "test"):
        return True
    inner: Mapping[str, tuple[str, ...]] = {"deployment": _SEPARATE_IN_DEPLOYMENTS, "tenant": _SEPARATE_IN_TENANTS}
    if change.what not in inner:
        return False
    if change.kind != "changed":
        return change.what == "deployment"
    field = change.path.removeprefix(f"{change.path.partition('.')[0]}.{change.id}.").partition(".")[0]
    return field in inner[change.what]
