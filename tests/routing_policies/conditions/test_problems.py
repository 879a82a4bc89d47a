"""Where a policy's bad conditions are reported."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from routing_policies.conditions.problems import condition_problems
from routing_policies.loading import load_document, load_policy
from routing_policies.policy.problems import PolicyError

POLICY = """
schema_version: 1
deployments:
  - {id: small, url: "http://small", model: tiny}
  - {id: large, url: "http://large", model: big}
routes:
  - id: short
    match: {when: "request.turns <= 2 && !request.has_tools"}
    select: {candidates: [small]}
  - {id: rest, select: {candidates: [large]}}
tests:
  - {name: a short one, request: {turns: 2}, expect: {route: short}}
  - {name: a tool, request: {turns: 1, has_tools: true}, expect: {route: rest}}
"""


def test_a_bad_condition_is_refused_at_its_line() -> None:
    with pytest.raises(PolicyError, match=r'policy:8:19: routes\[0\]\.match\.when: .*did you mean "turns"'):
        load_document(POLICY.replace("request.turns", "request.turms"), source="policy")


def test_each_bad_condition_is_a_problem_of_its_own_route_and_good_ones_are_none() -> None:
    policy = load_policy(POLICY, source="policy")
    assert list(condition_problems(policy)) == []
    short, rest = policy.routes
    bad = [replace(route, match=replace(route.match, when="request.turns")) for route in (short, rest)]
    paths = [problem.path for problem in condition_problems(replace(policy, routes=(bad[0], short, bad[1])))]
    assert paths == [("routes", 0, "match", "when"), ("routes", 2, "match", "when")]
