"""What the router knows of a request: its price where a deployment holds the beginning of its prompt."""

from __future__ import annotations

from gateway.limits.lane import LaneRules, LiveLane
from gateway.limits.permit import AdmissionRequest
from gateway.routing.routing_request import RoutingRequest
from routing_policies.estimation.estimators import Price

LANE = LiveLane("interactive", rules=LaneRules())
ASK = RoutingRequest(
    Price(1000, 1000, 50),
    AdmissionRequest(LANE, "shop", 1050),
    held_tokens={"near": 900, "all": 5000},
    session=3,
    last_deployment="near",
    key=7,
)


def test_only_what_is_not_held_has_to_be_computed() -> None:
    assert ASK.price_at("near") == Price(1000, 100, 50)
    assert ASK.price_at("far") is ASK.price


def test_at_least_one_token_is_left_however_much_is_held() -> None:
    assert ASK.price_at("all") == Price(1000, 1, 50)


def test_another_claim_changes_nothing_else() -> None:
    claim = AdmissionRequest(LANE, "lab", 3)
    other = ASK.with_admission(claim)
    assert other.admission_request is claim
    assert other.with_admission(ASK.admission_request) == ASK
