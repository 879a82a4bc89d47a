"""Advice on a policy whose choices rest on nothing that is known, and that this is what happens."""

from __future__ import annotations

import msgspec
import pytest

from routing_policies.advice import advice_on
from routing_policies.check import run_tests
from routing_policies.loading import load_document
from routing_policies.quality.predictor import Predictors
from tests.routing_policies.quality.test_predictor import trained

POLICY = """\
schema_version: 1
deployments:
  - {{id: a, url: "http://a", model: weak{quality}, cost_per_mtok: {{prompt: 1, completion: 1}}}}
  - {{id: b, url: "http://b", model: strong, cost_per_mtok: {{prompt: 5, completion: 5}}}}
routes:
  - id: auto
    match: {{models: [auto]}}
    select: {{policy: {policy}, min_quality: 0.8, candidates: [a, b]}}
tests:
  - {{name: who answers, request: {{model: auto}}, expect: {{deployment: {expected}}}}}
"""


def advice(policy: str, predictors: Predictors, expected: str, quality: str = "") -> list[str]:
    """Advice on the policy, whose own test must pass."""
    text = POLICY.format(policy=policy, expected=expected, quality=quality)
    loaded, document = load_document(text, source="p")
    assert run_tests(loaded, document, predictors).failures == ()
    return [found.message for found in advice_on(loaded, document, predictors)]


@pytest.mark.parametrize("policy", ["cascade", "quality_then_latency"])
def test_either_policy_of_an_unknown_pair_begins_with_the_small_model_and_states_its_rule(policy: str) -> None:
    (message,) = advice(policy, Predictors(), "a")
    assert "nothing is known of weak beside strong" in message
    assert "a begins every answer, and b takes over where the mean probability of its first tokens is below" in message
    assert "penstock policy outcomes --small a --large b" in message
    assert "penstock policy train --data outcomes.jsonl --weak weak --strong strong" in message


def test_a_cascade_that_begins_with_the_better_model_is_warned_of() -> None:
    text = POLICY.format(policy="cascade", expected="a", quality="").replace(
        "model: strong,", "model: strong, quality: 0.9,"
    )
    loaded, document = load_document(text, source="p")
    (found,) = advice_on(loaded, document, Predictors())
    assert "begins with a, whose quality 1 is above the 0.9 of b" in found.message


def test_a_small_model_whose_api_has_no_log_probabilities_waits_for_outcomes() -> None:
    text = POLICY.format(policy="quality_then_latency", expected="b", quality=", dialect: anthropic")
    loaded, document = load_document(text, source="p")
    assert run_tests(loaded, document, Predictors()).failures == ()
    (found,) = advice_on(loaded, document, Predictors())
    assert "strong answers in its place" in found.message


def test_an_unknown_third_candidate_gives_way_to_the_large_model() -> None:
    text = POLICY.format(policy="quality_then_latency", expected="b", quality="").replace("[a, b]", "[a, b, c]")
    text = text.replace(
        "routes:", '  - {id: c, url: "http://c", model: strong, cost_per_mtok: {prompt: 6, completion: 6}}\nroutes:'
    )
    loaded, document = load_document(text, source="p")
    assert run_tests(loaded, document, Predictors()).failures == ()
    (found,) = advice_on(loaded, document, Predictors())
    assert "strong answers in its place" in found.message


@pytest.mark.parametrize("policy", ["cascade", "quality_then_latency"])
def test_a_stated_quality_is_known_well_enough(policy: str) -> None:
    assert advice(policy, Predictors(), "a", ", quality: 0.9") == []


def test_a_pair_with_coefficients_needs_no_advice_unless_they_know_no_tokens() -> None:
    model = msgspec.structs.replace(trained(), weak="weak", strong="strong")
    assert advice("cascade", Predictors([model]), "a") == []
    untaught = msgspec.structs.replace(model, checkpoints=())
    (message,) = advice("cascade", Predictors([untaught]), "a")
    assert "learned without log probabilities" in message
    assert advice("quality_then_latency", Predictors([untaught]), "a") == []


def test_advice_is_at_its_line() -> None:
    text = POLICY.format(policy="cascade", expected="a", quality="")
    loaded, document = load_document(text, source="p")
    (found,) = advice_on(loaded, document, Predictors())
    assert (found.line, found.path) == (8, "routes[0].select.policy")


RESUMED = """\
schema_version: 1
deployments:
  - {{id: a, url: "http://a", model: m{first}}}
  - {{id: b, {second}}}
routes:
  - id: main
    match: {{models: [auto]}}
    select: {{policy: least_in_flight, candidates: [a, b]}}
    resume: exact
"""
KEY = ", resume_key_env: STREAM_KEY"


def resume_advice(first: str, second: str, rule: str = "exact") -> list[tuple[str, str]]:
    text = RESUMED.format(first=first, second=second).replace("resume: exact", f"resume: {rule}")
    loaded, document = load_document(text, source="p")
    return [(found.path, found.message) for found in advice_on(loaded, document, Predictors())]


def test_a_route_that_resumes_streams_of_engines_without_a_key_gets_advice() -> None:
    ((path, message),) = resume_advice(KEY, 'url: "http://b", model: m')
    assert path == "routes[0].resume"
    assert "resume: exact has no effect at b without `resume_key_env`" in message
    assert "--resume-key-env NAME" in message
    assert "UP_RESUME_KEY" in message


def test_a_model_with_one_deployment_cannot_resume_its_streams() -> None:
    found = resume_advice(KEY, f'url: "http://b", model: other{KEY}')
    assert [path for path, _ in found] == ["routes[0].resume", "routes[0].resume"]
    assert "no effect on streams of a, which alone serves m" in found[0][1]
    assert "Add another candidate with `model: other`" in found[1][1]


def test_two_deployments_of_a_model_with_keys_need_no_advice() -> None:
    assert resume_advice(KEY, f'url: "http://b", model: m{KEY}') == []


def test_servers_that_continue_messages_need_no_key_where_best_effort_is_enough() -> None:
    other = ", continuation: trailing_message"
    assert resume_advice(other, f'url: "http://b", model: m{other}', "best_effort") == []
    ((_, message),) = resume_advice(other, f'url: "http://b", model: m{other}')
    assert "resume: exact has no effect at a, b without" in message
    assert "write `resume: best_effort`" in message


def test_a_group_of_members_needs_no_second_deployment() -> None:
    group = f"discover: {{srv: _http._tcp.engine.example}}, model: other{KEY}"
    assert [message for _, message in resume_advice(KEY, group) if "serves other" in message] == []
