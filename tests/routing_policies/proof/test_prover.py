"""Proofs of policies: violations have requests that show them, and mutants are evaluated by trying all requests too."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

import routing_policies
from routing_policies.check import request_view
from routing_policies.loading import load_document, load_policy
from routing_policies.matching import NoRoute, RouteTable
from routing_policies.policy.document import Policy
from routing_policies.proof.findings import PROPERTIES, Proof, Violation, shown_request
from routing_policies.proof.prover import proof_as_json, prove, stated_failures
from tests.routing_policies.documents import problems_of
from tests.routing_policies.proof.mutants import MUTATIONS, Maker, Mutation, base, evaluate, loaded, mutant

HEAD = """\
schema_version: 1
deployments:
  - {id: small, url: "http://small", model: small-model, context_tokens: 2048, limits: {max_in_flight: 4}}
  - {id: large, url: "http://large", model: large-model, context_tokens: 8192, limits: {max_in_flight: 4}}
"""
PRESETS = sorted((Path(routing_policies.__file__).parent / "presets").glob("*.yaml"))


def policy_of(rest: str) -> Policy:
    return load_policy(HEAD + rest, source="p")


def only(rest: str) -> Violation:
    """Return the one violation of a document without open questions."""
    proof = prove(policy_of(rest))
    assert proof.open_questions == ()
    (found,) = proof.violations
    assert set(proof.proven) == set(PROPERTIES) - {found.kind}
    return found


def taken(rest: str, found: Violation, place: int = 0) -> str:
    """Return what happens to a request that shows a violation."""
    try:
        return RouteTable(policy_of(rest)).match(request_view(found.requests[place])).id
    except NoRoute as error:
        return error.code


@pytest.mark.parametrize("path", PRESETS, ids=lambda path: path.stem)
def test_every_property_is_proven_of_a_preset(path: Path) -> None:
    loaded_policy = load_policy(path.read_text(), source=path.name, variables={"runtime_dir": "/run/penstock"})
    assert prove(loaded_policy).proven == tuple(PROPERTIES)


TOTAL = """\
routes:
  - {id: short, match: {when: 'request.turns <= 2'}, select: {candidates: [small]}}
  - {id: long, match: {when: 'request.turns > 3 || request.has_tools'}, select: {candidates: [large]}}
total: [auto]
"""


def test_a_name_that_is_not_total_has_a_request_in_the_gap() -> None:
    loaded_policy, document = load_document(HEAD + TOTAL, source="p")
    (found,) = prove(loaded_policy).violations
    assert (found.kind, found.path) == ("not_total", ("total", 0))
    assert shown_request(found.requests[0]) == {"model": "auto", "turns": 3}
    assert taken(TOTAL, found) == "implied-auto"
    (failure,) = stated_failures(loaded_policy, document)
    assert (failure.line, failure.path) == (8, "total[0]")
    assert failure.message.endswith('Request: {"model": "auto", "turns": 3}')


def test_what_a_document_does_not_call_total_may_have_gaps() -> None:
    loaded_policy, document = load_document(HEAD + TOTAL.replace("total: [auto]\n", ""), source="p")
    assert prove(loaded_policy).proven == tuple(PROPERTIES)
    assert stated_failures(loaded_policy, document) == ()


def test_a_total_name_serves_each_of_its_operations_on_every_route() -> None:
    text = HEAD.replace("model: small-model", "model: small-model, operations: [embeddings]")
    rest = """\
routes:
  - {id: vectors, match: {models: [any], when: 'request.turns <= 2'}, select: {candidates: [small]}}
  - {id: rest, match: {models: [any]}, select: {candidates: [large]}}
total: [any]
"""
    found = next(one for one in prove(load_policy(text + rest, source="p")).violations if one.kind == "not_total")
    assert "route vectors takes a request of operation chat, which gets unsupported_operation" in found.message
    assert found.requests[0].operation == "chat"


def test_a_total_name_is_one_of_a_route() -> None:
    (problem,) = problems_of(HEAD + "total: [aut]\n" + TOTAL.replace("total: [auto]\n", ""))
    assert 'no model in a route named "aut"; did you mean "auto"?' in problem


def test_a_shadowed_route_names_the_smallest_set_of_routes_that_shadow_it() -> None:
    rest = """\
routes:
  - {id: a, match: {when: 'request.turns <= 4'}, select: {candidates: [small]}}
  - {id: other, match: {when: 'request.has_images && request.turns == 9'}, select: {candidates: [small]}}
  - {id: b, match: {when: 'request.turns >= 4'}, select: {candidates: [large]}}
  - {id: c, match: {when: 'request.has_tools'}, select: {candidates: [large]}}
