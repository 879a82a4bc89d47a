"""The settings that belong together, and values that cannot be changed."""

from __future__ import annotations

import pytest

from routing_policies.policy.deployment import Deployment
from routing_policies.policy.document import Lane, Policy, Tenant, TenantKey, Timeouts
from tests.routing_policies.documents import policy


def test_a_stage_cannot_take_longer_than_the_whole() -> None:
    assert Timeouts(total_ms=30_000).first_token_ms == 30_000
    with pytest.raises(ValueError, match=r"first_token_ms \(30000\) is longer than total_ms \(29999\)"):
        Timeouts(total_ms=29_999)


def test_the_limit_of_a_lane_and_the_lane_for_longer_prompts_belong_together() -> None:
    for given in ({"max_prompt_tokens": 9}, {"longer": "b"}):
        with pytest.raises(ValueError, match="belong together"):
            Lane(id="a", **given)


@pytest.mark.parametrize(
    ("lane", "priority"),
    [
        (Lane(id="chat"), "interactive"),
        (Lane(id="batch"), "batch"),
        (Lane(id="batch", priority="interactive"), "interactive"),
        (Lane(id="night", priority="batch"), "batch"),
    ],
)
def test_the_lane_named_batch_is_batch_by_default(lane: Lane, priority: str) -> None:
    assert lane.engine_priority == priority


def test_a_policy_has_keys_when_any_tenant_has_one() -> None:
    tenants = (Tenant(id="a"), Tenant(id="b", keys=(TenantKey(id="k", sha256="0" * 64),)))
    here = (Deployment(id="d", url="http://d", model="m"),)
    assert not Policy(schema_version=1, deployments=here, tenants=tenants[:1]).has_keys
    assert Policy(schema_version=1, deployments=here, tenants=tenants).has_keys


def test_a_policy_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        policy().schema_version = 1  # type: ignore[misc]
