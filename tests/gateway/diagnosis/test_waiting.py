"""A queue that grew: one tenant, a full engine, too few permits, or more demand than the lane is given."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gateway.diagnosis.budget import budget_before, budget_now
from gateway.diagnosis.finding import Finding
from gateway.diagnosis.policy_lines import place_of
from gateway.diagnosis.waiting import explain_waiting
from gateway.diagnosis.window import ObservedDeployment, Window
from routing_policies.loading import load_policy
from tests.gateway.diagnosis.snapshots import Scene
from tests.gateway.diagnosis.test_diagnose import POLICY


def waiting(**state: float) -> Scene:
    scene = Scene()
    scene.ttft, scene.stages["queue"] = 0.53, 0.5
    scene.state = {"limit": 64, "max_num_seqs": 64, **state}
    return scene


def explained(scene: Scene) -> Finding:
    window = scene.window()
    return explain_waiting(window, place_of(window, POLICY), budget_now(window), budget_before(window))


@pytest.mark.parametrize(
    ("state", "cause", "path"),
    [
        ({"num_seqs": 58, "in_flight": 60}, "engine_full", "routes.all.select.candidates"),
        ({"num_seqs": 40, "in_flight": 58}, "limit", "deployments.large.limits.max_in_flight"),
        ({"num_seqs": 40, "in_flight": 40}, "admission", "lanes.interactive.on_overload"),
    ],
)
def test_the_place_that_is_full_is_the_cause(state: dict[str, float], cause: str, path: str) -> None:
    finding = explained(waiting(**state))
    assert (finding.cause, finding.policy_path) == (cause, path)


@pytest.mark.parametrize(
    ("state", "cause", "path"),
    [
        (ObservedDeployment(in_flight=4, limit=4), "limit", "deployments.slow.limits.max_in_flight"),
        (
            ObservedDeployment(num_seqs=8, max_num_seqs=8, num_waiting=9),
            "engine_full",
            "routes.other.select.candidates",
        ),
        (ObservedDeployment(in_flight=1, limit=4, num_waiting=9), "admission", None),
    ],
)
def test_the_deployment_that_holds_requests_up_is_named_with_its_route_though_another_is_busier(
    state: ObservedDeployment, cause: str, path: str | None
) -> None:
    document = load_policy(
        """
schema_version: 1
deployments:
  - {id: large, url: "unix:/tmp/large.sock", model: big}
  - {id: slow, url: "unix:/tmp/slow.sock", model: big}
routes:
  - {id: all, select: {candidates: [large]}}
  - {id: other, match: {models: [other]}, select: {candidates: [slow]}}
""",
        source="policy.yaml",
    )
    scene = waiting(in_flight=10)
    scene.has_engine = False
    window = scene.window()
    held_up = {**window.last.deployments, "slow": state}
    window = Window([window.first, replace(window.last, deployments=held_up)])
    finding = explain_waiting(window, place_of(window, document), budget_now(window), budget_before(window))
    assert (finding.cause, finding.policy_path) == (cause, path), "the document has no lanes"
    assert ("slow" in finding.summary) == (path is not None)


@pytest.mark.parametrize(
    ("state", "cause", "words"),
    [
        ({"is_ready": False}, "deployment_down", "large is not ready"),
        ({"is_ready": False, "is_draining": True}, "drained", "large is drained"),
        ({"backoff_s": 1.5}, "backoff", "large is in the backoff that its server requested"),
    ],
)
def test_a_route_without_a_deployment_that_serves_is_no_demand_of_the_lane(
    state: dict[str, float], cause: str, words: str
) -> None:
    scene = Scene()
    scene.num, scene.state, scene.state_before = 0.0, state, state
    scene.gateway["penstock_shed_total"] = [({"lane": "interactive"}, 25.0)]
    finding = explained(scene)
    assert (finding.cause, finding.policy_path) == (cause, "routes.all.select.fallback")
    assert finding.summary == f"No deployment of route all takes requests: {words}."


def test_one_candidate_that_serves_leaves_the_lane_as_the_cause() -> None:
    window = waiting(num_seqs=40, in_flight=40).window()
    idle = {**window.last.deployments, "encoder": ObservedDeployment(is_ready=False)}
    window = Window([window.first, replace(window.last, deployments=idle)])
    assert explain_waiting(window, place_of(window, POLICY), budget_now(window), budget_before(window)).cause == (
        "admission"
    )


def test_a_ready_deployment_of_another_route_does_not_hide_that_none_serves() -> None:
    scene = Scene()
    scene.state = {"is_ready": False}
    window = scene.window()
    beside = {**window.last.deployments, "encoder": ObservedDeployment()}
    window = Window([window.first, replace(window.last, deployments=beside)])
    finding = explain_waiting(window, place_of(window, POLICY), budget_now(window), budget_before(window))
    assert finding.cause == "deployment_down"


def test_sequences_that_wait_inside_an_engine_mean_that_it_is_full() -> None:
    scene = waiting(num_seqs=1, in_flight=64)
    scene.gauges["engine_waiting"] = 1.0
    assert explained(scene).cause == "engine_full"


def test_a_tenant_that_newly_takes_most_is_named_and_one_that_always_did_is_not() -> None:
    scene = waiting(num_seqs=64, in_flight=64)
    scene.tenants["two"] = 50_000.0
    finding = explained(scene)
    assert (finding.cause, finding.policy_path) == ("one_tenant", "tenants.two.limits.max_in_flight")

    alone = waiting(num_seqs=64, in_flight=64)
    alone.tenants = {"one": 500.0}
    assert explained(alone).cause == "engine_full", "nobody else is kept waiting"


def test_refusals_are_reported_as_a_share_of_all_that_requested() -> None:
    scene = waiting(in_flight=1)
    scene.gateway["penstock_shed_total"] = [({"lane": "interactive"}, 25.0)]
    refused = explained(scene).evidence[-1]
    assert (refused.name, refused.measure) == ("refused for load", "ratio")
    assert refused.now == pytest.approx(0.25)
