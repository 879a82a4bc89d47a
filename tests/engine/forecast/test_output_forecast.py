"""Expected output lengths."""

from __future__ import annotations

import pytest

from engine.forecast.output_forecast import OutputForecast


def test_the_prior_holds_until_something_ended() -> None:
    forecast = OutputForecast(prior_tokens=100.0, headroom_ratio=1.25)
    assert forecast.remaining_tokens("interactive", 0, 1000) == 125


def test_the_mean_follows_what_ends_in_the_same_lane() -> None:
    forecast = OutputForecast(prior_tokens=100.0, weight=0.5)
    for _ in range(10):
        forecast.observe("interactive", 40)
    assert forecast.mean_tokens("interactive") == pytest.approx(40.0)
    assert forecast.mean_tokens("batch") == 100.0


@pytest.mark.parametrize(
    ("num_output", "max_tokens", "expected"),
    [(0, 50, 50), (45, 50, 5), (100, 1000, 25), (300, 1000, 25), (300, 310, 10)],
)
def test_a_forecast_never_exceeds_what_may_come_and_never_ends_early(
    num_output: int, max_tokens: int, expected: int
) -> None:
    assert OutputForecast(prior_tokens=100.0).remaining_tokens("interactive", num_output, max_tokens) == expected
