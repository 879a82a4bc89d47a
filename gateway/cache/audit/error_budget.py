"""ErrorBudget: how a route's promise about wrong answers is kept, step by step, from what audits find.

    open ──over──▶ tightened 1 ──over──▶ 2 ──over──▶ 3 ──over──▶ closed (exact answers only)
         ◀─proof──             ◀─proof──   ◀─proof──   ◀─proof──

Over: the estimate lies above the bound and rests on more than one wrong answer. Proof: with
the next lower floor the interval's upper end is below the bound; answers that would be served there are compared with
what deployments say anyway, so there is proof to be had while nothing is served.
"""

from __future__ import annotations

from typing import Final, Literal

from gateway.cache.audit.evidence import Estimate

TIGHTENINGS: Final = (0.0, 0.25, 0.5, 0.75)
"""What the floor of each level is raised by, as a share of the way to serving nothing."""
CLOSED: Final = len(TIGHTENINGS)
MIN_PROOF: Final = 20
"""Comparisons without which nothing is proven."""

State = Literal["open", "tightened", "closed"]


def budget_state(level: int) -> State:
    """The name of a level."""
    if level == 0:
        return "open"
    return "closed" if level >= CLOSED else "tightened"


def tightening_of(level: int) -> float | None:
    """What the floor is raised by; None when nothing is served."""
    return None if level >= CLOSED else TIGHTENINGS[level]


def is_over(estimate: Estimate, max_error_ratio: float) -> bool:
    """Whether the bound is broken; one wrong answer alone may be chance."""
    return estimate.num_wrong > 1 and estimate.ratio > max_error_ratio


def is_proven(estimate: Estimate, max_error_ratio: float) -> bool:
    """Whether the bound would be kept."""
    return estimate.num_audited >= MIN_PROOF and estimate.high <= max_error_ratio


def next_level(level: int, here: Estimate, looser: Estimate | None, max_error_ratio: float) -> int:
    """At most one step from `level`: `here` is the estimate with its floor, `looser` with that of the level below."""
    if level < CLOSED and is_over(here, max_error_ratio):
        return level + 1
    if level > 0 and looser is not None and is_proven(looser, max_error_ratio):
        return level - 1
    return level


def audit_probability(audit_ratio: float, doubt: float, usual_doubt: float) -> float:
    """Of one served hit: `audit_ratio` on average, up to four times less or more by how likely it is to be wrong.

    What is doubtful tells more: sampling in proportion to doubt makes the estimate's variance smaller.
    """
    factor = doubt / usual_doubt if usual_doubt > 0 else 1.0
    return min(1.0, audit_ratio * min(4.0, max(0.25, factor)))
