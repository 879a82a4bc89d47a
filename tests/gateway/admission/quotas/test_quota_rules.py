"""A tenant's limits as meters, and the price of its tokens."""

from __future__ import annotations

import pytest

from gateway.admission.quotas.lease import NANO, Unit
from gateway.admission.quotas.quota_rules import QuotaLimit, Tariff, rules_of
from gateway.store.meter import Meter, Period
from routing_policies.policy.deployment import Deployment
from routing_policies.policy.document import TenantLimits
from tests.gateway.admission.shared_meters import limited


def limits(text: str) -> TenantLimits:
    return limited(text, prices="{prompt: 1, completion: 1}").tenants[0].limits


def test_a_tenant_without_a_limit_has_no_rules() -> None:
    assert rules_of(limits("{}")) is None
    assert rules_of(limits("{max_in_flight: 3}")) is not None


def test_each_limit_becomes_a_meter_of_its_period_and_unit() -> None:
    rules = rules_of(limits("{requests_per_min: 5, budget: {tokens_per_day: 100, cost_per_month: 2.5}}"))
    assert rules is not None
    assert rules.allowances == (
        QuotaLimit(Meter("requests_per_min", Period.MINUTE, 5), Unit.REQUEST),
        QuotaLimit(Meter("tokens_per_day", Period.DAY, 100), Unit.TOKEN),
        QuotaLimit(Meter("cost_per_month", Period.MONTH, 5 * NANO // 2), Unit.NANO),
    )
    assert [limit.is_budget for limit in rules.allowances] == [False, True, True]


def test_a_budget_may_refuse_without_the_store_where_the_rest_goes_on() -> None:
    rules = rules_of(
        limits("{requests_per_min: 5, max_in_flight: 2, budget: {tokens_per_day: 9, on_store_loss: refuse}}")
    )
    assert rules is not None
    assert [limit.on_loss for limit in rules.allowances] == ["allow", "refuse"]
    assert rules.on_loss == "allow"


def deployment(name: str, prompt: float | None = None, completion: float = 0.0) -> Deployment:
    price = "" if prompt is None else f"{{prompt: {prompt}, completion: {completion}}}"
    policy = limited("{}", prices=price)
    return Deployment(id=name, url="unix:/s", model="m", cost_per_mtok=policy.deployments[0].cost_per_mtok)


def test_a_request_costs_what_the_dearest_candidate_would_take() -> None:
    tariff = Tariff([deployment("reads", 10.0, 1.0), deployment("writes", 1.0, 10.0), deployment("free")])
    both = ("reads", "writes", "free")
    assert tariff.nano(both, 1000, 10) == tariff.nano(["reads"], 1000, 10) == 1000 * 10_000 + 10 * 1_000
    assert tariff.nano(both, 10, 1000) == tariff.nano(["writes"], 10, 1000)


@pytest.mark.parametrize("names", [("free",), ("unknown",), ()])
def test_without_a_price_nothing_is_charged(names: tuple[str, ...]) -> None:
    assert Tariff([deployment("free")]).nano(names, 10**6, 10**6) == 0
