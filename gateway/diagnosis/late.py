"""What counts as late, and how much has to be seen before anything does."""

from __future__ import annotations

from typing import Final

from gateway.diagnosis.samples import Distribution

MIN_REQUESTS: Final = 5
"""Fewer prove nothing."""
MIN_BASELINE: Final = 20
GREW: Final = 1.5
LEAST_S: Final = 0.03
"""A first token that is later by less than this is nobody's trouble."""
LEAST_PACE_S: Final = 0.004


def is_late(now: Distribution, before: Distribution, target_s: float | None, least_s: float) -> bool:
    """Beyond the target, or half as much again as before and by no less than `least_s`."""
    if now.count < MIN_REQUESTS:
        return False
    if target_s is not None and now.quantile(0.95) > target_s and now.mean > target_s / 2:
        return True
    has_grown = now.mean > GREW * before.mean and now.mean - before.mean > least_s
    return before.count >= MIN_BASELINE and has_grown
