"""The lines of a policy that a window's requests used, and the paths that a remedy names."""

from __future__ import annotations

from gateway.diagnosis.policy_lines import latest, place_of
from gateway.diagnosis.samples import Distribution, Samples
from gateway.diagnosis.window import Snapshot, Window
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


def test_a_lane_that_only_a_policy_without_lanes_has_gets_no_path() -> None:
    document = policy().lanes
    assert {lane.id for lane in document} == {"interactive", "batch"}
    bare = load_policy(
        'schema_version: 1\ndeployments: [{id: large, url: "unix:/tmp/large.sock", model: big}]\n'
        "routes: [{id: all, select: {candidates: [large]}}]\n",
        source="policy.yaml",
    )
    place = place_of(Scene().window(), bare)
    assert (place.lane, place.lane_path("weight")) == ("interactive", None)


def test_another_deployment_comes_with_its_own_route() -> None:
    found = load_policy(
        """
schema_version: 1
deployments:
  - {id: large, url: "unix:/tmp/large.sock", model: big}
  - {id: idle, url: "unix:/tmp/idle.sock", model: big}
routes:
  - {id: all, select: {candidates: [large]}}
  - {id: other, match: {models: [other]}, select: {candidates: [idle]}}
""",
        source="policy.yaml",
    )
    place = place_of(Scene().window(), found).at("idle@10.0.0.1:80")
    assert place.route_path("cache.mode") == "routes.other.cache.mode"
    assert place.deployment_path("limits.max_in_flight") == "deployments.idle.limits.max_in_flight"


def test_the_deployment_whose_latencies_grew_most_is_the_latest() -> None:
    def window(large: float, small: float) -> Window:
        def gateway(num: float, large_s: float, small_s: float) -> Samples:
            spread = (
                ({"deployment": "large"}, Distribution(10 * num, 10 * large_s)),
                ({"deployment": "small"}, Distribution(100 * num, 100 * small_s)),
                ({"deployment": "cache"}, Distribution(100 * num, 9000.0 * num)),
            )
            return Samples({}, {"penstock_ttft_seconds": spread})

        return Window(
            [
                Snapshot(at=0.0, gateway=gateway(1, 1.0, 1.0)),
                Snapshot(at=9.0, gateway=gateway(2, 1.0 + large, 1.0 + small)),
            ]
        )

    assert latest(window(3.0, 1.0), "penstock_ttft_seconds", "small") == "large"
    assert latest(window(1.0, 1.5), "penstock_ttft_seconds", "large") == "small"
    assert latest(window(1.0, 1.0), "penstock_ttft_seconds", "busiest") == "busiest"


def test_of_several_lanes_in_use_the_loosest_target_counts() -> None:
    scene = Scene()
    scene.gateway["penstock_shed_total"] = [({"lane": "patient"}, 1.0)]
    lanes = "[{id: interactive, slo: {ttft_p95_ms: 500}}, {id: patient, slo: {ttft_p95_ms: 9000}}]"
    place = place_of(scene.window(), policy(lanes))
    assert (place.ttft_target_s, place.tpot_target_s) == (9.0, None)
