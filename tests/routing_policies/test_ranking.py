"""A ranking calls as few scorers as the choice needs, and chooses what it would choose if it had called them all."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from routing_policies.policy.values import ScorerName, SelectPolicy
from routing_policies.profile import Profile, profile_for
from routing_policies.ranking import Ranking, ScorerWeights
from routing_policies.views import FIRST_ATTEMPT, Attempt, DeploymentView

_SCORED: dict[ScorerName, float] = {"headroom": 1.0, "order": 0.25, "latency": 3.0, "cost": 3.0, "session": 0.1}
_PROFILES: tuple[SelectPolicy, ...] = ("latency_first", "least_cost_within_slo", "least_in_flight", "sticky", "scored")


class _Counting:
    """A scorer that gives what it is given and counts how often it was called."""

    name = "counting"

    def __init__(self, *column: float) -> None:
        self._column = list(column)
        self.num_sent = 0

    def scores(self, views: Sequence[DeploymentView], attempt: Attempt = FIRST_ATTEMPT) -> list[float]:
        """Always the same."""
        self.num_sent += 1
        return self._column


def _whole_choice(profile: Profile, views: Sequence[DeploymentView], attempt: Attempt) -> tuple[str, dict[str, float]]:
    """Who leads, and every total, by adding up all scores of all scorers."""
    totals = {}
    columns = [weighted.scorer.scores(views, attempt) for weighted in profile.scorers]
    whole = sum(weighted.weight for weighted in profile.scorers)
    for place, view in enumerate(views):
        parts = [weighted.weight * column[place] for weighted, column in zip(profile.scorers, columns, strict=True)]
        totals[view.id] = min(sum(parts) / whole, 1.0)
    return max(totals, key=totals.__getitem__), totals


def _view(rng: random.Random, number: int) -> DeploymentView:
    """Often equal to others in some respects, so that the last scorers decide and some choices are ties."""
    prompt = rng.choice((0, 100, 1000))
    return DeploymentView(
        id=f"d{number}",
        model="m",
        is_ready=True,
        in_flight=rng.choice((0, 3, 8, 9)),
        max_in_flight=8,
        weight=rng.choice((0.5, 1.0, 2.0)),
        forecast_ttft_s=rng.choice((None, 0.0001, 0.1, 0.1, rng.random())),
        tpot_s=rng.choice((None, 0.02, 0.02, rng.random())),
        cost=rng.choice((None, 0.0, 0.5, rng.random())),
        affinity_tokens=rng.choice((0, prompt, prompt // 2)),
        prompt_tokens=prompt,
        zone=rng.choice((None, "a", "b")),
        is_same_session=rng.random() < 0.3,
    )


@pytest.mark.parametrize("policy", _PROFILES)
def test_the_choice_is_that_of_all_scores_and_a_decision_reports_all_of_them(policy: SelectPolicy) -> None:
    rng = random.Random(f"ranking:{policy}")
    profile = profile_for(policy, _SCORED if policy == "scored" else None)
    for _ in range(2000):
        views = [_view(rng, number) for number in range(rng.choice((1, 2, 2, 3, 5)))]
        attempt = Attempt(zone=rng.choice((None, "a")), ttft_slo_s=rng.choice((None, 0.3)), key=rng.choice((None, 7)))

        decision = profile.decide_among(views, attempt, rng)

        chosen, totals = _whole_choice(profile, views, attempt)
        assert decision.deployment == chosen
        assert dict(decision.totals) == pytest.approx(totals)
        assert list(decision.scores) == [view.id for view in views] == list(decision.totals)
        for place, view in enumerate(views):
            notified = {
                weighted.scorer.name: weighted.scorer.scores(views, attempt)[place] for weighted in profile.scorers
            }
            assert decision.scores[view.id] == notified


def test_who_can_not_be_overtaken_is_chosen_without_a_forecast_of_the_rest() -> None:
    heavy, light = _Counting(1.0, 0.25), _Counting(0.0, 1.0)
    rng = random.Random(1)
    views = [_view(rng, 0), _view(rng, 1)]
    ranking = Ranking(ScorerWeights([(light, 1.0), (heavy, 4.0)]), views, FIRST_ATTEMPT)

    assert ranking.leader() == "d0"
    assert (heavy.num_sent, light.num_sent) == (1, 0)
    assert ranking.totals == {"d0": pytest.approx(0.8), "d1": pytest.approx(0.4)}
    assert (heavy.num_sent, light.num_sent) == (1, 1), "asked when somebody looks, and only once"


def test_who_can_still_be_overtaken_is_not_chosen_early() -> None:
    rng = random.Random(1)
    views = [_view(rng, 0), _view(rng, 1)]
    scorer_weights = ScorerWeights([(_Counting(1.0, 0.9), 4.0), (_Counting(0.0, 1.0), 1.0)])

    assert Ranking(scorer_weights, views, FIRST_ATTEMPT).leader() == "d1"


def test_of_equal_totals_the_first_is_chosen() -> None:
    rng = random.Random(1)
    views = [_view(rng, number) for number in range(3)]
    scorer_weights = ScorerWeights([(_Counting(0.2, 0.7, 0.7), 4.0), (_Counting(0.0, 1.0, 1.0), 1.0)])

    assert Ranking(scorer_weights, views, FIRST_ATTEMPT).leader() == "d1"
