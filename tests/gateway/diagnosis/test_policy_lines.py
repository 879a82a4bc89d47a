"""The lines of a policy that a window's requests used, and the paths that a remedy names."""

from __future__ import annotations

from gateway.diagnosis.policy_lines import place_of
from routing_policies.loading import load_policy
from routing_policies.policy.document import Policy
from tests.gateway.diagnosis.snapshots import Scene


def policy(lanes: str = "[{id: interactive, slo: {ttft_p95_ms: 500, tpot_p95_ms: 40}}, {id: batch}]") -> Policy:
    return load_policy(
        f"""
schema_version: 1
deployments: [{{id: large, url: "unix:/tmp/large.sock", model: big}}]
lanes: {lanes}
routes: [{{id: all, select: {{candidates: [large]}}}}]
""",
        source="policy.yaml",
    )


def test_the_busiest_route_lane_and_deployment_are_named_with_the_lanes_targets() -> None:
    place = place_of(Scene().window(), policy())
    assert (place.route, place.lane, place.deployment) == ("all", "interactive", "large")
    assert (place.ttft_target_s, place.tpot_target_s) == (0.5, 0.04)
    assert place.route_path("cache.mode") == "routes.all.cache.mode"
    assert place.lane_path("weight") == "lanes.interactive.weight"
    assert place.deployment_path("limits.max_in_flight") == "deployments.large.limits.max_in_flight"
    assert place.deployment_path("url", "other") == "deployments.other.url"


def test_a_route_that_the_policy_no_longer_has_gets_no_path() -> None:
    scene = Scene()
    scene.gateway["penstock_requests_total"] = [({"route": "gone", "deployment": "large"}, 500.0)]
    place = place_of(scene.window(), policy())
    assert (place.route, place.route_path("cache.mode")) == ("", None)


def test_requests_refused_for_load_count_as_use_of_their_lane() -> None:
    scene = Scene()
    scene.gateway["penstock_shed_total"] = [({"lane": "batch"}, 10_000.0)]
    assert place_of(scene.window(), policy()).lane == "batch"


def test_of_several_lanes_in_use_the_loosest_target_counts() -> None:
    scene = Scene()
    scene.gateway["penstock_shed_total"] = [({"lane": "patient"}, 1.0)]
    lanes = "[{id: interactive, slo: {ttft_p95_ms: 500}}, {id: patient, slo: {ttft_p95_ms: 9000}}]"
    place = place_of(scene.window(), policy(lanes))
    assert (place.ttft_target_s, place.tpot_target_s) == (9.0, None)
