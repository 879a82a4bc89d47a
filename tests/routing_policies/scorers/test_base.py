"""The contract that every scorer keeps, whatever it compares."""

from __future__ import annotations

import random

import pytest

from routing_policies.scorers.affinity import Affinity
from routing_policies.scorers.base import Explaining, Scorer
from routing_policies.scorers.canary import CanaryShare
from routing_policies.scorers.headroom import Headroom
from routing_policies.scorers.latency import Latency
from routing_policies.scorers.order import Order
from routing_policies.scorers.pace import OutputSpeed
from routing_policies.scorers.quality_and_cost.cost import Cost
from routing_policies.scorers.quality_and_cost.cost_cap import CostCap
from routing_policies.scorers.quality_and_cost.cost_within_slo import CostWithinSlo
from routing_policies.scorers.quality_and_cost.quality import QualityScore
from routing_policies.scorers.quality_and_cost.quality_within_slo import QualityWithinSlo
from routing_policies.scorers.quality_and_cost.worth_trying import WorthTrying
from routing_policies.scorers.rendezvous import Rendezvous
from routing_policies.scorers.session import Session
from routing_policies.scorers.share import Share
from routing_policies.scorers.zone import Zone
from routing_policies.views import Attempt, DeploymentView
from tests.routing_policies.views import live

SCORERS: list[Scorer] = [
    *(Affinity(), Headroom(), Latency(), OutputSpeed(), Cost(), QualityScore(), Session(), Share(), Zone(), Order()),
    *(CostWithinSlo(), CostCap(5.0), QualityWithinSlo(0.8), WorthTrying(0.3), Rendezvous(), CanaryShare("d1", 0.5)),
]


def candidate(rng: random.Random, number: int) -> DeploymentView:
    return live(
        f"d{number}",
        in_flight=rng.randrange(100),
        weight=rng.choice((0.5, 1.0, 40.0)),
        forecast_ttft_s=rng.choice((None, 0.0, rng.random())),
        tpot_s=rng.choice((None, 0.0, rng.random())),
        cost=rng.choice((None, 0.0, 9.0 * rng.random())),
        quality=rng.random(),
        affinity_tokens=rng.randrange(2000),
        prompt_tokens=rng.choice((0, 1000)),
        zone=rng.choice((None, "x", "y")),
        is_same_session=rng.random() < 0.5,
    )


@pytest.mark.parametrize("scorer", SCORERS, ids=lambda scorer: scorer.name)
def test_each_candidate_gets_one_score_between_nothing_and_one(scorer: Scorer) -> None:
    rng = random.Random(scorer.name)
    for _ in range(300):
        views = [candidate(rng, number) for number in range(rng.randint(1, 5))]
        attempt = Attempt(
            zone=rng.choice((None, "x")),
            ttft_slo_s=rng.choice((None, 0.5)),
            key=rng.choice((None, rng.getrandbits(64))),
        )
        scores = scorer.scores(views, attempt)
        assert len(scores) == len(views)
        assert all(0.0 <= score <= 1.0 for score in scores), (views, attempt, scores)


@pytest.mark.parametrize("scorer", SCORERS[:9], ids=lambda scorer: scorer.name)
def test_equal_candidates_get_equal_scores(scorer: Scorer) -> None:
    rng = random.Random(3)
    for _ in range(100):
        one = candidate(rng, 1)
        first, _, last = scorer.scores([one, candidate(rng, 2), one])
        assert first == last


@pytest.mark.parametrize("scorer", SCORERS, ids=lambda scorer: scorer.name)
def test_only_scorers_that_lead_a_policy_explain_its_choice(scorer: Scorer) -> None:
    explains = {"cost_cap", "quality_within_slo", "worth_trying", "rendezvous", "canary"}
    assert isinstance(scorer, Explaining) is (scorer.name in explains)
