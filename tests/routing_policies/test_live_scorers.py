# ruff: noqa: E501 (one case a line reads best)
"""Scorers of what a deployment would do with this very request, and the policies made of them."""

from __future__ import annotations

import random
from typing import Any

import pytest

from routing_policies.profile import profile_for
from routing_policies.scorers.affinity import Affinity
from routing_policies.scorers.base import Scorer
from routing_policies.scorers.latency import Latency
from routing_policies.scorers.pace import OutputSpeed
from routing_policies.scorers.quality_and_cost.cost import Cost
from routing_policies.scorers.quality_and_cost.cost_within_slo import CostWithinSlo
from routing_policies.scorers.quality_and_cost.quality import QualityScore
from routing_policies.scorers.session import Session
from routing_policies.scorers.zone import Zone
from routing_policies.views import Attempt, DeploymentView

WITHIN = Attempt(ttft_slo_s=0.5, tpot_slo_s=0.05)


def live(name: str, **state: Any) -> DeploymentView:
    return DeploymentView(id=name, model=f"model-{name}", is_ready=True, **{"prompt_tokens": 1000, **state})


@pytest.mark.parametrize(
    ("name", "scorer", "candidates", "attempt", "expected"),
    [
        ("neutral: nobody knows", Latency(), [live("a"), live("b")], Attempt(), [1.0, 1.0]),
        ("relative to the fastest", Latency(), [live("a", forecast_ttft_s=0.2), live("b", forecast_ttft_s=0.8)], Attempt(), [1.0, 0.25]),
        ("who is not known comes last", Latency(), [live("a"), live("b", forecast_ttft_s=0.8)], Attempt(), [0.0, 1.0]),
        ("below a millisecond all are equal", Latency(), [live("a", forecast_ttft_s=0.0), live("b", forecast_ttft_s=0.001)], Attempt(), [1.0, 1.0]),
        ("pace", OutputSpeed(), [live("a", tpot_s=0.02), live("b", tpot_s=0.04), live("c")], Attempt(), [1.0, 0.5, 0.0]),
        ("cost", Cost(), [live("a", cost=2.0), live("b", cost=1.0), live("c")], Attempt(), [0.5, 1.0, 0.0]),
        ("free beats everything", Cost(), [live("a", cost=0.0), live("b", cost=1.0)], Attempt(), [1.0, 0.0]),
        ("neutral: no prices", Cost(), [live("a"), live("b")], Attempt(), [1.0, 1.0]),
        ("quality is absolute", QualityScore(), [live("a", quality=0.9), live("b", quality=0.3)], Attempt(), [0.9, 0.3]),
        ("share of the prompt held", Affinity(), [live("a", affinity_tokens=750), live("b")], Attempt(), [0.75, 0.0]),
        ("no prompt, no affinity", Affinity(), [live("a", affinity_tokens=5, prompt_tokens=0)], Attempt(), [0.0]),
        ("session", Session(), [live("a"), live("b", is_same_session=True)], Attempt(), [0.0, 1.0]),
        ("zone", Zone(), [live("a", zone="x"), live("b", zone="y"), live("c")], Attempt(zone="x"), [1.0, 0.0, 1.0]),
        ("a gateway without a zone", Zone(), [live("a", zone="x"), live("b")], Attempt(), [1.0, 1.0]),
        (
            "the cheapest within the targets, else the fastest",
            CostWithinSlo(),
            [live("a", forecast_ttft_s=0.2, tpot_s=0.01, cost=4.0), live("b", forecast_ttft_s=0.4, tpot_s=0.01, cost=1.0), live("c", forecast_ttft_s=0.8, tpot_s=0.01, cost=0.5)],
            WITHIN,
            [0.5 + 0.125 / 2, 0.75, 0.125],
        ),
        ("a forecast close to the target is not within it", CostWithinSlo(), [live("a", forecast_ttft_s=0.49, tpot_s=0.01, cost=1.0)], WITHIN, [0.5]),
        ("tokens too slow", CostWithinSlo(), [live("a", forecast_ttft_s=0.1, tpot_s=0.2, cost=1.0)], WITHIN, [0.5]),
        ("no targets: the cheapest", CostWithinSlo(), [live("a", cost=1.0), live("b", cost=2.0)], Attempt(), [1.0, 0.75]),
    ],
)  # fmt: skip
def test_scores(
    name: str, scorer: Scorer, candidates: list[DeploymentView], attempt: Attempt, expected: list[float]
) -> None:
    assert scorer.scores(candidates, attempt) == pytest.approx(expected), name


