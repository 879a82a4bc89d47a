"""The scorer for candidates in the gateway's zone."""

from __future__ import annotations

import pytest

from routing_policies.scorers.zone import Zone
from routing_policies.views import Attempt, DeploymentView
from tests.routing_policies.views import live


@pytest.mark.parametrize(
    ("name", "candidates", "here", "expected"),
    [
        ("near, far, anywhere", [live("a", zone="x"), live("b", zone="y"), live("c")], "x", [1.0, 0.0, 1.0]),
        ("a gateway without a zone", [live("a", zone="x"), live("b")], None, [1.0, 1.0]),
        ("nobody near", [live("a", zone="x"), live("b", zone="y")], "z", [0.0, 0.0]),
    ],
)
def test_scores(name: str, candidates: list[DeploymentView], here: str | None, expected: list[float]) -> None:
    assert Zone().scores(candidates, Attempt(zone=here)) == expected, name
