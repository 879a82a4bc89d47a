"""API keys of the policy and of the store, and the caller that each stands for."""

from __future__ import annotations

import heapq
import hmac
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b, sha256
from typing import Final, Literal

import msgspec

from gateway.access.key_requirement import KeyRequirement
from gateway.errors import InvalidApiKey, InvalidRequest
from gateway.http.address import is_loopback_host
from routing_policies.policy.document import KEYLESS_TENANT, Policy

PREFIX: Final = "key/"
KeyState = Literal["active", "expiring", "expired", "revoked"]


class StoredKey(msgspec.Struct, frozen=True, kw_only=True):
    """An API key in the store. It stays after its end, because later questions name its user."""

    tenant: str
    id: str
    sha256: str
    created_at: float
    created_by: str
    expires_at: float | None = None
    revoked_at: float | None = None
    revoked_by: str | None = None

    @property
    def name(self) -> str:
        """Return the key's name in the store."""
        return key_name(self.tenant, self.id)

    def state(self, now: float) -> KeyState:
        """Return the state of the key; `now` in seconds since 1970."""
        if self.revoked_at is not None:
            return "revoked"
        if self.expires_at is None:
            return "active"
        return "expired" if self.expires_at <= now else "expiring"


class StoredKeys:
    """All API keys of the store, from the directory. A lookup is one dictionary access; a hit also reads the clock."""

    def __init__(self, wall: Callable[[], float]) -> None:
        self._wall = wall
        self._by_name: dict[str, StoredKey] = {}
        self._by_digest: dict[bytes, StoredKey] = {}
        self._requirement: KeyRequirement | None = None
        self._is_exposed = False
        self.are_required = False
        """True if a request without a key is refused: by the operators' decision, else from the first key on."""

    def __len__(self) -> int:
        return len(self._by_name)

    @property
    def requirement(self) -> KeyRequirement | None:
        """The operators' decision; None until one was made."""
        return self._requirement

    @property
    def is_exposed(self) -> bool:
        """True if other machines reach the listeners, so the first key ends calls without one in any case."""
        return self._is_exposed

    def tenant_of(self, digest: bytes) -> str | None:
        """Return the tenant whose key has this sha256; None when no usable key has it."""
        key = self._by_digest.get(digest)
        if key is None or key.revoked_at is not None:
            return None
        return None if key.expires_at is not None and key.expires_at <= self._wall() else key.tenant

    def has_ended(self, digest: bytes) -> bool:
        """Return whether the key with this sha256 is revoked or expired."""
        key = self._by_digest.get(digest)
        return key is not None and not self.is_usable(key)

    def is_usable(self, key: StoredKey) -> bool:
        """Return whether a key is neither revoked nor expired."""
        return key.revoked_at is None and (key.expires_at is None or key.expires_at > self._wall())

    def get(self, tenant: str, id: str) -> StoredKey | None:
        """Return one key, whatever its state."""
        return self._by_name.get(key_name(tenant, id))

    def all(self, tenant: str | None = None) -> list[StoredKey]:
        """Return every key, of one tenant if it is named, newest first."""
        found = [key for key in self._by_name.values() if tenant in (None, key.tenant)]
        return heapq.nlargest(len(found), found, key=lambda key: key.created_at)

    def take(self, name: str, key: StoredKey | None) -> None:
        """Take the current state of one named key; None removes it."""
        before = self._by_name.pop(name, None)
        if before is not None:
            self._by_digest.pop(bytes.fromhex(before.sha256), None)
        if key is not None:
            self._by_name[name] = key
            self._by_digest[bytes.fromhex(key.sha256)] = key
        self._settle()

    def take_requirement(self, requirement: KeyRequirement | None) -> None:
        """Take the operators' decision."""
        self._requirement = requirement
        self._settle()

    def expose(self) -> None:
        """Note that other machines reach the listeners."""
        self._is_exposed = True
        self._settle()

    def _settle(self) -> None:
        if self._requirement is None or self._is_exposed:
            self.are_required = bool(self._by_name)
        else:
            self.are_required = self._requirement.is_required


def key_name(tenant: str, id: str) -> str:
    """Return a key's name in the store."""
    return f"{PREFIX}{tenant}/{id}"


DEV_TENANT: Final = KEYLESS_TENANT
MAX_KEY_BYTES: Final = 512

