"""The scorer by the price of a request."""

from __future__ import annotations

import pytest

from routing_policies.scorers.quality_and_cost.cost import Cost
from routing_policies.views import DeploymentView
from tests.routing_policies.views import live


@pytest.mark.parametrize(
    ("name", "candidates", "expected"),
    [
        ("neutral: no prices", [live("a"), live("b")], [1.0, 1.0]),
        ("relative, unpriced last", [live("a", cost=2.0), live("b", cost=1.0), live("c")], [0.5, 1.0, 0.0]),
        ("free beats everything", [live("a", cost=0.0), live("b", cost=1.0)], [1.0, 0.0]),
        ("all free", [live("a", cost=0.0), live("b", cost=0.0), live("c")], [1.0, 1.0, 0.0]),
    ],
)
def test_scores(name: str, candidates: list[DeploymentView], expected: list[float]) -> None:
    assert Cost().scores(candidates) == pytest.approx(expected), name
