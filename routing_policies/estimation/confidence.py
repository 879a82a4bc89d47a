"""Confidence sequences for a ratio: bounds that hold at all checks together, however many there are.

For k events among n requests and a ratio p, the beta-binomial mixture is (Robbins 1970; Howard, Ramdas, McAuliffe and
Sekhon, Annals of Statistics 2021)

    M(p) = B(1 + k, 1 + n - k) / (p^k (1 - p)^(n - k)).

It is a non-negative martingale that starts at 1 when p is the true ratio. By Ville's inequality it ever reaches 1/alpha
with probability at most alpha. So {p : M(p) < 1/alpha} covers the true ratio at all times together with probability 1 -
alpha. A fixed-sample interval, examined after each request, has no such guarantee.
"""

from __future__ import annotations

from math import lgamma, log
from typing import Final

import msgspec

_STEPS: Final = 60
"""Number of bisection steps; the bounds are exact far below any ratio that matters."""


class Bounds(msgspec.Struct, frozen=True):
    """Time-uniform bounds of a ratio."""

    low: float
    high: float


def ratio_bounds(events: int, count: int, alpha: float) -> Bounds:
    """Return time-uniform bounds of a ratio after `events` of `count` requests; 0 < alpha < 1."""
    if count == 0:
        return Bounds(0.0, 1.0)
    limit = -log(alpha)
    mixture = lgamma(1 + events) + lgamma(1 + count - events) - lgamma(2 + count)
    seen = events / count
    low = 0.0 if events == 0 else _edge(0.0, seen, events, count, mixture, limit)
    high = 1.0 if events == count else _edge(1.0, seen, events, count, mixture, limit)
    return Bounds(low, high)


def _edge(outside: float, inside: float, events: int, count: int, mixture: float, limit: float) -> float:
    """Return the bound between a ratio that is refuted and one that is not, by bisection."""
    for _ in range(_STEPS):
        middle = (outside + inside) / 2
        if _evidence(middle, events, count, mixture) < limit:
            inside = middle
        else:
            outside = middle
    return inside


def _evidence(ratio: float, events: int, count: int, mixture: float) -> float:
    """Return the logarithm of M(ratio)."""
    hits = events * log(ratio) if events else 0.0
    misses = (count - events) * log(1.0 - ratio) if count > events else 0.0
    return mixture - hits - misses
