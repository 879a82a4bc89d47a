"""The scorer for the best candidate within a price."""

from __future__ import annotations

import pytest

from routing_policies.scorers.quality_and_cost.cost_cap import CostCap
from routing_policies.views import Attempt, DeploymentView
from tests.routing_policies.views import live


@pytest.mark.parametrize(
    ("name", "candidates", "best"),
    [
        ("the better of two within", [live("a", cost=1.0, quality=0.2), live("b", cost=5.0, quality=0.3)], "b"),
        ("within, however poor", [live("a", cost=4.9, quality=0.0), live("b", cost=5.1, quality=1.0)], "a"),
        ("nobody within: the cheapest", [live("a", cost=9.0, quality=1.0), live("b", cost=6.0, quality=0.0)], "b"),
        ("no price is beyond the cap", [live("a", quality=1.0), live("b", cost=0.0, quality=0.1)], "b"),
        ("a price beats none beyond the cap", [live("a", quality=1.0), live("b", cost=6.0, quality=0.1)], "b"),
    ],
)
def test_the_highest_score(name: str, candidates: list[DeploymentView], best: str) -> None:
    scores = CostCap(5.0).scores(candidates)
    assert candidates[scores.index(max(scores))].id == best, name
    assert len(set(scores)) == len(scores), name


def test_the_cause_is_the_side_of_the_cap() -> None:
    causes = [CostCap(5.0).cause(live("a", cost=cost), Attempt()) for cost in (5.0, 5.01, None)]
    assert causes == ["within_cap", "over_cap", "over_cap"]
