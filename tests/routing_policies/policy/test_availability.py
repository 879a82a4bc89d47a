"""Settings that would have no effect are refused."""

from __future__ import annotations

from routing_policies.policy.availability import unavailable
from tests.routing_policies.documents import TWO_DEPLOYMENTS, policy, problems_of


def test_a_budget_that_no_strategy_spends_is_refused() -> None:
    (reported,) = problems_of(
        TWO_DEPLOYMENTS + "routes: [{id: r, select: {candidates: [large]}, trim: {budget_tokens: 9}}]\n"
    )
    assert "routes[0].trim.budget_tokens: a budget without strategies would have no effect" in reported


def test_a_flag_that_nothing_reads_is_refused_and_the_known_one_is_not() -> None:
    assert list(unavailable(policy("tenants: [{id: a, flags: {canary: 10}}]\n"))) == []
    (reported,) = problems_of(TWO_DEPLOYMENTS + "tenants: [{id: a}, {id: b, flags: {canry: 1}}]\n")
    assert "tenants[1].flags.canry: no such feature; known: canary" in reported


def test_a_budget_with_strategies_is_available() -> None:
    trim = "trim: {budget_tokens: 9, strategies: [minify]}"
    assert list(unavailable(policy(f"routes: [{{id: r, select: {{candidates: [large]}}, {trim}}}]\n"))) == []