"""
    found = only(rest)
    assert (found.kind, found.path) == ("unreachable_route", ("routes", 3))
    assert "a, b take every request that it matches" in found.message
    assert found.requests[0].has_tools
    assert taken(rest, found) in ("a", "b")


def test_a_contradiction_is_met_by_no_request() -> None:
    rest = """\
routes:
  - {id: a, match: {when: 'request.text == "ping" && request.text.contains("sql")'}, select: {candidates: [small]}}
"""
    found = only(rest)
    assert "no request of a tenant that may name its models meets its match" in found.message


def test_a_route_that_only_stands_in_for_another_is_in_use() -> None:
    rest = """\
routes:
  - {id: a, select: {candidates: [small], fallback: [b]}}
  - {id: b, select: {candidates: [large]}}
"""
    assert prove(policy_of(rest)).proven == tuple(PROPERTIES)


def test_an_alias_that_a_tenant_may_name_and_no_route_serves_is_shown_with_the_tenant() -> None:
    rest = """\
tenants: [{id: shop, models: [faq]}, {id: labs}]
routes:
  - {id: faq, match: {models: [faq], tenants: [labs]}, select: {candidates: [small]}}
"""
    found = only(rest)
    assert (found.kind, found.path) == ("unreachable_alias", ("tenants", 0, "models", 0))
    assert shown_request(found.requests[0]) == {"model": "faq", "tenant": "shop"}
    assert taken(rest, found) == "model_not_found"


def test_a_mutual_fallback_is_a_circle_with_a_request_for_each_route() -> None:
    rest = """\
lanes: [{id: interactive, slo: {ttft_p95_ms: 500}, on_overload: [small_model, shed]}]
routes:
  - {id: a, match: {models: [a]}, select: {candidates: [small], fallback: [b]}}
  - {id: b, match: {models: [b]}, select: {candidates: [large], fallback: [a]}}
"""
    found = only(rest)
    assert found.kind == "fallback_cycle"
    assert "routes a → b → a fall back on each other" in found.message
    assert "overload in interactive (small_model)" in found.message
    assert [taken(rest, found, place) for place in (0, 1)] == ["a", "b"]
    one_way = rest.replace(", fallback: [a]", "")
    assert prove(policy_of(one_way)).proven == tuple(PROPERTIES)


def test_a_circle_that_brings_no_other_deployment_is_none() -> None:
    rest = """\
routes:
  - {id: a, match: {models: [a]}, select: {candidates: [small], fallback: [b]}}
  - {id: b, match: {models: [b]}, select: {candidates: [small], fallback: [a]}}
"""
    assert prove(policy_of(rest)).proven == tuple(PROPERTIES)


@pytest.mark.parametrize(("budget", "is_short"), [(2047, False), (2048, True), (4000, True)])
def test_each_candidate_has_room_for_what_prompts_are_trimmed_to_and_a_token_of_answer(
    budget: int, is_short: bool
) -> None:
    rest = f"""\
routes:
  - id: a
    select: {{candidates: [large], fallback: [small]}}
    trim: {{budget_tokens: {budget}, strategies: [minify]}}
"""
    proof = prove(policy_of(rest))
    assert [one.kind for one in proof.violations] == (["context"] if is_short else [])
    assert all(one.requests[0].prompt_tokens == budget for one in proof.violations)


@pytest.mark.parametrize(("least", "is_hopeless"), [(262_144, False), (262_145, True)])
def test_a_route_for_prompts_that_no_candidate_holds_is_shown_with_one(least: int, is_hopeless: bool) -> None:
    rest = f"""\
routes:
  - {{id: a, match: {{when: 'request.prompt_bytes >= {least}'}}, select: {{candidates: [small]}}}}
"""
    proof = prove(policy_of(rest))
    assert [one.kind for one in proof.violations] == (["context"] if is_hopeless else [])
    assert proof.open_questions == ()


STARVING = """\
lanes: [{id: now, max_queue: 0}, {id: later}]
tenants: [{id: shop, lanes: [now]}, {id: labs, limits: {max_in_flight: 8}}]
routes: [{id: a, select: {candidates: [small, large]}}]
"""


def test_a_tenant_whose_lane_lets_nobody_wait_is_starved_by_one_that_may_hold_all_permits() -> None:
    found = only(STARVING)
    assert (found.kind, found.path) == ("starvation", ("tenants", 0))
    assert "tenant labs can starve tenant shop on route a" in found.message
    assert [request.tenant for request in found.requests][-1] == "shop"
    assert {request.tenant for request in found.requests[:-1]} == {"labs"}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("max_in_flight: 8", "max_in_flight: 7"),
        ("max_in_flight: 8", "requests_per_min: 1"),
        ("lanes: [now]", "lanes: [now, later]"),
        ("max_queue: 0", "max_queue: 1"),
    ],
)
def test_a_quota_below_the_permits_or_a_place_in_a_queue_keeps_a_tenant_from_starving(old: str, new: str) -> None:
    assert prove(policy_of(STARVING.replace(old, new))).proven == tuple(PROPERTIES)


def test_a_lane_that_a_thousand_grants_pass_by_starves() -> None:
    rest = STARVING.replace("max_queue: 0", "weight: 0.001")
    assert "lane now gets one grant for every 1,000 of lane later" in only(rest).message


def test_only_prompts_of_the_length_that_starves_are_shown() -> None:
    rest = STARVING.replace(
        "{id: now, max_queue: 0}", "{id: now, max_prompt_tokens: 50, longer: long}, {id: long, max_queue: 0}"
    )
    found = only(rest)
    assert (found.requests[-1].prompt_tokens, found.requests[-1].lane) == (51, "long")


def test_a_condition_on_a_key_separates_two_keys_of_one_tenant() -> None:
    rest = """\
