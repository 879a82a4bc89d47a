"""CallerAccess: who may call, and whether a change would leave nobody."""

from __future__ import annotations

from hashlib import sha256

import msgspec
import pytest

from gateway.access.api_keys import StoredKey, StoredKeys
from gateway.access.caller_access import CallerAccess
from gateway.access.key_requirement import KeyRequirement
from routing_policies.policy.deployment import Deployment
from routing_policies.policy.document import Policy, Tenant, TenantKey

NOW = 100.0
KEY = StoredKey(tenant="shop", id="web", sha256=sha256(b"a").hexdigest(), created_at=1.0, created_by="anna")
NOBODY = Policy(schema_version=1, deployments=(Deployment(id="a", url="unix:/a", model="m"),))
SHOP = msgspec.structs.replace(NOBODY, tenants=(Tenant(id="shop"),))
WRITTEN = msgspec.structs.replace(NOBODY, tenants=(Tenant(id="bank", keys=(TenantKey(id="k", sha256="0" * 64),)),))


def access(policy: Policy, *keys: StoredKey, required: bool | None = None) -> CallerAccess:
    stored = StoredKeys(lambda: NOW)
    for key in keys:
        stored.take(key.name, key)
    if required is not None:
        stored.take_requirement(KeyRequirement(is_required=required, number=1, changed_at=1.0, changed_by="anna"))
    return CallerAccess(stored, lambda: policy)


def test_without_keys_none_is_required_and_from_the_first_one_on_it_is_unless_decided_otherwise() -> None:
    assert not access(SHOP).is_required()
    assert access(SHOP, KEY).is_required()
    assert not access(SHOP, KEY, required=False).is_required()
    assert access(WRITTEN, required=False).is_required()


@pytest.mark.parametrize(
    ("change", "num"),
    [
        ({}, 1),
        ({"revoked_at": 2.0}, 0),
        ({"expires_at": NOW}, 0),
        ({"expires_at": NOW + 1}, 1),
        ({"tenant": "gone"}, 0),
    ],
)
def test_a_key_counts_while_a_caller_can_use_it(change: dict[str, object], num: int) -> None:
    assert access(SHOP, msgspec.structs.replace(KEY, **change)).num_usable() == num


def test_a_policy_without_the_tenants_of_the_keys_locks_out_only_where_keys_are_required() -> None:
    assert access(SHOP, KEY).locks_out(NOBODY)
    assert not access(SHOP, KEY).locks_out(SHOP)
    assert not access(SHOP, KEY).locks_out(WRITTEN)
    assert not access(SHOP, KEY, required=False).locks_out(NOBODY)


def test_nobody_is_locked_out_who_is_outside_already() -> None:
    assert not access(NOBODY, KEY).locks_out(NOBODY)


def test_listeners_that_other_machines_reach_require_keys_whatever_was_decided() -> None:
    found = access(SHOP, KEY, required=False)
    found._keys.expose()
    assert found.is_required()
    assert found.state.why_required == "other machines reach this gateway's listeners"
