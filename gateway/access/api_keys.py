"""API keys: from an Authorization header to the tenant it belongs to."""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b, sha256
from typing import Final

from gateway.access.stored_keys import StoredKeys
from gateway.errors import InvalidApiKey, InvalidRequest
from gateway.http.address import is_loopback_host
from routing_policies.policy.document import Policy

DEV_TENANT: Final = "dev"
MAX_KEY_BYTES: Final = 512

_SCHEME: Final = b"bearer "
_NO_KEY: Final = b"\0"
_ABSENT_DIGEST: Final = bytes(32)


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who is asking and what it may use; None means everything."""

    tenant: str
    models: frozenset[str] | None = None
    lanes: tuple[str, ...] | None = None
    cache_salt: bytes = field(init=False)
    """What an engine keeps the tenant's KV prefixes apart by: a digest, so that no upstream learns the name."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "cache_salt", _cache_salt(self.tenant))

    def may_use_model(self, name: str) -> bool:
        """Whether this caller may ask for `name`."""
        return self.models is None or name in self.models

    def lane(self, wanted: str | None, default: str) -> str:
        """The lane `wanted` clamped to what this caller may use; its first lane, else `default`, when it may not."""
        if self.lanes is None:
            return wanted or default
        return wanted if wanted in self.lanes else self.lanes[0]


class KeyRing:
    """The keys of one policy revision and of the store, by full SHA-256 only.

    Without any key, loopback clients are tenant `dev`.
    """

    __slots__ = ("_callers", "_dev", "_stored", "_tenants")

    def __init__(self, policy: Policy, stored: StoredKeys | None = None) -> None:
        """`stored` changes as keys are made and revoked; only keys of the policy's tenants count."""
        self._callers: dict[bytes, tuple[bytes, Caller]] = {}
        self._tenants: dict[str, Caller] = {}
        self._stored = stored
        self._dev = None if policy.has_keys else Caller(tenant=DEV_TENANT)
        for tenant in policy.tenants:
            caller = Caller(
                tenant=tenant.id,
                models=None if tenant.models is None else frozenset(tenant.models),
                lanes=tenant.lanes,
            )
            self._tenants[tenant.id] = caller
            for key in tenant.keys:
                digest = bytes.fromhex(key.sha256)
                self._callers[digest] = (digest, caller)

    def authenticate(self, authorization: Sequence[bytes], client_host: str | None) -> Caller:
        """The caller behind the header values; raises InvalidApiKey, or InvalidRequest when there are two headers.

        An absent, malformed or unknown key does the same work as a good one: one hash, one lookup, one comparison.
        """
        if len(authorization) > 1:
            raise InvalidRequest("There is more than one Authorization header. Send one.")
        if self._dev is not None and not self._stored and _is_loopback(client_host):
            return self._dev
        digest = sha256(_bearer(authorization)).digest()
        known, caller = self._callers.get(digest) or self._find_stored(digest)
        if not hmac.compare_digest(known, digest) or caller is None:
            raise InvalidApiKey
        return caller

    @property
    def is_open(self) -> bool:
        """Whether clients on this machine need no key."""
        return self._dev is not None and not self._stored

    def caller_of(self, tenant: str) -> Caller | None:
        """A tenant of this revision; None when it has none of that name."""
        return self._dev if self._dev is not None and tenant == DEV_TENANT else self._tenants.get(tenant)

    def _find_stored(self, digest: bytes) -> tuple[bytes, Caller | None]:
        tenant = self._stored.tenant_of(digest) if self._stored else None
        return (_ABSENT_DIGEST, None) if tenant is None else (digest, self._tenants.get(tenant))


def _cache_salt(tenant: str) -> bytes:
    """Equal on all workers, replicas and policy revisions, so that a cached prefix is found from any of them."""
    return blake2b(tenant.encode(), digest_size=16, person=b"penstock-salt").hexdigest().encode()


def _bearer(authorization: Sequence[bytes]) -> bytes:
    """The key, or a value that is no key; long and multi-line values never reach the hash as they are."""
    if not authorization:
        return _NO_KEY
    value = authorization[0]
    if len(value) > MAX_KEY_BYTES or value[: len(_SCHEME)].lower() != _SCHEME:
        return _NO_KEY
    return value[len(_SCHEME) :].strip() or _NO_KEY


def _is_loopback(client_host: str | None) -> bool:
    """A Unix socket's client has no address and is on this machine."""
    return not client_host or is_loopback_host(client_host)
