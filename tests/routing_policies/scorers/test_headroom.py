"""The scorer by the share of free permits."""

from __future__ import annotations

import pytest

from routing_policies.scorers.headroom import Headroom
from routing_policies.views import DeploymentView
from tests.routing_policies.views import view


@pytest.mark.parametrize(
    ("name", "candidates", "expected"),
    [
        ("neutral: all idle", [view("a"), view("b")], [1.0, 1.0]),
        ("neutral: all equally busy", [view("a", in_flight=4), view("b", in_flight=4)], [0.6, 0.6]),
        ("one busier", [view("a", in_flight=9), view("b", in_flight=5)], [0.1, 0.5]),
        ("by its own size", [view("a", in_flight=5), view("b", in_flight=5, max_in_flight=50)], [0.5, 0.9]),
        ("full", [view("a", in_flight=10)], [0.0]),
        ("above a lowered limit", [view("a", in_flight=12)], [0.0]),
    ],
)
def test_scores(name: str, candidates: list[DeploymentView], expected: list[float]) -> None:
    assert Headroom().scores(candidates) == pytest.approx(expected), name
