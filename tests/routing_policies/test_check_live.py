"""Tests inside a policy that assume forecasts, prices, caches and zones."""

from __future__ import annotations

import pytest

from routing_policies.check import run_tests
from routing_policies.loading import load_document
from routing_policies.policy.problems import PolicyError

POLICY = """\
schema_version: 1
deployments:
  - {id: small, url: "unix:/run/s.sock", model: s, cost_per_mtok: {prompt: 0.1, completion: 0.2}, quality: 0.6}
  - {id: large, url: "unix:/run/l.sock", model: l, cost_per_mtok: {prompt: 1, completion: 2}, zone: here}
lanes:
  - {id: interactive}
  - {id: batch}
routes:
  - {id: fast, match: {models: [fast]}, select: {policy: latency_first, candidates: [large, small]}}
  - {id: cheap, match: {models: [cheap]}, select: {policy: least_cost_within_slo, candidates: [large, small]}}
  - id: best
    match: {models: [best]}
    select: {policy: scored, weights: {session: 3, quality: 1, zone: 5}, candidates: [small, large]}
tests:
"""

FAST = "request: {model: fast}, given: {large: {forecast_ttft_ms: %s}, small: {forecast_ttft_ms: %s}}"


@pytest.mark.parametrize(
    ("test", "deployment"),
    [
        (FAST % ("900", "200"), "small"),
        (FAST % ("200", "900"), "large"),
        (FAST % ("201, cached_tokens: 900", "200"), "large"),
        (FAST % ("100, in_flight: 64", "200"), "large"),
        (FAST % ("100, ready: false", "200"), "small"),
        ("request: {model: cheap}", "small"),
        ("request: {model: best}", "large"),
        ("request: {model: best, zone: elsewhere}", "small"),
        ("request: {model: best}, given: {small: {same_session: true}}", "small"),
        ("request: {model: best, zone: elsewhere, lane: batch}, given: {large: {ready: false}}", "small"),
    ],
)
def test_what_is_given_decides(test: str, deployment: str) -> None:
    text = POLICY + f"  - {{name: t, {test}, expect: {{deployment: {deployment}}}}}\n"
    assert run_tests(*load_document(text, source="p.yaml")).failures == ()


def problem_of(text: str) -> str:
    with pytest.raises(PolicyError) as caught:
        load_document(text, source="p.yaml")
    return str(caught.value)


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("policy: latency_first", "policy: scored", "policy scored and weights belong together"),
        ("policy: latency_first", "policy: latency_first, weights: {cost: 1}", "scored and weights belong together"),
        ("session: 3", "sesion: 3", 'did you mean "session"?'),
        (", cost_per_mtok: {prompt: 1, completion: 2}", "", '"large" has no cost_per_mtok'),
        ("quality: 0.6", "quality: 1.6", "quality: expected float <= 1.0, got 1.6"),
    ],
)  # fmt: skip
def test_settings_that_make_no_sense_are_named(before: str, after: str, expected: str) -> None:
    assert before in POLICY
    assert expected in problem_of(POLICY.replace(before, after) + "  []\n")


def test_a_lane_that_is_not_there_cannot_be_tested() -> None:
    assert 'no lane named "x"' in problem_of(
        POLICY + "  - {name: t, request: {lane: x}, expect: {deployment: small}}\n"
    )
