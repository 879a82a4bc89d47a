"""What changed between two policies, in words; and whom it reaches."""

from __future__ import annotations

import pytest

from routing_policies.blast import blast_radius
from routing_policies.loading import load_policy
from routing_policies.policy.diff import diff
from routing_policies.policy.document import Policy

BASE = """
schema_version: 1
deployments:
  - {id: small, url: "http://small", model: tiny}
  - {id: large, url: "http://large", model: big}
tenants:
  - {id: shop}
  - {id: bank, limits: {requests_per_min: 10}}
routes:
  - {id: faq, match: {models: [auto], tenants: [shop]}, select: {candidates: [small]}}
  - {id: rest, match: {models: [auto]}, select: {candidates: [large, small]}, cache: {mode: exact, ttl_s: 60}}
tests:
  - {name: the shop asks the small one, request: {tenant: shop}, expect: {route: faq}}
"""


def policy(text: str = BASE) -> Policy:
    return load_policy(text, source="policy")


def texts(changed: str) -> list[str]:
    return [change.text for change in diff(policy(), policy(changed))]


def test_the_same_meaning_written_differently_is_no_change() -> None:
    changed = BASE.replace("routes:", "# a comment\nlanes: []\nroutes:").replace("lanes: []\n", "")
    assert texts(changed.replace("{id: shop}", "{id: shop, limits: {}}")) == []


@pytest.mark.parametrize(
    ("old", "new", "reported"),
    [
        ("ttl_s: 60", "ttl_s: 3600", "route rest: cache.ttl_s 60 → 3600"),
        ("requests_per_min: 10", "requests_per_min: 20", "tenant bank: limits.requests_per_min 10 → 20"),
        (
            "candidates: [small]",
            "candidates: [small, large]",
            'route faq: select.candidates ["small"] → ["small","large"]',
        ),
        ("  - {id: bank, limits: {requests_per_min: 10}}\n", "", "tenant bank removed"),
        ("{id: shop}\n", "{id: shop}\n  - {id: pub}\n", "tenant pub added"),
        ("name: the shop asks", "name: the shop calls", 'test "the shop asks the small one" removed'),
    ],
)
def test_a_change_is_reported_by_its_meaning(old: str, new: str, reported: str) -> None:
    assert reported in texts(BASE.replace(old, new, 1))


def test_a_route_that_moved_is_reported_once() -> None:
    first = "  - {id: faq, match: {models: [auto], tenants: [shop]}, select: {candidates: [small]}}\n"
    moved = BASE.replace(first, "").replace("tests:", f"{first}tests:")
    notified = texts(moved.replace("expect: {route: faq}", "expect: {route: rest}"))
    assert [line for line in notified if "moved" in line] == ["route faq moved from place 1 to 2"]


def test_a_secrets_hash_is_not_repeated_whole() -> None:
    keyed = BASE.replace("{id: shop}", f'{{id: shop, keys: [{{id: k1, sha256: "{"ab" * 32}"}}]}}')
    assert texts(keyed) == ["tenant shop: keys.k1 none → sha256 abababab…"]


def radius(changed: str) -> tuple[tuple[str, ...] | None, tuple[str, ...]]:
    old, new = policy(), policy(changed)
    found = blast_radius(diff(old, new), old, new)
    return found.tenants, found.routes


def test_a_route_of_one_tenant_reaches_that_tenant_only() -> None:
    assert radius(BASE.replace("select: {candidates: [small]}", "select: {candidates: [large]}")) == (
        ("shop",),
        ("faq",),
    )


def test_a_route_that_takes_other_requests_reaches_those_behind_it() -> None:
    tenants, routes = radius(BASE.replace("tenants: [shop]", "tenants: [shop, bank]"))
    assert tenants is None
    assert set(routes) >= {"faq", "rest"}


def test_a_deployment_reaches_every_route_that_may_choose_it() -> None:
    _, routes = radius(BASE.replace("model: big}", "model: big, quality: 0.5}"))
    assert "rest" in routes
    assert "faq" not in routes


def test_a_tenants_own_entry_reaches_nobody_else_and_tests_reach_nobody() -> None:
    assert radius(BASE.replace("requests_per_min: 10", "requests_per_min: 9")) == (("bank",), ())
    assert radius(BASE.replace("name: the shop asks", "name: the shop calls")) == ((), ())
