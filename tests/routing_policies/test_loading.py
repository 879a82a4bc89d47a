# ruff: noqa: E501 (one case a line reads best)
"""What a policy file may state, and what it is given when it states something else."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from textwrap import dedent

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from routing_policies.loading import MAX_DOCUMENT_BYTES, MAX_FINDINGS, load_policy
from routing_policies.policy.document import Cache, Policy, Timeouts
from routing_policies.policy.problems import PolicyError, Problem
from tests.routing_policies.documents import TWO_DEPLOYMENTS, policy, problems_of

SKETCH = """\
schema_version: 1
deployments:
  - {id: small, url: "unix:/run/penstock/small.sock", model: penstock-small, cost_per_mtok: {prompt: 0.05, completion: 0.2}, limits: {max_in_flight: 64}}
  - {id: large, url: "unix:/run/penstock/large.sock", model: penstock-large, zone: local, cost_per_mtok: {prompt: 0.5, completion: 2.0}}
lanes:
  - {id: interactive, weight: 8, slo: {ttft_p95_ms: 600, tpot_p95_ms: 60}, max_queue: 256, on_overload: [trim, shed]}
  - {id: batch, weight: 1, max_queue: 2000, on_overload: [shed]}
tenants:
  - {id: support, lanes: [interactive, batch], limits: {requests_per_min: 600, tokens_per_min: 200000, max_in_flight: 40}, flags: {canary: 10}}
routes:
  - id: faq
    match: {models: [auto], tenants: [support], when: "request.turns <= 2"}
    trim: {budget_tokens: 3000, strategies: [minify, dedupe, drop_old_turns]}
    cache: {mode: exact_then_semantic, scope: tenant, ttl_s: 3600, max_error_ratio: 0.01, audit_ratio: 0.02}
    select: {policy: quality_then_latency, min_quality: 0.95, candidates: [small, large]}
    timeouts: {connect_ms: 500, first_token_ms: 8000, inter_token_ms: 4000, total_ms: 120000}
tests:
  - {name: "a greeting", request: {tenant: support, text: "hello"}, expect: {route: faq, candidates: [small, large]}}
