"""The scorer by the configured weight."""

from __future__ import annotations

import pytest

from routing_policies.scorers.share import Share
from routing_policies.views import DeploymentView
from tests.routing_policies.views import view


@pytest.mark.parametrize(
    ("name", "candidates", "expected"),
    [
        ("neutral: equal weights", [view("a", weight=3), view("b", weight=3)], [1.0, 1.0]),
        ("by weight", [view("a", weight=80), view("b", weight=20)], [1.0, 0.25]),
        ("below one", [view("a", weight=0.1), view("b", weight=0.2)], [0.5, 1.0]),
        ("load does not count", [view("a", in_flight=10), view("b")], [1.0, 1.0]),
    ],
)
def test_scores(name: str, candidates: list[DeploymentView], expected: list[float]) -> None:
    assert Share().scores(candidates) == pytest.approx(expected), name
