"""What tokens cost under a policy, and what they would have cost at the dearest candidate."""

from __future__ import annotations

import pytest

from gateway.telemetry.records.record import Usage
from gateway.telemetry.records.worth import Worth, worth_of
from routing_policies.loading import load_policy
from routing_policies.policy.document import Policy

USAGE = Usage(1_000_000, 500_000)


def policy(small: str = "", large: str = "") -> Policy:
    return load_policy(
        f"""schema_version: 1
deployments:
  - {{id: small, url: 'http://s', model: s{small}}}
  - {{id: large, url: 'http://l', model: l{large}}}
  - {{id: free, url: 'http://f', model: f}}
routes: [{{id: main, match: {{models: [auto]}}, select: {{candidates: [small, large, free]}}}}]
""",
        source="policy",
    )


PRICED = policy(", cost_per_mtok: {prompt: 1, completion: 2}", ", cost_per_mtok: {prompt: 3, completion: 9}")


def test_a_policy_without_prices_has_no_worth() -> None:
    assert worth_of(policy()) is None
    assert worth_of(PRICED) is not None


def test_cost_is_by_million_tokens_and_unknown_without_a_price() -> None:
    worth = Worth(PRICED)
    assert worth.cost("small", USAGE) == pytest.approx(1 + 2 / 2)
    assert worth.cost("free", USAGE) is None
    assert worth.cost("cache", USAGE) is None


def test_the_dearest_is_that_of_the_route_and_nothing_where_none_is_known() -> None:
    worth = Worth(PRICED)
    assert worth.dearest("main", USAGE) == pytest.approx(3 + 9 / 2)
    assert worth.dearest("gone", USAGE) == 0.0