_SCHEME: Final = b"bearer "
_NO_KEY: Final = b"\0"
_ABSENT_DIGEST: Final = bytes(32)


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Tenant of a request with the models and lanes that it may use; None means all."""

    tenant: str
    models: frozenset[str] | None = None
    lanes: tuple[str, ...] | None = None
    cache_salt: bytes = field(init=False)
    """Digest by which an engine separates the tenants' KV prefixes, so no upstream learns a tenant's name."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "cache_salt", _cache_salt(self.tenant))

    def may_use_model(self, name: str) -> bool:
        """Return whether the caller may use the model `name`."""
        return self.models is None or name in self.models

    def lane(self, wanted: str | None, default: str) -> str:
        """Return the lane for a request.

        That is `wanted` when the caller may use it, else the caller's first lane; `default` when neither is set.
        """
        if self.lanes is None:
            return wanted or default
        return wanted if wanted in self.lanes else self.lanes[0]


class KeyRing:
    """Keys of one policy revision and of the store, held only as SHA-256 digests.

    While none is required, loopback clients without a key are tenant `dev`.
    """

    __slots__ = ("_callers", "_dev", "_stored", "_tenants")

    def __init__(self, policy: Policy, stored: StoredKeys | None = None) -> None:
        """Index the policy's keys.

        Args:
            policy: The policy revision in force.
            stored: Keys made at run time; read live, and only for tenants of the policy.
        """
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
        """Return the caller behind the values of the Authorization headers.

        An absent, malformed or unknown key costs the same as a valid one: one hash, one lookup, one comparison.
        Where no key is required, a valid one still identifies its tenant, so keys can be handed out first.

        Raises:
            InvalidApiKey: A key is required and no valid one was sent, or the key is revoked or expired.
            InvalidRequest: There is more than one header.
        """
        if len(authorization) > 1:
            raise InvalidRequest("There is more than one Authorization header. Send one.")
        stored, dev = self._stored, self._dev
        if dev is not None:
            if (stored is not None and stored.are_required) or not _is_loopback(client_host):
                dev = None
            elif not stored:
                return dev
        digest = sha256(_bearer(authorization)).digest()
        known, caller = self._callers.get(digest) or self._find_stored(digest)
        if hmac.compare_digest(known, digest) and caller is not None:
            return caller
        if dev is None or (stored is not None and stored.has_ended(digest)):
            raise InvalidApiKey
        return dev

    @property
    def is_open(self) -> bool:
        """True if clients on this machine need no key."""
        return self._dev is not None and not (self._stored is not None and self._stored.are_required)

    def caller_of(self, tenant: str) -> Caller | None:
        """Return the caller of a tenant of this revision, or None when there is no such tenant."""
        return self._dev if self._dev is not None and tenant == DEV_TENANT else self._tenants.get(tenant)

    def caller_with(self, digest: bytes) -> Caller | None:
        """Return the caller whose key has this sha256; None when no usable key has it."""
        return (self._callers.get(digest) or self._find_stored(digest))[1]

    def _find_stored(self, digest: bytes) -> tuple[bytes, Caller | None]:
        """Return the digest and the caller of a usable key; a key whose tenant this revision lacks is unknown."""
        tenant = self._stored.tenant_of(digest) if self._stored else None
        return (_ABSENT_DIGEST, None) if tenant is None else (digest, self._tenants.get(tenant))


def _cache_salt(tenant: str) -> bytes:
    """Return the tenant's salt, equal on all workers, replicas and revisions, so any of them finds a cached prefix."""
    return blake2b(tenant.encode(), digest_size=16, person=b"penstock-salt").hexdigest().encode()


def _bearer(authorization: Sequence[bytes]) -> bytes:
    """Return the key, or a value that is no key; overlong values never reach the hash."""
    if not authorization:
        return _NO_KEY
    value = authorization[0]
    if len(value) > MAX_KEY_BYTES or value[: len(_SCHEME)].lower() != _SCHEME:
        return _NO_KEY
    return value[len(_SCHEME) :].strip() or _NO_KEY


def _is_loopback(client_host: str | None) -> bool:
    """Return whether the client is on this machine; a Unix socket's client has no address."""
    return not client_host or is_loopback_host(client_host)
