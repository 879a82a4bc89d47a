"""Conditions of routes: what they may state, what is refused and where, and what they cost."""

from __future__ import annotations

import pytest

from routing_policies.check import run_tests
from routing_policies.conditions.condition import Condition
from routing_policies.conditions.tokens import ConditionError
from routing_policies.loading import load_document
from routing_policies.matching import RequestView, RouteTable
from routing_policies.policy.problems import PolicyError

FACTS: dict[str, str | int | bool] = {
    "model": "auto",
    "turns": 3,
    "prompt_bytes": 900,
    "has_tools": False,
    "has_images": True,
    "stream": True,
    "text": "where is order 42?",
}


class Request:
    """Facts that count what is required of them."""

    def __init__(self) -> None:
        self.requested: list[str] = []

    def fact(self, name: str) -> str | int | bool:
        self.requested.append(name)
        return FACTS[name]


@pytest.mark.parametrize(
    ("source", "holds"),
    [
        ("request.turns <= 2", False),
        ("request.turns == 3 && request.stream", True),
        ('request.has_tools || tenant in ["shop", "bank"]', True),
        ('headers["x-plan"] == "gold"', True),
        ('headers["x-absent"] == "gold"', False),
        ('request.text.startsWith("where") && !request.has_tools', True),
        (r'request.text.matches("order [0-9]+")', True),
        ("request.prompt_bytes / 3 > 299 ? request.has_images : false", True),
        ("size(request.text) > 10 && 1.5 < 2.5", True),
        ("request.turns / (request.turns - 3) > 1", False),
        ("9223372036854775807 + request.turns > 0", False),
    ],
)
def test_a_condition_states_true_or_false(source: str, holds: bool) -> None:
    assert Condition(source).holds(Request(), "shop", {"x-plan": "gold"}) is holds


@pytest.mark.parametrize(
    ("source", "reported"),
    [
        ("", "did not expect the end"),
        ("request.turns", "a condition is true or false, this is a whole number"),
        ('request.turns > "2"', "cannot be compared with >"),
        ("request.turns > 2.5", "cannot be compared"),
        ("request.turn > 2", 'did you mean "turns"'),
        ("tennant == 'x'", 'did you mean "tenant"'),
        ('headers["X-Plan"] == "a"', "lower case"),
        ("headers[tenant] == 'a'", "expected a string"),
        ("[1, 2].exists(x, x > 1)", "has no exists"),
        ("[[1], [2]].all(x, x.all(y, y > 0))", "constants"),
        ('request.text.matches("(")', "is no pattern"),
        ('request.stream && request.turns > 9 && request.text.matches("(")', "is no pattern"),
        ('request.text.matches("(a{1000}){1000}")', "no counted repetition"),
        ("request.text.matches(tenant)", "one text in quotes"),
        ("tenant in [1, 2]", "cannot be in"),
        ("true &&", "at character 8"),
        ("true; false", "';' is not valid here"),
        ("(" * 100 + "true" + ")" * 100, "nested deeper"),
        ("!" * 200 + "true", "nested deeper"),
        ("true" + " && true" * 200, "longer than|more than"),
        ("x" * 5000, "longer than"),
    ],
)
def test_what_is_no_bounded_condition_is_refused_with_its_place(source: str, reported: str) -> None:
    with pytest.raises(ConditionError, match=reported.replace("[", r"\[").replace("(", r"\(")):
        Condition(source)


def test_a_pattern_that_would_never_end_elsewhere_ends_here() -> None:
    FACTS["text"], before = "a" * 2_000 + "!", FACTS["text"]
    try:
        assert not Condition(r'request.text.matches("(a+)+$")').holds(Request(), None, {})
        assert not Condition(r'request.text.matches("(a|aa)*b$")').holds(Request(), None, {})
    finally:
        FACTS["text"] = before


def test_a_condition_requests_what_it_names_and_nothing_else() -> None:
    request = Request()
    Condition("request.turns > 1").holds(request, None, {})
    assert request.requested == ["turns"]


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


def test_the_first_route_whose_condition_holds_takes_the_request() -> None:
    policy, document = load_document(POLICY, source="policy")
    assert run_tests(policy, document).failures == ()
    table = RouteTable(policy)
    assert table.match(RequestView(model="auto", facts=Request())).id == "rest"
    assert table.match(RequestView(model="auto")).id == "rest"


def test_a_bad_condition_is_refused_at_its_line() -> None:
    with pytest.raises(PolicyError, match=r'policy:8:19: routes\[0\]\.match\.when: .*did you mean "turns"'):
        load_document(POLICY.replace("request.turns", "request.turms"), source="policy")
