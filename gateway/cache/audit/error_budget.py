"""Error budget: the levels by which a route keeps its bound of wrong responses, moved by what audits find.

    open ──over──▶ tightened 1 ──over──▶ 2 ──over──▶ 3 ──over──▶ closed (exact answers only)
         ◀─proof──             ◀─proof──   ◀─proof──   ◀─proof──

Over: the whole interval lies above the bound and rests on more than one wrong answer. Proof: with the next lower
threshold the estimate is below the bound. Entries that would be served there are compared with deployments' responses,
so a closed tier can be proven, too. Within a level the threshold follows the doubt factor and the traffic.
"""

from __future__ import annotations

from typing import Final, Literal

from gateway.cache.audit.evidence import Estimate

TIGHTENINGS: Final = (0.0, 0.25, 0.5, 0.75)
"""Raise of the threshold at each level, as a share of the way to serving nothing."""
CLOSED: Final = len(TIGHTENINGS)
MIN_PROOF: Final = 20
"""Least number of comparisons for a proof."""

State = Literal["open", "tightened", "closed"]


def budget_state(level: int) -> State:
    """Return the name of a level."""
    if level == 0:
        return "open"
    return "closed" if level >= CLOSED else "tightened"


def tightening_of(level: int) -> float | None:
    """Return the raise of the threshold at a level; None when nothing is served."""
    return None if level >= CLOSED else TIGHTENINGS[level]


def is_over(estimate: Estimate, max_error_ratio: float) -> bool:
    """Return whether the bound is broken; one wrong response alone may be random."""
    return estimate.num_wrong > 1 and estimate.low > max_error_ratio


def is_proven(estimate: Estimate, max_error_ratio: float) -> bool:
    """Return whether the bound would hold."""
    return estimate.num_audited >= MIN_PROOF and estimate.ratio <= max_error_ratio


def next_level(level: int, here: Estimate, looser: Estimate | None, max_error_ratio: float) -> int:
    """Return the next level, at most one step away.

    Args:
        level: The level in force.
        here: The estimate at its threshold.
        looser: The estimate at the threshold of the level below.
        max_error_ratio: The bound.
    """
    if level < CLOSED and is_over(here, max_error_ratio):
        return level + 1
    if level > 0 and looser is not None and is_proven(looser, max_error_ratio):
        return level - 1
    return level


def audit_probability(audit_ratio: float, doubt: float, usual_doubt: float) -> float:
    """Return the probability of an audit: `audit_ratio` on average, up to four times less or more by the hit's doubt.

    Sampling in proportion to doubt makes the estimate's variance smaller.
    """
    factor = doubt / usual_doubt if usual_doubt > 0 else 1.0
    return min(1.0, audit_ratio * min(4.0, max(0.25, factor)))