tenants: [{id: shop}]
routes:
  - {id: a, match: {when: 'headers["authorization"].endsWith("7f")'}, select: {candidates: [large]}}
"""
    found = only(rest)
    assert (found.kind, found.path) == ("wide_key", ("routes", 0, "match", "when"))
    first, second = found.requests
    assert first.tenant == second.tenant
    assert (taken(rest, found), taken(rest, found, 1)) == ("a", "implied-auto")


def test_what_needs_two_numbers_at_once_is_tried_and_not_called_proven() -> None:
    rest = """\
routes:
  - {id: a, match: {when: 'request.turns * 1000 < request.prompt_bytes'}, select: {candidates: [small]}}
  - {id: b, match: {when: 'request.turns > request.prompt_bytes && request.turns < 2'}, select: {candidates: [small]}}
total: [auto]
"""
    proof = prove(policy_of(rest))
    (violation,) = proof.violations
    assert violation.kind == "not_total"
    (question,) = proof.open_questions
    assert (question.kind, question.path) == ("unreachable_route", ("routes", 1))
    assert "not proven" in question.message


def test_a_search_that_hits_its_bound_is_an_open_question() -> None:
    routes = "".join(
        f"  - {{id: r{n}, match: {{when: 'request.text.contains(\"k{n}.\") && request.turns > {n}'}}, "
        "select: {candidates: [small]}}\n"
        for n in range(12)
    )
    text = f"routes:\n{routes}total: [auto]\n"
    assert [one.kind for one in prove(policy_of(text)).violations] == ["not_total"]
    bounded = prove(policy_of(text), max_nodes=1)
    assert {one.kind for one in bounded.open_questions} == {"unreachable_route"}
    assert [one.kind for one in bounded.violations] == ["not_total"]


def test_json_has_the_place_and_the_requests() -> None:
    loaded_policy, document = load_document(HEAD + TOTAL, source="p")
    shown = proof_as_json(prove(loaded_policy), document)
    (found,) = shown["violations"]
    assert (found["line"], found["path"], found["requests"]) == (8, "total[0]", [{"model": "auto", "turns": 3}])
    assert "not_total" not in shown["proven"]
    assert shown["open_questions"] == []


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.__name__)
def test_every_mutant_is_found_or_equivalent_by_trying_all_requests(mutation: Mutation) -> None:
    num_evaluated = 0
    for seed in range(4):
        document, variables = base(seed)
        changed = mutant(document, Maker.of(seed, mutation, variables), mutation)
        policy = None if changed is None else loaded(changed)
        if policy is not None:
            verdict = evaluate(policy)
            assert verdict.is_right, (seed, verdict, changed)
            num_evaluated += 1
    assert num_evaluated > 0


def hundred_routes() -> Policy:
    """Return a policy with a hundred conditions of three atoms on one name, and twenty tenants."""
    kinds = (
        "request.turns <= {0} && (request.prompt_bytes < {1} || request.has_tools)",
        'tenant == "t{2}" && headers["x-plan"] == "p{0}" && !request.stream',
        'request.text.contains("word{0}") && (request.turns > {2} || request.text.startsWith("k{1}"))',
        'request.text.matches("(?i)^k{0}.*z") && request.prompt_bytes >= {1}',
    )
    routes = "".join(
        f"  - {{id: r{n}, match: {{when: '{kinds[n % 4].format(n, 10_000 - 7 * n, n % 20)}'}}, "
        "select: {candidates: [small, large]}}\n"
        for n in range(100)
    )
    tenants = "".join(f"  - {{id: t{n}, models: [auto]}}\n" for n in range(20))
    return policy_of(
        f"tenants:\n{tenants}routes:\n{routes}  - {{id: rest, select: {{candidates: [large]}}}}\ntotal: [auto]\n"
    )


def test_a_hundred_routes_take_less_than_a_second_of_one_core() -> None:
    policy = hundred_routes()
    began = time.process_time()
    proof: Proof = prove(policy)
    assert time.process_time() - began < 1.0
    assert "not_total" in proof.proven
