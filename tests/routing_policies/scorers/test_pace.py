"""The scorer by the seconds an output token takes."""

from __future__ import annotations

import pytest

from routing_policies.scorers.pace import OutputSpeed
from routing_policies.views import DeploymentView
from tests.routing_policies.views import live


@pytest.mark.parametrize(
    ("name", "candidates", "expected"),
    [
        ("neutral: none known", [live("a"), live("b")], [1.0, 1.0]),
        ("relative, unknown last", [live("a", tpot_s=0.02), live("b", tpot_s=0.04), live("c")], [1.0, 0.5, 0.0]),
        ("too short to tell apart", [live("a", tpot_s=1e-6), live("b", tpot_s=9e-6)], [1.0, 1.0]),
        (
            "the first token does not count",
            [live("a", tpot_s=0.02, forecast_ttft_s=9.0), live("b", tpot_s=0.02)],
            [1, 1],
        ),
    ],
)
def test_scores(name: str, candidates: list[DeploymentView], expected: list[float]) -> None:
    assert OutputSpeed().scores(candidates) == pytest.approx(expected), name
