"""The scorer by the forecast time to the first token."""

from __future__ import annotations

import pytest

from routing_policies.scorers.latency import Latency, relative
from routing_policies.views import DeploymentView
from tests.routing_policies.views import live


@pytest.mark.parametrize(
    ("name", "candidates", "expected"),
    [
        ("neutral: no forecasts", [live("a"), live("b")], [1.0, 1.0]),
        ("relative to the fastest", [live("a", forecast_ttft_s=0.2), live("b", forecast_ttft_s=0.8)], [1.0, 0.25]),
        ("without a forecast last", [live("a"), live("b", forecast_ttft_s=0.8)], [0.0, 1.0]),
        (
            "below a millisecond all are equal",
            [live("a", forecast_ttft_s=0.0), live("b", forecast_ttft_s=0.001)],
            [1.0, 1.0],
        ),
    ],
)
def test_scores(name: str, candidates: list[DeploymentView], expected: list[float]) -> None:
    assert Latency().scores(candidates) == pytest.approx(expected), name


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        ([4.0, 2.0], [0.5, 1.0]),
        ([4.0, None, 2.0], [0.5, 0.0, 1.0]),
        ([0.0, 0.5, 2.0], [1.0, 1.0, 0.25]),
        ([0.0, None, 2.0], [1.0, 0.0, 0.25]),
        ([None, None], [1.0, 1.0]),
        ([0.2], [1.0]),
    ],
)
def test_values_are_compared_with_the_least_but_never_with_less_than_the_threshold(
    seconds: list[float | None], expected: list[float]
) -> None:
    assert relative(seconds, floor_s=0.5) == pytest.approx(expected)
