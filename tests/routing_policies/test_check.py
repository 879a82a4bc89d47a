"""The tests inside a policy."""

from __future__ import annotations

import msgspec
import pytest

from gateway.routing.quality_files import load_predictors
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
def test_a_test_that_holds_is_silent(test: str) -> None:
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
            "(chosen from 1; large not ready)",
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
            '10: tests[0].expect.deployment: test "t" failed: route split chooses at random; expect candidates instead',
        ),
    ],
)
def test_a_test_that_fails_states_what_happened_instead_and_where_it_stands(test: str, expected: str) -> None:
    failures = check(test).failures
    assert [f"{failure.line}: {failure.path}: {failure.message}" for failure in failures] == [expected]


def test_a_policy_without_tests_passes_none() -> None:
    assert run_tests(*load_document(TWO_DEPLOYMENTS, source="p")) == CheckResult(num_tests=0, failures=())


PREDICTED = """
schema_version: 1
deployments:
  - {id: small, url: "unix:/run/s.sock", model: penstock-small, cost_per_mtok: {prompt: 1, completion: 1}}
  - {id: large, url: "unix:/run/l.sock", model: penstock-large, cost_per_mtok: {prompt: 9, completion: 9}}
routes:
  - id: good
    match: {models: [auto]}
    select: {policy: quality_then_latency, min_quality: 0.8, candidates: [small, large]}
  - id: cheap
    match: {models: [cheap]}
    select: {policy: first_available, candidates: [small, large]}
tests:
"""


@pytest.mark.parametrize(
    ("name", "request_", "given", "chosen"),
    [
        ("neutral: no text, so the policy's constants", "{}", "", "small"),
        ("a sum", '{text: "What is 7 plus 5?"}', "", "small"),
        ("a hard one", '{text: "Which of Croatia or Hungary has the lowest shipping price?"}', "", "large"),
        ("an unknown one", '{text: "Prove that every bounded entire function is constant."}', "", "large"),
        ("what is stated wins", '{text: "What is 7 plus 5?"}', "given: {small: {quality: 0.1}}, ", "large"),
        ("also over an unknown one", '{text: "Prove Fermat."}', "given: {small: {quality: 0.9}}, ", "small"),
        ("a route that looks at no quality", '{model: cheap, text: "Prove Fermat."}', "", "small"),
    ],
)
def test_quality_is_predicted_from_the_text_of_a_test(name: str, request_: str, given: str, chosen: str) -> None:
    predictors = load_predictors()
    for deployment in ("small", "large"):
        test = f"{{name: x, request: {request_}, {given}expect: {{deployment: {deployment}}}}}"
        result = run_tests(*load_document(f"{PREDICTED}  - {test}\n", source="p.yaml"), predictors)
        assert bool(result.failures) is (deployment != chosen), (name, result.failures)


def test_tests_are_run_with_what_was_loaded_and_not_with_what_was_learned_since() -> None:
    predictors = load_predictors()
    predictor = predictors.find("penstock-small", "penstock-large")
    assert predictor is not None
    hopeless = msgspec.structs.replace(predictor.model.text, bias=-99.0)
    predictor.adopt(msgspec.structs.replace(predictor.model, text=hopeless))
    test = '{name: x, request: {text: "What is 7 plus 5?"}, expect: {deployment: small}}'
    assert run_tests(*load_document(f"{PREDICTED}  - {test}\n", source="p.yaml"), predictors).failures == ()
