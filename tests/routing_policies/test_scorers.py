"""What each scorer gives to whom."""

from __future__ import annotations

import pytest

from routing_policies.scorers.base import Scorer
from routing_policies.scorers.headroom import Headroom
from routing_policies.scorers.order import Order
from routing_policies.scorers.share import Share
from routing_policies.views import DeploymentView
from tests.routing_policies.views import view


@pytest.mark.parametrize(
    ("name", "scorer", "candidates", "expected"),
    [
        ("alone", Order(), [view("a")], [1.0]),
        ("in order", Order(), [view("a"), view("b"), view("c"), view("d")], [1.0, 0.75, 0.5, 0.25]),
        ("neutral: all idle", Headroom(), [view("a"), view("b")], [1.0, 1.0]),
        ("neutral: all equally busy", Headroom(), [view("a", in_flight=4), view("b", in_flight=4)], [0.6, 0.6]),
        ("one busier", Headroom(), [view("a", in_flight=9), view("b", in_flight=5)], [0.1, 0.5]),
        ("by its own size", Headroom(), [view("a", in_flight=5), view("b", in_flight=5, max_in_flight=50)], [0.5, 0.9]),
        ("above a lowered limit", Headroom(), [view("a", in_flight=12)], [0.0]),
        ("neutral: equal weights", Share(), [view("a", weight=3), view("b", weight=3)], [1.0, 1.0]),
        ("by weight", Share(), [view("a", weight=80), view("b", weight=20)], [1.0, 0.25]),
    ],
)  # fmt: skip
def test_scores(name: str, scorer: Scorer, candidates: list[DeploymentView], expected: list[float]) -> None:
    assert scorer.scores(candidates) == pytest.approx(expected), name
