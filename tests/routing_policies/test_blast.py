"""Tenants and routes that a change of policy can affect."""

from __future__ import annotations

from routing_policies.blast import BlastRadius, blast_radius
from routing_policies.policy.diff import diff
from tests.routing_policies.policy.test_diff import BASE, policy


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


def test_a_change_of_what_all_requests_share_reaches_everybody() -> None:
    old, new = policy(), policy(BASE.replace("routes:", "lanes: [{id: chat}]\nroutes:"))
    found = blast_radius(diff(old, new), old, new)
    assert found.is_everything
    assert found.tenants is None
    assert found.touches("shop", "faq")


def test_a_request_is_touched_by_its_tenant_or_by_its_route() -> None:
    found = BlastRadius(tenants=("shop", "bank"), routes=("faq",), changed_tenants=("bank",))
    assert found.touches("shop", "faq")
    assert found.touches("bank", "rest")
    assert not found.touches("shop", "rest")
