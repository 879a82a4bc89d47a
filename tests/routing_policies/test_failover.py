"""What a route may state about failing over, and what it may not."""

from __future__ import annotations

import pytest

from routing_policies.policy.problems import PolicyError
from routing_policies.policy.schema import schema_of_policies
from routing_policies.policy.selection import Hedge
from tests.routing_policies.documents import policy


def problem_of(text: str) -> str:
    with pytest.raises(PolicyError) as caught:
        policy(text)
    return str(caught.value)


def test_a_route_falls_back_on_routes_and_deployments_in_the_order_written() -> None:
    loaded = policy(
        "routes:\n"
        "  - {id: main, select: {candidates: [small], fallback: [reserve, large]}}\n"
        "  - {id: reserve, match: {models: [reserve]}, select: {candidates: [large]}}\n"
    )

    assert loaded.routes[0].select.fallback == ("reserve", "large")
    assert loaded.routes[1].select.fallback == ()


def test_hedging_is_off_unless_written_and_then_calls_one_request_in_fifty_twice() -> None:
    loaded = policy("routes: [{id: r, select: {candidates: [small, large], hedge: {}}}]\n")

    assert loaded.routes[0].select.hedge == Hedge(max_ratio=0.02, max_load_ratio=0.5)
    assert policy("routes: [{id: r, select: {candidates: [small]}}]\n").routes[0].select.hedge is None


@pytest.mark.parametrize(
    ("select", "reported"),
    [
        ("candidates: [small], fallback: [larg]", 'fallback[0]: no route or deployment named "larg"; did you mean'),
        ("candidates: [small], fallback: [large, large]", 'fallback[1]: "large" is listed twice'),
        ("candidates: [small], fallback: [r]", "fallback[0]: a route cannot fall back on itself"),
        ("candidates: [small], fallback: [small]", 'fallback[0]: "small" is a candidate of this route already'),
        ("candidates: [small], hedge: {}", "hedge: has no effect with a single candidate; remove it"),
        ("candidates: [small, large], hedge: {max_ratio: 0.5}", "hedge.max_ratio: expected float <= 0.1, got 0.5"),
        ("candidates: [small, large], hedge: {max_ratio: 0}", "hedge.max_ratio: expected float > 0.0, got 0"),
        ("candidates: [small, large], hedge: {ratio: 0.1}", 'ratio: unknown key; did you mean "max_ratio"?'),
    ],
)
def test_failing_over_in_circles_or_without_effect_is_refused(select: str, reported: str) -> None:
    assert reported in problem_of(f"routes: [{{id: r, select: {{{select}}}}}]\n")


def test_a_name_that_is_a_route_and_a_deployment_is_no_fallback() -> None:
    reported = problem_of(
        "routes:\n"
        "  - {id: main, select: {candidates: [small], fallback: [large]}}\n"
        "  - {id: large, match: {models: [x]}, select: {candidates: [large]}}\n"
    )

    assert '"large" is both a route and a deployment; rename one' in reported


def test_the_schema_reports_editors_of_both() -> None:
    definitions = schema_of_policies()["$defs"]
    assert {"fallback", "hedge"} <= definitions["Select"]["properties"].keys()
