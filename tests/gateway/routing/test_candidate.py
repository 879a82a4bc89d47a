"""A candidate of a route: its rule beside its live state."""

from __future__ import annotations

from gateway.limits.permit import AdmissionRequest
from gateway.routing.candidate import LiveCandidate
from gateway.routing.routing_request import RoutingRequest
from gateway.routing.snapshot import PolicySnapshot
from routing_policies.estimation.estimators import Price
from tests.gateway.routing.fleet import snapshot_of

TEXT = """schema_version: 1
deployments:
  - {id: d0, url: 'unix:/none/d0.sock', model: m, zone: a, limits: {max_in_flight: 3},
     cost_per_mtok: {prompt: 2, completion: 8}}
"""


def made() -> tuple[PolicySnapshot, RoutingRequest]:
    snapshot = snapshot_of(TEXT, lambda: 0.0)
    admission_request = AdmissionRequest(snapshot.lanes["interactive"], "shop", 1100)
    return snapshot, RoutingRequest(
        Price(1000, 1000, 100), admission_request, held_tokens={"d0": 600}, last_deployment="d0"
    )


def candidate(snapshot: PolicySnapshot, **options: bool) -> LiveCandidate:
    return LiveCandidate(snapshot.policy.deployments[0], snapshot.deployments["d0"], 2.0, **options)


def test_a_plain_view_has_the_live_state_and_no_forecast() -> None:
    snapshot, routing_request = made()
    held = snapshot.deployments["d0"].limiter.try_acquire(routing_request.admission_request)
    assert held is not None
    view = candidate(snapshot).plain_view(is_ejected=True)
    assert (view.id, view.in_flight, view.max_in_flight, view.weight, view.zone) == ("d0", 1, 3, 2.0, "a")
    assert view.is_ejected
    held.release()


def test_a_view_of_a_request_knows_what_is_cached_and_what_it_costs() -> None:
    snapshot, routing_request = made()
    view = candidate(snapshot).view(0.0, routing_request)
    priced = candidate(snapshot).view(0.0, RoutingRequest(routing_request.price, routing_request.admission_request))
    assert view.cost is not None
    assert priced.cost is not None
    assert view.cost <= priced.cost
    assert candidate(snapshot, is_priced=False).view(0.0, routing_request).cost is None


def test_a_prompt_whose_beginning_is_held_is_forecast_sooner() -> None:
    snapshot, routing_request = made()
    warm = candidate(snapshot).view(0.0, routing_request)
    cold = candidate(snapshot).view(0.0, RoutingRequest(routing_request.price, routing_request.admission_request))
    assert warm.forecast_ttft_s is not None
    assert cold.forecast_ttft_s is not None
    assert warm.forecast_ttft_s <= cold.forecast_ttft_s


def test_it_knows_who_served_the_session_before() -> None:
    snapshot, routing_request = made()
    assert candidate(snapshot).view(0.0, routing_request) != candidate(snapshot).view(
        0.0, RoutingRequest(routing_request.price, routing_request.admission_request, routing_request.held_tokens)
    )
