"""Numbers out of samples."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from loadtests.harness.process_usage import rss_bytes


def percentile(samples: Sequence[float], share: float) -> float:
    """The value below which `share` (0 to 1) of the samples lie, interpolated; 0.0 of no samples at all."""
    if not samples:
        return 0.0
    ordered = sorted(samples)
    place = share * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


@dataclass(frozen=True, slots=True, kw_only=True)
class Latencies:
    """Percentiles of one set of latencies, in milliseconds."""

    p50_ms: float
    p90_ms: float
    p99_ms: float
    max_ms: float
    num_samples: int

    @classmethod
    def of(cls, seconds: Sequence[float]) -> Latencies:
        """From samples in seconds."""
        return cls(
            p50_ms=percentile(seconds, 0.50) * 1e3,
            p90_ms=percentile(seconds, 0.90) * 1e3,
            p99_ms=percentile(seconds, 0.99) * 1e3,
            max_ms=max(seconds, default=0.0) * 1e3,
            num_samples=len(seconds),
        )

    def __str__(self) -> str:
        return (
            f"p50 {self.p50_ms:.3f} ms, p90 {self.p90_ms:.3f} ms, p99 {self.p99_ms:.3f} ms, "
            f"max {self.max_ms:.3f} ms (n={self.num_samples})"
        )


def slope(points: Sequence[tuple[float, float]]) -> float:
    """Least-squares slope of y over x; 0.0 for fewer than two distinct x."""
    if len(points) < 2:
        return 0.0
    mean_x = sum(x for x, _ in points) / len(points)
    mean_y = sum(y for _, y in points) / len(points)
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    return sum((x - mean_x) * (y - mean_y) for x, y in points) / spread if spread else 0.0


def resident_bytes() -> int:
    """Memory of this process."""
    return rss_bytes(os.getpid())
