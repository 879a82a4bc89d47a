"""Callers that reach more than their tenant."""

from __future__ import annotations

import msgspec
import pytest

from gateway.access.api_keys import StoredKey, StoredKeys
from gateway.access.caller_access import CallerAccess
from gateway.access.key_width import wide_callers, with_callers
from routing_policies.policy.deployment import Deployment
from routing_policies.policy.document import Lane, Policy, Tenant, TenantKey
from routing_policies.proof.prover import prove

NOW = 100.0
POLICY = Policy(
    schema_version=1,
    deployments=(Deployment(id="a", url="unix:/a", model="m"), Deployment(id="b", url="unix:/b", model="n")),
    lanes=(Lane(id="fast"), Lane(id="slow")),
    tenants=(
        Tenant(id="bank", keys=(TenantKey(id="k", sha256="ab" * 32),)),
        Tenant(id="shop", models=("m",)),
    ),
)
KEY = StoredKey(tenant="shop", id="web", sha256="ab" * 32, created_at=1.0, created_by="anna")


def stored(*keys: StoredKey) -> StoredKeys:
    found = StoredKeys(lambda: NOW)
    for key in keys:
        found.take(key.name, key)
    return found


def test_a_key_of_the_store_that_the_document_gives_to_another_tenant_is_wide() -> None:
    (found,) = wide_callers(POLICY, stored(KEY))
    assert (found.kind, found.path) == ("wide_key", ("tenants", 0, "keys"))
    assert "key web of tenant shop in the store is also written here" in found.message
    assert "may request auto, which shop may not" in found.message
    assert (found.requests[0].tenant, found.requests[0].model) == ("bank", "auto")


@pytest.mark.parametrize(
    "change", [{"tenant": "bank"}, {"sha256": "cd" * 32}, {"revoked_at": 2.0}, {"expires_at": NOW}], ids=repr
)
def test_a_key_of_its_own_tenant_or_without_use_is_not(change: dict[str, object]) -> None:
    assert [*wide_callers(POLICY, stored(msgspec.structs.replace(KEY, **change)))] == []


def test_without_a_key_a_caller_reaches_lanes_that_tenant_dev_may_not() -> None:
    dev = msgspec.structs.replace(POLICY, tenants=(Tenant(id="dev", lanes=("slow",)),))
    (found,) = wide_callers(dev)
    assert (found.path, found.requests[0].lane) == (("tenants", 0, "lanes"), "fast")
    assert "requests without a key are tenant dev, and reach lane fast" in found.message
    unlimited = msgspec.structs.replace(POLICY, tenants=(Tenant(id="dev"),))
    keyed = msgspec.structs.replace(POLICY, tenants=(*dev.tenants, *POLICY.tenants))
    assert [*wide_callers(unlimited), *wide_callers(keyed)] == []


def test_a_proof_with_callers_is_no_proof_of_keys() -> None:
    proof = with_callers(prove(POLICY), POLICY, stored(KEY))
    assert "wide_key" in prove(POLICY).proven
    assert "wide_key" not in proof.proven
    assert CallerAccess(stored(KEY), lambda: POLICY).with_callers(prove(POLICY), POLICY) == proof
