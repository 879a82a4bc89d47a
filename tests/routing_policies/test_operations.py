"""Operations of deployments, and routes as they apply to them."""

from __future__ import annotations

import pytest

from routing_policies.check import run_tests
from routing_policies.loading import load_document, load_policy
from routing_policies.operations import input_modalities_of, operations_of, route_for
from routing_policies.policy.document import Policy, Route
from routing_policies.policy.problems import PolicyError
from routing_policies.policy.values import OperationName

TEXT = """
schema_version: 1
deployments:
  - {{id: small, url: "unix:/run/small.sock", model: tiny, cost_per_mtok: {{prompt: 1, completion: 1}}}}
  - {{id: large, url: "unix:/run/large.sock", model: big, cost_per_mtok: {{prompt: 9, completion: 9}}}}
  - {{id: encoder, url: "builtin:encoder", model: minilm}}
  - {{id: vectors, url: "http://host/v1", model: vectors, operations: [embeddings], input_modalities: [text, image]}}
routes:
  - id: main
    match: {{models: [main]}}
    select: {select}
    trim: {{strategies: [minify]}}
    cache: {{mode: exact_then_semantic, history: standalone}}
{tests}
"""


def policy_with(select: str, tests: str = "") -> Policy:
    return load_policy(TEXT.format(select=select, tests=tests), source="test")


def served(select: str, operation: OperationName) -> Route | None:
    policy = policy_with(select)
    rules = {rule.id: rule for rule in policy.deployments}
    return route_for(
        policy.routes[0], operation, policy.deployments, lambda name: operation in operations_of(rules[name])
    )


def candidates(route: Route | None) -> list[str]:
    return [] if route is None else [candidate.id for candidate in route.select.resolved()]


def test_a_deployment_serves_what_it_states_or_what_is_usual() -> None:
    small, _, encoder, vectors = policy_with("{candidates: [small]}").deployments

    assert operations_of(small) == ("chat", "completions")
    assert operations_of(encoder) == operations_of(vectors) == ("embeddings",)
    assert input_modalities_of(small) is None
    assert input_modalities_of(encoder) == ("text",)
    assert input_modalities_of(vectors) == ("text", "image")


def test_a_route_has_only_candidates_that_serve_the_operation() -> None:
    select = "{candidates: [small, encoder, large, vectors]}"

    assert candidates(served(select, "chat")) == candidates(served(select, "completions")) == ["small", "large"]
    assert candidates(served(select, "embeddings")) == ["encoder", "vectors"]
    assert served("{candidates: [small]}", "embeddings") is None


def test_chat_on_a_route_of_chat_models_is_the_route_itself() -> None:
    policy = policy_with("{candidates: [small, large]}")

    assert route_for(policy.routes[0], "chat", policy.deployments, lambda name: True) is policy.routes[0]


def test_trimming_similar_answers_and_shadows_are_for_chat_only() -> None:
    select = "{candidates: [small], shadow: {id: large}}"
    chat, other = served(select, "chat"), served(select, "completions")

    assert chat is not None
    assert other is not None
    assert (chat.cache.mode, chat.select.shadow is None, bool(chat.trim.strategies)) == (
        *("exact_then_semantic", False),
        True,
    )
    assert (other.cache.mode, other.cache.history, other.select.shadow, other.trim.strategies) == (
        *("exact", "exact"),
        *(None, ()),
    )


@pytest.mark.parametrize("policy", ["cascade", "quality_then_latency"])
def test_without_a_prediction_the_strongest_candidate_comes_first(policy: str) -> None:
    found = served(f"{{policy: {policy}, min_quality: 0.9, candidates: [small, large]}}", "completions")

    assert candidates(found) == ["large", "small"]
    assert found is not None
    assert (found.select.policy, found.select.min_quality) == ("first_available", None)


@pytest.mark.parametrize(
    ("test", "error"),
    [
        ("request: {model: main, operation: embeddings}, expect: {error: unsupported_operation}", None),
        ("request: {model: encoder, operation: embeddings}, expect: {deployment: encoder}", None),
        ("request: {model: encoder}, expect: {deployment: encoder}", "got error unsupported_operation"),
    ],
)
def test_a_policys_tests_name_the_operation(test: str, error: str | None) -> None:
    text = TEXT.format(select="{candidates: [small]}", tests=f"tests:\n  - {{name: t, {test}}}")
    failures = run_tests(*load_document(text, source="test")).failures

    assert [error in str(failure) for failure in failures if error] == ([True] if error else [])
    assert bool(failures) == (error is not None)


@pytest.mark.parametrize(
    ("deployment", "message"),
    [
        ('url: "builtin:encoder", operations: [chat]', "serves embeddings only"),
        ('url: "http://host", operations: [chat, chat]', "listed twice"),
        ('url: "http://host", operations: []', "needs at least 1 item"),
        ('url: "http://host", operations: [images]', "operations"),
        ('url: "builtin:other"', "must start with"),
    ],
)
def test_operations_that_cannot_be_are_problems(deployment: str, message: str) -> None:
    text = f"schema_version: 1\ndeployments:\n  - {{id: one, model: one, {deployment}}}\n"
    with pytest.raises(PolicyError, match=message):
        load_policy(text, source="test")
