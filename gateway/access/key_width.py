"""Callers that reach more than their tenant: what the proof of a policy cannot see in the document alone."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from gateway.access.api_keys import DEV_TENANT, Caller, KeyRing, StoredKey, StoredKeys
from routing_policies.policy.document import Policy, Tenant
from routing_policies.policy.policy_tests import TestRequest
from routing_policies.policy.references import known_models
from routing_policies.proof.findings import Proof, Violation


def with_callers(proof: Proof, policy: Policy, stored: StoredKeys | None = None) -> Proof:
    """Return the proof with the violations of the policy's callers; `stored` are the keys of the store."""
    found = tuple(wide_callers(policy, stored))
    return msgspec.structs.replace(proof, violations=(*proof.violations, *found)) if found else proof


def wide_callers(policy: Policy, stored: StoredKeys | None = None) -> Iterator[Violation]:
    """Yield the keys of the store that stand for another tenant, and callers without a key beyond tenant `dev`."""
    ring = KeyRing(policy, stored)
    for key in stored.all() if stored is not None else ():
        if stored is not None and stored.is_usable(key):
            yield from _of_another(policy, ring, key)
    yield from _keyless(policy, ring)


def _of_another(policy: Policy, ring: KeyRing, key: StoredKey) -> Iterator[Violation]:
    caller = ring.caller_with(bytes.fromhex(key.sha256))
    if caller is None or caller.tenant == key.tenant:
        return
    own = ring.caller_of(key.tenant)
    more = [name for name in known_models(policy) if caller.may_use_model(name) and not _may_use(own, name)]
    index = next(index for index, tenant in enumerate(policy.tenants) if tenant.id == caller.tenant)
    reaches = f"may request {more[0]}, which {key.tenant} may not" if more else "spends its quotas and reads its cache"
    message = (
        f"key {key.id} of tenant {key.tenant} in the store is also written here, so whoever holds it is tenant "
        f"{caller.tenant} and {reaches}"
    )
    request = TestRequest(model=more[0] if more else "auto", tenant=caller.tenant)
    yield Violation(kind="wide_key", path=("tenants", index, "keys"), message=message, requests=(request,))


def _may_use(caller: Caller | None, model: str) -> bool:
    return caller is not None and caller.may_use_model(model)


def _keyless(policy: Policy, ring: KeyRing) -> Iterator[Violation]:
    """Yield callers without a key, who are tenant `dev`, where they may use lanes that the document denies it."""
    written = next(((place, one) for place, one in enumerate(policy.tenants) if one.id == DEV_TENANT), None)
    caller = ring.caller_of(DEV_TENANT)
    if written is None or caller is None or not ring.is_open:
        return
    index, tenant = written
    other = next((lane.id for lane in policy.lanes if caller.lane(lane.id, "") != _own(tenant, lane.id)), None)
    if other is not None:
        message = (
            f"requests without a key are tenant {DEV_TENANT}, and reach lane {other}, which the tenant's `lanes` leave "
            "out; give a tenant a key, or require keys"
        )
        request = TestRequest(tenant=DEV_TENANT, lane=other)
        yield Violation(kind="wide_key", path=("tenants", index, "lanes"), message=message, requests=(request,))


def _own(tenant: Tenant, lane: str) -> str:
    return Caller(tenant=tenant.id, lanes=tenant.lanes).lane(lane, "")
