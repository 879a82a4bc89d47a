"""Criteria for lateness, and the number of requests needed to detect it."""

from __future__ import annotations

from typing import Final

from gateway.diagnosis.samples import Distribution

MIN_REQUESTS: Final = 5
"""Number of requests in the window below which no latency counts as late."""
MIN_BASELINE: Final = 20
GREW: Final = 1.5
LEAST_S: Final = 0.03
"""Growth of TTFT in seconds below which it does not count as late."""
LEAST_PACE_S: Final = 0.004


def is_late(now: Distribution, before: Distribution, target_s: float | None, least_s: float) -> bool:
    """Return whether a latency misses the target, or exceeds GREW times its past by at least `least_s` seconds."""
    if now.count < MIN_REQUESTS:
        return False
    if target_s is not None and now.quantile(0.95) > target_s and now.mean > target_s / 2:
        return True
    has_grown = now.mean > GREW * before.mean and now.mean - before.mean > least_s
    return before.count >= MIN_BASELINE and has_grown