"""


def test_a_small_document_gets_every_default() -> None:
    loaded = policy("routes: [{id: r, select: {candidates: [large]}}]\n")
    assert [lane.id for lane in loaded.lanes] == ["interactive", "interactive-long", "batch"]
    assert loaded.routes[0].timeouts == Timeouts()
    assert loaded.routes[0].cache == Cache(mode="off")
    assert loaded.deployments[0].limits.max_in_flight == 64
    assert not loaded.has_keys


def test_the_whole_design_is_a_policy() -> None:
    loaded = load_policy(dedent(SKETCH), source="p.yaml")
    assert loaded.routes[0].cache.mode == "exact_then_semantic"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("rutes: []", 'p.yaml:5:1: rutes: unknown key; did you mean "routes"?'),
        ("xyzzy: 1", "p.yaml:5:1: xyzzy: unknown key; known: schema_version, deployments,"),
        ("schema_version: 1", "p.yaml:5:1: schema_version: given twice; the first is on line 1"),
        ("tenants: {id: a}", "p.yaml:5:10: tenants: expected a list, got a mapping"),
        ("tenants: [[a]]", "p.yaml:5:11: tenants[0]: expected a mapping, got a list"),
        ("tenants: [{}]", 'p.yaml:5:11: tenants[0]: "id" is missing'),
        ("tenants: [{id: A B}]", "p.yaml:5:16: tenants[0].id: expected 1 to 64 of a-z, 0-9, dot,"),
        ("tenants: [{id: 7}]", 'p.yaml:5:16: tenants[0].id: expected text, got 7; put it in quotes: "7"'),
        ("tenants: [{id: true}]", 'tenants[0].id: expected text, got true; put it in quotes: "true"'),
        ("tenants: [{id: ~}]", "tenants[0].id: expected str, got nothing"),
        ("tenants: [{id: [a]}]", "p.yaml:5:16: tenants[0].id: expected a single value, got a list"),
        ("tenants: [{id: a, lanes: []}]", "p.yaml:5:26: tenants[0].lanes: allows no lane; leave it out"),
        ("tenants: [{id: a, lanes: [batsch]}]", 'tenants[0].lanes[0]: no lane named "batsch"; did you mean "batch"?'),
        ("tenants: [{id: a, models: [big]}]", 'tenants[0].models[0]: no model named "big"; known: auto, penstock-small,'),
        ("tenants: [{id: a}, {id: a}]", 'tenants[1].id: a second tenant named "a"; the first is tenants[0]'),
        ("tenants: [{id: a, limits: {max_in_flight: 0}}]", "max_in_flight: expected int >= 1, got 0"),
        ("tenants: [{id: a, limits: {max_in_flight: 1.5}}]", "max_in_flight: expected int, got 1.5"),
        ("tenants: [{id: a, limits: {max_in_flight: true}}]", "max_in_flight: expected int, got true"),
        ("tenants: [{id: a, limits: {max_in_flight: '9'}}]", "max_in_flight: expected int, got '9'"),
        ("tenants: [{id: a, limits: {max_in_flight: .inf}}]", "max_in_flight: expected int, got '.inf'"),
        ("tenants: [{id: a, limits: {on_store_loss: deny}}]", 'on_store_loss: "deny" is not a choice here; known: allow, refuse'),
        ("tenants: [{id: a, limits: {budget: {tokens: 5}}}]", "limits.budget.tokens: unknown key"),
        ("tenants: [{id: a, limits: {budget: {cost_per_day: 0}}}]", "cost_per_day: expected float > 0.0, got 0"),
        ("tenants: [{id: a, limits: {budget: {cost_per_day: 5}}}]", "budget.cost_per_day: cannot be counted: no cost_per_mtok"),
        ("tenants: [{id: a, keys: [{id: k, sha256: abc}]}]", "sha256: expected the sha256 of the whole key as 64"),
        ("lanes: [{id: a, weight: 0}]", "lanes[0].weight: expected float > 0.0, got 0"),
        ("lanes: [{id: a, weight: 1e400}]", "lanes[0].weight: expected float <= 1000000.0, got inf"),
        ("routes: [{id: r}]", 'p.yaml:5:10: routes[0]: "select" is missing'),
        ("routes: [{id: r, select: {candidates: []}}]", "routes[0].select.candidates: needs at least 1 item"),
        ("routes: [{id: r, select: {candidates: [smal]}}]", 'no deployment named "smal"; did you mean "small"?'),
        ("routes: [{id: r, select: {candidates: [small, small]}}]", 'candidates[1]: "small" is listed twice'),
        ("routes: [{id: r, select: {candidates: [{id: small, wait: 2}]}}]", 'wait: unknown key; did you mean "weight"?'),
        ("routes: [{id: r, select: {candidates: [{id: small, weight: 2}]}}]", "a weight has no effect with policy"),
        ("routes: [{id: r, select: {candidates: [small], policy: weigted}}]", 'did you mean "weighted"?'),
        ("routes: [{id: r, select: {candidates: [small]}, match: {tenants: [x]}}]", 'no tenant named "x"; there are none'),
        ("routes: [{id: r, select: {candidates: [small]}, match: {models: []}}]", "needs at least 1 item"),
        ("routes: [{id: r, select: {candidates: [small]}, match: {headers: {Up: x}}}]", "a header's name in lower case"),
        ("routes: [{id: r, select: {candidates: [small]}, match: {headers: {cookie: x}}}]", "cannot depend on a credential"),
        ("routes: [{id: r, select: {candidates: [small]}, timeouts: {total_ms: 5}}]", "connect_ms (1000) is longer than"),
        (
            "routes: [{id: r, select: {candidates: [small]}, cache: {mode: exact, history: standalone}}]",
            "cache.history: has an effect only with mode exact_then_semantic",
        ),
        ("routes: [{id: r, select: {candidates: [small]}, cache: {history: exakt}}]", 'did you mean "exact"?'),
        ("routes: [{id: r, select: {candidates: [small]}, cache: {judge: small}}]", 'unknown key; it is called "auditor" now'),
        ("routes: [{id: implied-auto, select: {candidates: [small]}}]", "is the name of a built-in route"),
        ("tests: [{name: t, expect: {}}]", "expects nothing; name at least one of route, candidates"),
        ("tests: [{name: t, expect: {error: model_not_found, route: r}}]", "has no route, candidates or deployment"),
        ("tests: [{name: t, expect: {route: r}}]", 'tests[0].expect.route: no route named "r"; known: implied-auto'),
        ("tests: [{name: t, given: {x: {}}, expect: {deployment: small}}]", 'given.x: no deployment named "x"'),
        ("? [a]\n: b", "p.yaml:5:3: a key must be plain text"),
        ("<<: {a: 1}", "p.yaml:5:1: <<: unknown key"),
        ("routes: [", "not valid YAML: "),
        ("--- {}", "not valid YAML: expected a single document in the stream, but found another"),
        ("routes: !!python/object:os.system x", "routes: expected a list, got a single value"),
    ],
)  # fmt: skip
def test_a_mistake_is_named_with_its_place_and_what_was_meant(line: str, expected: str) -> None:
    reported = problems_of(TWO_DEPLOYMENTS + line + "\n")
    assert any(expected in one for one in reported), reported


AUTH = "the name of an environment variable, 1 to 64 of A-Z, 0-9 and underscore; never the secret itself"


@pytest.mark.parametrize(
    ("extra", "expected"),
    [
        ("auth: {}", "auth: give either bearer_env, or header and value_env"),
        ("auth: {bearer: sk-live-secret}", 'auth.bearer: unknown key; did you mean "bearer_env"?'),
        ("auth: {bearer_env: sk-live-secret}", f"auth.bearer_env: expected {AUTH}"),
        ("auth: {bearer_env: secret}", f"auth.bearer_env: expected {AUTH}"),
        ("auth: {bearer_env: ''}", f"auth.bearer_env: expected {AUTH}"),
        ("auth: sk-live-secret", "auth: expected a mapping, got a single value"),
        ("tls: {ca_file: ca.pem}", "tls.ca_file: expected an absolute path, got 'ca.pem'"),
        ("tls: {verify: false}", "tls.verify: unknown key; known: ca_file"),
    ],
)
def test_credentials_are_named_never_written_and_a_pasted_one_is_not_repeated(extra: str, expected: str) -> None:
    reported = problems_of(f'schema_version: 1\ndeployments: [{{id: a, url: "https://host/v1", model: m, {extra}}}]\n')
    assert any(expected in line for line in reported), reported
    assert "secret" not in "".join(reported).replace(AUTH, "")


def test_a_deployment_may_name_its_key_and_its_authority() -> None:
    extra = "auth: {bearer_env: HOSTED_KEY}, tls: {ca_file: /etc/ca.pem}"
    text = f'schema_version: 1\ndeployments: [{{id: a, url: "https://host/v1", model: m, {extra}}}]\n'
    loaded = load_policy(text, source="p").deployments[0]
    assert loaded.auth is not None
    assert loaded.auth.bearer_env == "HOSTED_KEY"
    assert loaded.tls is not None
    assert loaded.tls.ca_file == "/etc/ca.pem"
    reported = problems_of(text.replace("https:", "http:"))
    assert reported == ["p.yaml:2:93: deployments[0].tls: has an effect only with an https:// URL"]


def test_a_document_of_more_than_a_mebibyte_is_refused() -> None:
    assert "larger than" in problems_of("#" * (MAX_DOCUMENT_BYTES + 1))[0]


@given(st.text(max_size=200))
def test_any_text_is_a_policy_or_a_policy_error(text: str) -> None:
    with suppress(PolicyError):
        assert isinstance(load_policy(text, source="p"), Policy)


@given(st.integers(0, len(SKETCH) - 1), st.sampled_from([*"{}[]:,-&*!|>'\"#%@`\n \t0a", "${", "<<"]))
@settings(deadline=None)
def test_any_slip_in_a_real_document_leaves_a_policy_or_is_an_error_with_a_line_inside_it(at: int, slip: str) -> None:
    text = SKETCH[:at] + slip + SKETCH[at + 1 :]
    lines = [1]
    try:
        loaded: Policy | None = load_policy(text, source="p")
    except PolicyError as error:
        loaded, lines = None, [problem.line for problem in error.problems]
    assert lines if loaded is None else isinstance(loaded, Policy)
    assert all(1 <= line <= text.count("\n") + 2 for line in lines)


def test_a_lane_has_targets_a_ladder_and_a_lane_for_longer_prompts() -> None:
    loaded = policy(
        "routes: [{id: r, select: {candidates: [large]}}]\nlanes:\n"
        "  - {id: chat, slo: {ttft_p95_ms: 600}, on_overload: [small_model, max_tokens, shed], degraded_max_tokens: 64,\n"
        "     max_prompt_tokens: 4000, longer: long}\n"
        "  - {id: long, priority: batch}\n"
    )
    chat, long = loaded.lanes
    assert (chat.degraded_max_tokens, chat.max_prompt_tokens, chat.longer) == (64, 4000, "long")
    assert (chat.engine_priority, long.engine_priority) == ("interactive", "batch")


def deployments(num: int) -> str:
    lines = (f'  - {{id: d{n}, url: "http://h:{n + 1}", model: m}}\n' for n in range(num))
    return "schema_version: 1\ndeployments:\n" + "".join(lines)


def listed(names: list[str]) -> str:
    return "[" + ", ".join(names) + "]"


LARGE: dict[str, Callable[[int], str]] = {
    "many routes": lambda num: (
        deployments(1) + "routes:\n" + "".join(f"  - {{id: r{n}, select: {{candidates: [d0]}}}}\n" for n in range(num))
    ),
    "many candidates": lambda num: (
        deployments(num) + f"routes: [{{id: r, select: {{candidates: {listed([f'd{n}' for n in range(num)])}}}}}]\n"
    ),
    "unknown candidates": lambda num: (
        deployments(num) + f"routes: [{{id: r, select: {{candidates: {listed([f'x{n}' for n in range(num)])}}}}}]\n"
    ),
    "one candidate again and again": lambda num: (
        deployments(1) + f"routes: [{{id: r, select: {{candidates: {listed(['d0'] * num)}}}}}]\n"
    ),
    "many tenants": lambda num: (
        deployments(1)
        + f"tenants: {listed([f'{{id: t{n}}}' for n in range(num)])}\n"
        + f"routes: [{{id: r, match: {{tenants: {listed([f't{n}' for n in range(num)])}}}, select: {{candidates: [d0]}}}}]\n"
    ),
}


@pytest.mark.parametrize("make", LARGE.values(), ids=LARGE.keys())
def test_a_large_document_is_checked_in_time_proportional_to_it(make: Callable[[int], str]) -> None:
    def seconds(num: int) -> float:
        text, found = make(num), list[Problem]()
        begun = time.process_time()
        try:
            load_policy(text, source="p")
        except PolicyError as error:
            found += error.problems
        took_s = time.process_time() - begun
        assert len(found) <= MAX_FINDINGS
        assert sum(len(problem.message) for problem in found) < 1_000_000
        return took_s

    assert seconds(4800) < 8 * seconds(1200) + 1.0


@pytest.mark.parametrize("version", ["99", "0", '"1"', "1.0"])
def test_an_unknown_schema_version_is_refused_with_the_known_ones(version: str) -> None:
    reported = problems_of(f'schema_version: {version}\ndeployments: [{{id: a, url: "https://host/v1", model: m}}]\n')
    assert f"schema_version: expected 1, got {version}".replace('"', "'") in str(reported)
