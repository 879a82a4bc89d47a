"""The tests inside a policy."""

from __future__ import annotations

import pytest

from routing_policies.check import CheckResult, run_tests
from routing_policies.loading import load_document
from tests.routing_policies.documents import TWO_DEPLOYMENTS

ROUTES = """\
tenants: [{id: search, models: [auto]}]
routes:
  - {id: main, select: {candidates: [large, small]}}
  - {id: split, match: {models: [split]}, select: {policy: weighted, candidates: [{id: large, weight: 3}, small]}}
tests:
"""


def check(test: str) -> CheckResult:
    return run_tests(*load_document(TWO_DEPLOYMENTS + ROUTES + f"  - {test}\n", source="p.yaml"))


@pytest.mark.parametrize(
    "test",
    [
        "{name: t, expect: {route: main, candidates: [large, small], deployment: large}}",
        "{name: t, given: {large: {ready: false}}, expect: {candidates: [small], deployment: small}}",
        "{name: t, given: {large: {in_flight: 4}}, expect: {deployment: small}}",
        "{name: t, given: {large: {in_flight: 3}}, expect: {deployment: large}}",
        "{name: t, given: {large: {ready: false}, small: {ready: false}}, expect: {candidates: []}}",
        "{name: t, request: {model: split}, expect: {route: split, candidates: [large, small]}}",
        "{name: t, request: {model: split}, given: {large: {ready: false}}, expect: {deployment: small}}",
        "{name: t, request: {model: nothing}, expect: {error: model_not_found}}",
        "{name: t, request: {model: large, tenant: search}, expect: {error: model_not_allowed}}",
        "{name: t, request: {model: small}, expect: {route: implied-direct, candidates: [small]}}",
    ],
)
def test_a_test_that_holds_says_nothing(test: str) -> None:
    assert check(test) == CheckResult(num_tests=1, failures=())


@pytest.mark.parametrize(
    ("test", "expected"),
    [
        (
            "{name: t, expect: {route: split}}",
            '10: tests[0].expect.route: test "t" failed: expected route split, got main',
        ),
        (
            "{name: t, given: {large: {ready: false}}, expect: {deployment: large}}",
            '10: tests[0].expect.deployment: test "t" failed: expected deployment large, got small '
            "(chosen from 1; large not_ready)",
        ),
        (
            "{name: t, expect: {candidates: [small, large]}}",
            '10: tests[0].expect.candidates: test "t" failed: expected candidates [small, large], '
            "got [large, small] (chosen from 2)",
        ),
        (
            "{name: t, expect: {error: model_not_found}}",
            '10: tests[0].expect.error: test "t" failed: expected error model_not_found, got route main',
        ),
        (
            "{name: t, request: {model: x}, expect: {route: main}}",
            '10: tests[0].expect.error: test "t" failed: expected a route, got error model_not_found',
        ),
        (
            "{name: t, request: {model: split}, expect: {deployment: large}}",
            '10: tests[0].expect.deployment: test "t" failed: route split chooses by chance; expect candidates instead',
        ),
    ],
)
def test_a_test_that_fails_says_what_happened_instead_and_where_it_stands(test: str, expected: str) -> None:
    failures = check(test).failures
    assert [f"{failure.line}: {failure.path}: {failure.message}" for failure in failures] == [expected]


def test_a_policy_without_tests_passes_none() -> None:
    assert run_tests(*load_document(TWO_DEPLOYMENTS, source="p")) == CheckResult(num_tests=0, failures=())
