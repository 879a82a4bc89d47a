from __future__ import annotations

import pytest

from loadtests.harness.measures import Latencies, percentile, slope


@pytest.mark.parametrize(
    ("samples", "share", "expected"),
    [([], 0.5, 0.0), ([3.0], 0.99, 3.0), ([1.0, 2.0], 0.5, 1.5), ([4.0, 1.0, 3.0, 2.0, 5.0], 0.5, 3.0)],
)
def test_percentiles_interpolate(samples: list[float], share: float, expected: float) -> None:
    assert percentile(samples, share) == expected


def test_latencies_are_in_milliseconds() -> None:
    found = Latencies.of([number / 1000 for number in range(101)])
    assert [found.p50_ms, found.p99_ms, found.max_ms] == pytest.approx([50, 99, 100])
    assert found.num_samples == 101


def test_a_straight_line_has_its_slope() -> None:
    assert slope([(0, 1), (1, 3), (2, 5)]) == pytest.approx(2.0)
    assert slope([(1, 5)]) == 0.0
