"""Groups of a policy, and what they become with their members."""

from __future__ import annotations

import pytest

from routing_policies.check import CheckResult, run_tests
from routing_policies.loading import load_document, load_policy
from routing_policies.matching import RequestView, RouteTable
from routing_policies.policy.diff import diff
from routing_policies.policy.document import Policy
from routing_policies.policy.members import (
    VACANT_URL,
    Address,
    MembersBySource,
    expanded,
    group_of,
    has_groups,
    is_member,
    sample_member,
)
from routing_policies.policy.problems import PolicyError
from routing_policies.scorers.canary import CanaryShare
from routing_policies.scorers.order import Order
from routing_policies.views import DeploymentView

HEAD = """
schema_version: 1
deployments:
  - id: engine
    model: small
    limits: {max_in_flight: 7}
    cost_per_mtok: {prompt: 1, completion: 2}
    discover: {dns: engine.example.svc, port: 8000%s}
  - {id: cloud, url: "https://api.example.com", model: big}
"""
SOURCE = ("dns", "engine.example.svc", 8000)
THREE: MembersBySource = {SOURCE: [Address("10.0.0.1", 8000), Address("10.0.0.2", 8000), Address("fd00::A", 8000)]}
IDS = ("engine@10.0.0.1:8000", "engine@10.0.0.2:8000", "engine@[fd00::a]:8000")


def policy(rest: str = "", discover: str = "") -> Policy:
    return load_policy(HEAD % discover + rest, source="test")


def test_members_take_over_everything_but_the_address() -> None:
    found = expanded(policy(), THREE)
    assert tuple(one.id for one in found.deployments) == (*IDS, "cloud")
    assert [one.url for one in found.deployments[:3]] == [
        "http://10.0.0.1:8000",
        "http://10.0.0.2:8000",
        "http://[fd00::A]:8000",
    ]
    assert {one.limits.max_in_flight for one in found.deployments[:3]} == {7}
    assert [group_of(name) for name in IDS] == ["engine"] * 3
    assert [is_member(name) for name in (*IDS, "cloud")] == [True, True, True, False]


def test_the_base_path_and_the_scheme_are_those_of_the_group() -> None:
    found = expanded(policy(discover=", scheme: https, path: /v1"), THREE)
    assert found.deployments[0].url == "https://10.0.0.1:8000/v1"


def test_a_group_without_members_stays_as_a_deployment_that_leads_nowhere() -> None:
    empty: tuple[MembersBySource, ...] = ({}, {SOURCE: []})
    for members in empty:
        found = expanded(policy(), members)
        assert next((one.id, one.url) for one in found.deployments) == ("engine", VACANT_URL)


def test_members_beyond_the_largest_number_are_left_out() -> None:
    assert len(expanded(policy(discover=", max_members: 2"), THREE).deployments) == 3


def test_a_policy_without_groups_is_the_same_value() -> None:
    plain = load_policy("schema_version: 1\ndeployments: [{id: a, url: 'http://a', model: m}]\n", source="test")
    assert expanded(plain, THREE) is plain
    assert (has_groups(plain), has_groups(policy())) == (False, True)


def test_a_route_divides_a_groups_weight_and_keeps_its_place() -> None:
    rest = (
        "routes: [{id: r, select: {policy: weighted, candidates: [{id: cloud, weight: 1}, {id: engine, weight: 3}]}}]"
    )
    candidates = expanded(policy(rest), THREE).routes[0].select.resolved()
    assert [(one.id, one.weight) for one in candidates] == [("cloud", 1.0), *((name, 1.0) for name in IDS)]


def test_shadow_and_auditor_are_the_first_member() -> None:
    rest = (
        "routes: [{id: r, select: {candidates: [cloud], shadow: {id: engine}},"
        " cache: {mode: exact_then_semantic, auditor: engine}}]"
    )
    route = expanded(policy(rest), THREE).routes[0]
    assert route.select.shadow is not None
    assert (route.select.shadow.id, route.cache.auditor) == (IDS[0], IDS[0])


def test_clients_name_the_group_or_its_model_and_never_a_member() -> None:
    table = RouteTable(expanded(policy(), THREE))
    assert table.models_for(None) == ("auto", "small", "engine", "big", "cloud")
    for name in ("small", "engine"):
        assert table.match(RequestView(model=name)).select.candidates == IDS
    assert not table.knows(IDS[0])


def view(name: str, in_flight: int = 0) -> DeploymentView:
    return DeploymentView(id=name, model="m", is_ready=True, in_flight=in_flight, max_in_flight=10)


def test_members_share_a_place_in_the_order_and_load_decides_between_them() -> None:
    views = [view(IDS[0], 9), view(IDS[1], 1), view("cloud"), view("other@a:1")]
    scores = Order().scores(views)
    assert sorted(range(4), key=lambda place: -scores[place]) == [1, 0, 2, 3]
    assert Order().scores([view("a", 9), view("b")]) == [1.0, 0.5]


def test_a_canary_may_be_a_group() -> None:
    assert CanaryShare("engine", 0.0).scores([view(IDS[0]), view("cloud")]) == [0.0, 1.0]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("discover: {dns: a.b}", "dns needs port"),
        ("discover: {dns: a.b, port: 1, list: c}", "exactly one"),
        ("discover: {}", "exactly one"),
        ("discover: {srv: _h._tcp.a, port: 3}", "port has no effect with srv"),
        ("discover: {list: a, port_name: http}", "port_name belongs to kubernetes"),
        ("discover: {kubernetes: engine}", "namespace/name"),
        ("discover: {ray: 'ftp://head'}", "Ray dashboard"),
        ("discover: {ray: 'http://user:pw@head:8265'}", "credentials"),
        ("discover: {list: a, tls_name: x}", "scheme https only"),
        ("discover: {dns: 'a b', port: 1}", "host name"),
        ("discover: {list: a, path: v1}", "a path such as /v1"),
        ("discover: {list: a}\n    url: http://x", "no effect beside discover"),
        ("zone: z", '"url" is missing'),
    ],
)
def test_a_group_that_cannot_be_is_refused_by_name(wrong: str, message: str) -> None:
    text = HEAD.replace("discover: {dns: engine.example.svc, port: 8000%s}", wrong)
    with pytest.raises(PolicyError) as caught:
        load_policy(text, source="test")
    assert message in str(caught.value)


def test_a_groups_id_leaves_room_for_addresses() -> None:
    with pytest.raises(PolicyError, match="at most 40"):
        load_policy((HEAD % "").replace("id: engine", f"id: {'e' * 41}"), source="test")


def test_a_sample_member_stands_for_the_others_in_checks() -> None:
    deployments = policy(discover=", scheme: https").deployments
    assert sample_member(deployments[0]).url.startswith("https://")
    assert sample_member(deployments[1]) is deployments[1]


def test_a_policys_tests_and_plans_name_the_group() -> None:
    text = (
        HEAD % ""
        + """
routes: [{id: r, select: {policy: least_in_flight, candidates: [engine, cloud]}}]
tests:
  - {name: free, expect: {route: r, deployment: engine}}
  - {name: busy, given: {engine: {in_flight: 7}}, expect: {deployment: cloud}}
"""
    )
    found, document = load_document(text, source="test")
    assert run_tests(found, document) == CheckResult(num_tests=2, failures=())
    (change,) = diff(found, policy(text.removeprefix(HEAD % "").replace("[engine, cloud]", "[cloud, engine]")))[:1]
    assert change.path.startswith("routes.r")
