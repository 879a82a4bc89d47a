"""KeyRing: from a header to a tenant."""

from __future__ import annotations

import contextlib
from hashlib import sha256

import pytest

from gateway.access.api_keys import Caller, KeyRing
from gateway.errors import InvalidApiKey, InvalidRequest
from routing_policies.policy.deployment import Deployment
from routing_policies.policy.document import Policy, Tenant, TenantKey

KEY = b"sk-penstock-good"


def policy(*tenants: Tenant) -> Policy:
    return Policy(schema_version=1, deployments=(Deployment(id="a", url="unix:/a", model="m"),), tenants=tenants)


def ring() -> KeyRing:
    key = TenantKey(id="k", sha256=sha256(KEY).hexdigest())
    return KeyRing(policy(Tenant(id="support", keys=(key,), models=("auto",), lanes=("batch", "interactive"))))


def test_a_good_key_is_its_tenant() -> None:
    caller = ring().authenticate([b"Bearer " + KEY], "10.0.0.1")

    assert caller == Caller(tenant="support", models=frozenset({"auto"}), lanes=("batch", "interactive"))


def test_tenants_have_different_cache_salts_that_never_change_nor_name_them() -> None:
    salt = Caller(tenant="support").cache_salt
    assert salt == Caller(tenant="support", lanes=("batch",)).cache_salt
    assert salt != Caller(tenant="sales").cache_salt
    assert len(salt) == 32
    assert b"support" not in salt


@pytest.mark.parametrize("scheme", [b"bearer ", b"BEARER ", b"Bearer   "])
def test_the_scheme_may_be_spelled_in_any_case(scheme: bytes) -> None:
    assert ring().authenticate([scheme + KEY], None).tenant == "support"


BAD = [
    *([], [b""], [b"Bearer"], [b"Bearer "], [KEY], [b"Basic " + KEY], [b"Bearer " + KEY[:-1]]),
    *(
        [b"Bearer " + b"k" * 9999],
        [b"Bearer " + KEY + b"\r\nx: y"],
        [b"Bearer " + KEY + b"\0"],
        [b"Bearer ' OR '1'='1"],
    ),
]


@pytest.mark.parametrize("values", BAD)
def test_anything_else_is_refused_in_the_same_words(values: list[bytes]) -> None:
    with pytest.raises(InvalidApiKey) as caught:
        ring().authenticate(values, "127.0.0.1")

    assert caught.value.message == InvalidApiKey().message


def test_every_refusal_does_the_same_work(monkeypatch: pytest.MonkeyPatch) -> None:
    hashed: list[bytes] = []

    def counted(data: bytes) -> object:
        hashed.append(data)
        return sha256(data)

    monkeypatch.setattr("gateway.access.api_keys.sha256", counted)
    keys = ring()
    for values in ([], [b"nonsense"], [b"Bearer wrong"], [b"Bearer " + KEY]):
        hashed.clear()
        with contextlib.suppress(InvalidApiKey):
            keys.authenticate(values, "10.0.0.1")
        assert len(hashed) == 1


def test_two_headers_are_a_bad_request() -> None:
    with pytest.raises(InvalidRequest):
        ring().authenticate([b"Bearer " + KEY, b"Bearer x"], "127.0.0.1")


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", None, ""])
def test_without_any_key_this_machine_is_the_tenant_dev(host: str | None) -> None:
    assert KeyRing(policy()).authenticate([b"Bearer anything"], host) == Caller(tenant="dev")


@pytest.mark.parametrize("host", ["10.0.0.1", "::2", "example.org"])
def test_without_any_key_other_machines_are_refused(host: str) -> None:
    with pytest.raises(InvalidApiKey):
        KeyRing(policy()).authenticate([], host)


def test_the_lane_is_clamped_to_the_callers_own() -> None:
    limited = Caller(tenant="t", lanes=("batch",))

    assert limited.lane("interactive", "interactive") == "batch"
    assert limited.lane(None, "interactive") == "batch"
    assert Caller(tenant="t").lane("interactive", "batch") == "interactive"
    assert Caller(tenant="t").lane(None, "batch") == "batch"


def test_models_are_limited_only_when_listed() -> None:
    assert Caller(tenant="t").may_use_model("anything")
    assert not Caller(tenant="t", models=frozenset({"auto"})).may_use_model("big")
