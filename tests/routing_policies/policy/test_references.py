"""Names and URLs of a policy that must lead somewhere."""

from __future__ import annotations

import pytest

from routing_policies.loading import load_policy
from routing_policies.policy.references import known_models
from tests.routing_policies.documents import TWO_DEPLOYMENTS, policy, problems_of


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("unix:run/a.sock", "needs an absolute path"),
        ("unix:/" + "d" * 107, "the socket path is 1 bytes over the system's 107"),
        ("ftp://host/x", "must start with unix:, http:// or https://"),
        ("small:8000", "must start with unix:, http:// or https://"),
        ("http://", "names no host"),
        ("http://host:0", "names no host and port"),
        ("http://host:99999", "names no host and port"),
        ("http://user:secret@host", "credentials do not belong in a URL"),
        ("https://host/v1?key=a", "must not have a query"),
        ("http://ho st", "printable ASCII without spaces"),
    ],
)
def test_a_url_that_leads_nowhere_is_refused(url: str, expected: str) -> None:
    reported = problems_of(f'schema_version: 1\ndeployments: [{{id: a, url: "{url}", model: m}}]\n')
    assert len(reported) == 1
    assert expected in reported[0]
    assert "secret" not in reported[0]


@pytest.mark.parametrize("url", ["unix:/a.sock", "http://host", "http://[::1]:8000/base", "https://api.example.com/v1"])
def test_a_url_of_a_supported_form_is_taken(url: str) -> None:
    loaded = load_policy(f'schema_version: 1\ndeployments: [{{id: a, url: "{url}", model: m}}]', source="p")
    assert loaded.deployments[0].url == url


def test_two_tenants_cannot_own_one_key() -> None:
    key = "ab" * 32
    reported = problems_of(
        TWO_DEPLOYMENTS
        + f"tenants:\n  - {{id: a, keys: [{{id: k, sha256: {key}}}]}}\n"
        + f"  - {{id: b, keys: [{{id: k, sha256: {key}}}]}}\n"
    )
    assert reported == ['p.yaml:7:36: tenants[1].keys[0].sha256: the same key already belongs to tenant "a"']


@pytest.mark.parametrize(
    ("lanes", "reported"),
    [
        ("[{id: a, max_prompt_tokens: 9}]", "belong together"),
        ("[{id: a, max_prompt_tokens: 9, longer: b}]", 'no lane named "b"'),
        ("[{id: a, max_prompt_tokens: 9, longer: a}]", "takes no longer prompts"),
        ("[{id: a, max_prompt_tokens: 9, longer: b}, {id: b, max_prompt_tokens: 8, longer: a}]", "no longer prompts"),
        ("[{id: a, on_overload: [max_tokens, max_tokens]}]", "listed twice"),
        ("[{id: a, on_overload: [shed, max_tokens]}]", "comes after shed"),
    ],
)
def test_a_lane_that_leads_nowhere_is_refused(lanes: str, reported: str) -> None:
    assert reported in problems_of(TWO_DEPLOYMENTS + f"lanes: {lanes}\n")[0]


def test_a_client_may_request_every_alias_model_and_id_once_in_the_policys_order() -> None:
    loaded = policy("routes: [{id: r, match: {models: [fast, auto]}, select: {candidates: [large]}}]\n")
    assert known_models(loaded) == ("auto", "fast", "penstock-small", "small", "penstock-large", "large")


@pytest.mark.parametrize(
    ("fallback", "expected"),
    [
        ("[nowhere]", 'fallback[0]: no route or deployment named "nowhere"'),
        ("[r]", "fallback[0]: a route cannot fall back on itself"),
        ("[small]", 'fallback[0]: "small" is a candidate of this route already'),
        ("[other, other]", 'fallback[1]: "other" is listed twice'),
        ("[large]", 'fallback[0]: "large" is both a route and a deployment; rename one'),
    ],
)
def test_a_fallback_that_leads_nowhere_new_is_refused(fallback: str, expected: str) -> None:
    routes = [f"{{id: r, select: {{candidates: [small], fallback: {fallback}}}}}"]
    routes += ["{id: other, select: {candidates: [large]}}", "{id: large, select: {candidates: [large]}}"]
    (reported,) = problems_of(TWO_DEPLOYMENTS + f"routes: [{', '.join(routes)}]\n")
    assert expected in reported


@pytest.mark.parametrize(
    ("select", "expected"),
    [
        ("candidates: [small], hedge: {}", "select.hedge: has no effect with a single candidate"),
        ("candidates: [small], explore: {}", "select.explore: has no effect with a single candidate"),
        ("candidates: [small, large], policy: sticky, explore: {}", "state sessions: true"),
        (
            "candidates: [small, large], policy: cascade, min_quality: 0.5, explore: {}",
            "select.explore: has no effect with policy cascade",
        ),
        (
            "candidates: [small, large], explore: {weights: {smal: 2}}",
            'select.explore.weights.smal: no candidate named "smal"; did you mean "small"?',
        ),
        ("candidates: [small], shadow: {id: lage}", 'shadow.id: no deployment named "lage"; did you mean "large"?'),
        (
            "policy: canary, candidates: [small], canary: {id: large}",
            'canary.id: no candidate named "large"',
        ),
        (
            "policy: cost_cap, max_request_cost: 1, candidates: [small]",
            '"small" has no cost_per_mtok, so cost_cap cannot',
        ),
    ],
)
def test_a_choice_that_would_have_no_effect_is_refused(select: str, expected: str) -> None:
    (reported,) = problems_of(TWO_DEPLOYMENTS + f"routes: [{{id: r, select: {{{select}}}}}]\n")
    assert expected in reported


def test_an_auditor_belongs_to_a_semantic_cache() -> None:
    route = "routes: [{{id: r, select: {{candidates: [small]}}, cache: {{mode: {mode}, auditor: large}}}}]\n"
    assert policy(route.format(mode="exact_then_semantic")).routes[0].cache.auditor == "large"
    (reported,) = problems_of(TWO_DEPLOYMENTS + route.format(mode="exact"))
    assert "cache.auditor: has an effect only with mode exact_then_semantic" in reported