def chosen(policy: Any, *candidates: DeploymentView, attempt: Attempt | None = None, **weights: float) -> str | None:
    profile = profile_for(policy, weights)  # type: ignore[arg-type]
    return profile.decide(candidates, attempt or Attempt(), random.Random(1)).deployment


def test_the_first_token_soonest_wins() -> None:
    assert chosen("latency_first", live("a", forecast_ttft_s=0.3), live("b", forecast_ttft_s=0.2)) == "b"


def test_of_nearly_equal_forecasts_the_holder_of_the_conversation_wins() -> None:
    near = live("a", forecast_ttft_s=0.200), live("b", forecast_ttft_s=0.205, affinity_tokens=900)
    assert chosen("latency_first", *near) == "b"


def test_a_holder_that_is_busier_than_the_saving_loses() -> None:
    busy = live("a", forecast_ttft_s=0.2), live("b", forecast_ttft_s=0.5, affinity_tokens=1000, is_same_session=True)
    assert chosen("latency_first", *busy) == "a"


def test_a_full_deployment_competes_with_its_queue_in_the_forecast() -> None:
    full = live("a", forecast_ttft_s=0.1, in_flight=4, max_in_flight=4), live("b", forecast_ttft_s=2.0)
    assert chosen("latency_first", *full) == "a"


def test_the_cheapest_within_the_targets_wins_and_latency_settles_equal_prices() -> None:
    cheap = live("a", forecast_ttft_s=0.4, tpot_s=0.01, cost=1.0), live("b", forecast_ttft_s=0.1, tpot_s=0.01, cost=1.1)
    assert chosen("least_cost_within_slo", *cheap, attempt=WITHIN) == "a"
    equal = live("a", forecast_ttft_s=0.4, tpot_s=0.01, cost=1.0), live("b", forecast_ttft_s=0.1, tpot_s=0.01, cost=1.0)
    assert chosen("least_cost_within_slo", *equal, attempt=WITHIN) == "b"
    late = live("a", forecast_ttft_s=4.0, tpot_s=0.01, cost=1.0), live("b", forecast_ttft_s=2.0, tpot_s=0.01, cost=9.0)
    assert chosen("least_cost_within_slo", *late, attempt=WITHIN) == "b"


def test_weights_are_the_operators() -> None:
    two = live("a", quality=0.9, cost=10.0), live("b", quality=0.6, cost=1.0)
    assert chosen("scored", *two, quality=10.0, cost=1.0) == "a"
    assert chosen("scored", *two, quality=1.0, cost=1.0) == "b"


def test_who_is_late_is_called_only_when_nobody_else_is_left() -> None:
    two = live("a", forecast_ttft_s=0.1), live("b", forecast_ttft_s=0.2)
    decision = profile_for("latency_first").decide(two, Attempt(avoid=frozenset({"a"})), random.Random(1))
    assert decision.deployment == "b"
    assert decision.dropped == {"a": "too_late"}


def test_a_decision_keeps_every_score() -> None:
    two = live("a", forecast_ttft_s=0.2, tpot_s=0.02), live("b", forecast_ttft_s=0.4, tpot_s=0.02)
    decision = profile_for("latency_first").decide(two, Attempt(), random.Random(1))
    assert set(decision.scores["b"]) == {"latency", "pace", "affinity", "zone", "session", "headroom"}
    assert decision.scores["b"]["latency"] == 0.5
    assert 0.0 < decision.totals["b"] < decision.totals["a"] <= 1.0
