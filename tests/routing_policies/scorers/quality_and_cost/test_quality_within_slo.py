"""The scorer in four steps: fast and good, fast, good, neither."""

from __future__ import annotations

import pytest

from routing_policies.scorers.quality_and_cost.quality_within_slo import QualityWithinSlo
from routing_policies.views import Attempt
from tests.routing_policies.views import live

SCORER = QualityWithinSlo(0.8)
HALF_A_SECOND = Attempt(ttft_slo_s=0.5)
FAST, SLOW = 0.1, 2.0


def test_each_step_is_above_all_of_the_next_whatever_the_prices_and_the_forecasts() -> None:
    views = [
        live("good but dear", forecast_ttft_s=FAST, quality=0.8, cost=1000.0),
        live("nearly good and cheap", forecast_ttft_s=FAST, quality=0.79, cost=0.001),
        live("hopeless and fast", forecast_ttft_s=FAST, quality=0.0, cost=0.001),
        live("perfect and late", forecast_ttft_s=SLOW, quality=1.0, cost=0.001),
        live("late and nearly good", forecast_ttft_s=SLOW, quality=0.79, cost=0.001),
    ]
    scores = SCORER.scores(views, HALF_A_SECOND)
    assert scores == sorted(scores, reverse=True)
    assert len(set(scores)) == len(scores)


def test_within_a_step_price_ranks_the_good_and_forecasts_rank_the_late() -> None:
    cheap, dear = SCORER.scores([live("a", cost=1.0), live("b", cost=2.0)], Attempt())
    assert cheap > dear
    late, later = SCORER.scores([live("a", forecast_ttft_s=1.0), live("b", forecast_ttft_s=2.0)], HALF_A_SECOND)
    assert late > later


@pytest.mark.parametrize(
    ("state", "cause"),
    [
        ({"forecast_ttft_s": FAST, "quality": 0.8}, "good_enough"),
        ({"forecast_ttft_s": FAST, "quality": 0.7}, "not_good_enough"),
        ({"forecast_ttft_s": SLOW, "quality": 0.9}, "too_slow"),
        ({"forecast_ttft_s": SLOW, "quality": 0.1}, "too_slow"),
        ({"forecast_ttft_s": SLOW, "quality": 0.9, "is_known_prompt": False}, "unknown_prompt"),
    ],
)
def test_the_cause_is_the_step(state: dict[str, float], cause: str) -> None:
    assert SCORER.cause(live("a", **state), HALF_A_SECOND) == cause
