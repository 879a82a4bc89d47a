"""What the router knows of a request: its price where a deployment holds the beginning of its prompt."""

from __future__ import annotations

from gateway.limits.lane import LaneRules, LiveLane
from gateway.limits.permit import AdmissionRequest
from gateway.routing.routing_request import RoutingRequest
from routing_policies.estimation.estimators import Price

LANE = LiveLane("interactive", rules=LaneRules())
ROUTING_REQUEST = RoutingRequest(
    Price(1000, 1000, 50),
    AdmissionRequest(LANE, "shop", 1050),
    held_tokens={"near": 900, "all": 5000},
    session=3,
    last_deployment="near",
    key=7,
)


def test_only_what_is_not_held_has_to_be_computed() -> None:
    assert ROUTING_REQUEST.price_at("near") == Price(1000, 100, 50)
    assert ROUTING_REQUEST.price_at("far") is ROUTING_REQUEST.price


def test_at_least_one_token_is_left_however_much_is_held() -> None:
    assert ROUTING_REQUEST.price_at("all") == Price(1000, 1, 50)


def test_another_admission_request_changes_nothing_else() -> None:
    admission_request = AdmissionRequest(LANE, "lab", 3)
    other = ROUTING_REQUEST.with_admission(admission_request)
    assert other.admission_request is admission_request
    assert other.with_admission(ROUTING_REQUEST.admission_request) == ROUTING_REQUEST
