"""The scorer for the cheapest candidate that meets the latency targets."""

from __future__ import annotations

import pytest

from routing_policies.scorers.quality_and_cost.cost_within_slo import MARGIN, CostWithinSlo, meets
from routing_policies.views import Attempt, DeploymentView
from tests.routing_policies.views import live

WITHIN = Attempt(ttft_slo_s=0.5, tpot_slo_s=0.05)


@pytest.mark.parametrize(
    ("name", "candidates", "attempt", "expected"),
    [
        (
            "the cheapest within the targets, else the fastest",
            [
                live("a", forecast_ttft_s=0.2, tpot_s=0.01, cost=4.0),
                live("b", forecast_ttft_s=0.4, tpot_s=0.01, cost=1.0),
                live("c", forecast_ttft_s=0.8, tpot_s=0.01, cost=0.5),
            ],
            WITHIN,
            [0.5 + 0.125 / 2, 0.75, 0.125],
        ),
        ("close to the target is not within", [live("a", forecast_ttft_s=0.49, tpot_s=0.01, cost=1.0)], WITHIN, [0.5]),
        ("tokens too slow", [live("a", forecast_ttft_s=0.1, tpot_s=0.2, cost=1.0)], WITHIN, [0.5]),
        ("no targets: the cheapest", [live("a", cost=1.0), live("b", cost=2.0)], Attempt(), [1.0, 0.75]),
    ],
)
def test_scores(name: str, candidates: list[DeploymentView], attempt: Attempt, expected: list[float]) -> None:
    assert CostWithinSlo().scores(candidates, attempt) == pytest.approx(expected), name


def test_a_forecast_meets_a_target_only_with_a_margin_and_no_forecast_meets_none() -> None:
    only_first = Attempt(ttft_slo_s=1.0)
    assert meets(live("a", forecast_ttft_s=MARGIN), only_first)
    assert not meets(live("a", forecast_ttft_s=MARGIN + 0.01), only_first)
    assert not meets(live("a"), only_first)
    assert not meets(live("a", forecast_ttft_s=0.1), WITHIN)
    assert meets(live("a"), Attempt())
