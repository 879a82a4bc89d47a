"""Which route takes which request."""

from __future__ import annotations

import pytest

from routing_policies.matching import NoRoute, RequestView, RouteTable
from tests.routing_policies.documents import policy

ROUTES = """\
tenants:
  - {id: support}
  - {id: search, models: [auto, penstock-small]}
routes:
  - {id: trial, match: {headers: {x-product: beta}}, select: {candidates: [small]}}
  - {id: support, match: {tenants: [support]}, select: {candidates: [large]}}
  - {id: faq, match: {models: [faq-bot], tenants: [support]}, select: {candidates: [small]}}
  - {id: other-large, match: {models: [penstock-large]}, select: {candidates: [large, small]}}
"""


@pytest.mark.parametrize(
    ("request_view", "expected"),
    [
        (RequestView(model="auto", tenant="support"), "support"),
        (RequestView(model="auto", tenant="support", headers={"x-product": "beta"}), "trial"),
        (RequestView(model="auto", tenant="support", headers={"x-product": "gamma"}), "support"),
        (RequestView(model="auto", tenant="search"), "implied-auto"),
        (RequestView(model="auto"), "implied-auto"),
        (RequestView(model="faq-bot", tenant="support"), "faq"),
        (RequestView(model="penstock-small", tenant="search"), "implied-direct"),
        (RequestView(model="small"), "implied-direct"),
        (RequestView(model="penstock-large"), "other-large"),
        (RequestView(model="large"), "implied-direct"),
    ],
)
def test_the_first_route_whose_conditions_all_hold_takes_the_request(request_view: RequestView, expected: str) -> None:
    assert RouteTable(policy(ROUTES)).match(request_view).id == expected


@pytest.mark.parametrize(
    ("request_view", "code"),
    [
        (RequestView(model="gpt-9"), "model_not_found"),
        (RequestView(model="gpt-9", tenant="search"), "model_not_found"),
        (RequestView(model="penstock-large", tenant="search"), "model_not_allowed"),
        # To everybody but support the alias does not exist: nothing shows that it does for others.
        (RequestView(model="faq-bot"), "model_not_found"),
        (RequestView(model="AUTO"), "model_not_found"),
        (RequestView(model=""), "model_not_found"),
    ],
)
def test_a_request_without_a_route_gets_the_code_for_its_reason(request_view: RequestView, code: str) -> None:
    with pytest.raises(NoRoute) as caught:
        RouteTable(policy(ROUTES)).match(request_view)
    assert caught.value.code == code


def test_without_written_routes_auto_reaches_every_deployment_in_order() -> None:
    route = RouteTable(policy()).match(RequestView(model="auto"))
    assert route.id == "implied-auto"
    assert [candidate.id for candidate in route.select.resolved()] == ["small", "large"]


def test_a_name_that_several_deployments_share_reaches_all_of_them() -> None:
    rest = "  - {id: small-2, url: 'http://b', model: penstock-small}\n"
    route = RouteTable(policy(rest)).match(RequestView(model="penstock-small"))
    assert [candidate.id for candidate in route.select.resolved()] == ["small", "small-2"]
    assert route.select.policy == "least_in_flight"


def test_a_tenant_sees_the_names_it_may_use_and_no_others() -> None:
    table = RouteTable(policy(ROUTES))
    assert table.models_for("search") == ("auto", "penstock-small")
    assert table.models_for("support") == ("auto", "faq-bot", "penstock-large", "penstock-small", "small", "large")
    assert "faq-bot" not in table.models_for(None)


def test_the_effective_routes_end_with_the_implied_ones() -> None:
    ids = [route.id for route in RouteTable(policy(ROUTES)).effective_routes()]
    assert ids[:4] == ["trial", "support", "faq", "other-large"]
    assert set(ids[4:]) == {"implied-auto", "implied-direct"}
