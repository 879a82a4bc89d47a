"""API keys at the admin API: made, rotated and revoked while everything runs."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from datetime import UTC, datetime
from hashlib import sha256
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta
from starlette.responses import Response

from gateway.access.api_keys import StoredKey
from gateway.access.audit_log import AuditLog
from gateway.access.caller_access import CallerAccess
from gateway.access.directory import Directory
from gateway.admin.api.errors import Conflict
from gateway.admin.api.fields import Remark, RequestBody
from gateway.admin.api.request import AdminRequest, serves
from gateway.admin.handlers.key_requirement import KeyRequirementHandlers
from gateway.api.application import ApiResponse
from gateway.errors import InvalidRequest, NotFound
from routing_policies.policy.document import Policy
from routing_policies.policy.values import Id

PATH: Final = "/admin/api/keys"
KEY_PREFIX: Final = "sk-penstock-"
_MAX_S: Final = 315_360_000.0

Lifetime = Annotated[float, Meta(gt=0.0, le=_MAX_S)]
Overlap = Annotated[float, Meta(ge=0.0, le=_MAX_S)]


AfterLastKey = Literal["keyless", "nobody"]
"""Callers after the last usable key: programs on this machine without a key, or nobody until there is a new key."""


class _New(RequestBody, frozen=True, kw_only=True):
    tenant: Id
    id: Id | None = None
    expires_in_s: Lifetime | None = None
    required: bool | None = None
    """For the first key: whether calls without a key end at once; None means that they do."""


class _Rotate(RequestBody, frozen=True, kw_only=True):
    overlap_s: Overlap = 86_400.0


class _Revoke(RequestBody, frozen=True, kw_only=True):
    reason: Remark = ""
    then: AfterLastKey | None = None
    """Needed for the last usable key."""


class KeyHandlers:
    """`/admin/api/keys`. A key itself is in one answer and nowhere else; the store has its hash."""

    def __init__(
        self,
        directory: Directory,
        audit: AuditLog,
        access: CallerAccess,
        requirement: KeyRequirementHandlers,
        *,
        policy: Callable[[], Policy],
        wall: Callable[[], float],
    ) -> None:
        """Set up the handlers; `policy` is the one in force, because a key belongs to one of its tenants."""
        self._directory = directory
        self._audit = audit
        self._access = access
        self._requirement = requirement
        self._policy = policy
        self._wall = wall

    @serves(PATH)
    async def list(self, request: AdminRequest) -> Response:
        """List every key, those in the document included."""
        tenant = request.text("tenant")
        now, tenants = self._wall(), {item.id for item in self._policy().tenants}
        written = [
            _written(item.id, key.id, key.sha256)
            for item in self._policy().tenants
            for key in item.keys
            if tenant in (None, item.id)
        ]
        stored = [_shown(key, now, has_tenant=key.tenant in tenants) for key in self._directory.keys.all(tenant)]
        return ApiResponse({"keys": [*written, *stored], "access": self._access.state})

    @serves(PATH, "POST")
    async def create(self, request: AdminRequest) -> Response:
        """Create a key, shown this once."""
        form = request.fill(_New)
        self._require_tenant(form.tenant)
        id = form.id or self._free_id(form.tenant)
        if self._is_written(form.tenant, id) or self._directory.keys.get(form.tenant, id) is not None:
            raise Conflict(f"{form.tenant} already has a key {id}; choose another id.", code="key_exists")
        was_open = not self._access.is_required()
        if was_open and form.required is False:
            await self._requirement.set(request.who, is_required=False)
        made = await self._make(request, "key.create", form.tenant, id, form.expires_in_s)
        if was_open and form.required:
            await self._requirement.set(request.who, is_required=True)
        return ApiResponse({**made, "note": self._note() if was_open else None}, 201)

    @serves(f"{PATH}/{{tenant}}/{{id}}/rotate", "POST")
    async def rotate(self, request: AdminRequest) -> Response:
        """Create a new key of the same tenant; the old one works for a while longer."""
        old = self._stored(request)
        form = request.fill(_Rotate)
        now = self._wall()
        if old.state(now) in ("revoked", "expired"):
            raise Conflict(f"Key {old.id} is {old.state(now)}; make a new one.", code="key_over")
        ends_at = now + form.overlap_s
        if old.expires_at is not None:
            ends_at = min(ends_at, old.expires_at)
        made = await self._make(request, "key.rotate", old.tenant, self._free_id(old.tenant), None, replaces=old.id)
        await self._directory.put_key(msgspec.structs.replace(old, expires_at=ends_at), is_new=False)
        return ApiResponse({**made, "note": None}, 201)

    @serves(f"{PATH}/{{tenant}}/{{id}}/revoke", "POST")
    async def revoke(self, request: AdminRequest) -> Response:
        """Revoke a key: within a second no replica accepts it."""
        old = self._stored(request)
        form = request.fill(_Revoke)
        if old.revoked_at is None:
            await self._settle_callers(request, old, form.then)
            await self._audit.record(request.who, "key.revoke", f"{old.tenant}/{old.id}", reason=form.reason)
            revoked = msgspec.structs.replace(old, revoked_at=self._wall(), revoked_by=request.who.name)
            await self._directory.put_key(revoked, is_new=False)
        return ApiResponse({"tenant": old.tenant, "id": old.id, "state": "revoked"})

    async def _make(
        self,
        request: AdminRequest,
        action: str,
        tenant: str,
        id: str,
        lifetime_s: float | None,
        *,
        replaces: str | None = None,
    ) -> dict[str, Any]:
        """Create a key; return what is shown of it, this once."""
        secret, now = KEY_PREFIX + secrets.token_urlsafe(32), self._wall()
        key = StoredKey(
            tenant=tenant,
            id=id,
            sha256=sha256(secret.encode()).hexdigest(),
            created_at=now,
            created_by=request.who.name,
            expires_at=None if lifetime_s is None else now + lifetime_s,
        )
        detail = {"expires_at": key.expires_at, **({"replaces": replaces} if replaces else {})}
        line = await self._audit.record(request.who, action, f"{tenant}/{id}", detail=detail)
        if not await self._directory.put_key(key, is_new=True):
            await self._audit.withdraw(request.who, line, action, f"{tenant}/{id}")
            raise Conflict(f"{tenant} already has a key {id}; choose another id.", code="key_exists")
        return {"key": secret, "tenant": tenant, "id": id, "expires_at": key.expires_at}

    async def _settle_callers(self, request: AdminRequest, key: StoredKey, then: AfterLastKey | None) -> None:
        """Settle who may call after the last usable key. Raises Conflict where the caller did not say."""
        access = self._access
        if not access.is_required() or not access.num_usable() or access.num_usable(without=key):
            return
        if then is None:
            raise Conflict(
                f"Nothing was changed: {key.id} is the last usable key, and without it nobody could call. Make another "
                'key first, or send "then": "keyless" (programs on this machine call without a key) or "nobody".',
                code="last_key",
            )
        if then == "keyless":
            await self._requirement.set(request.who, is_required=False, reason=f"{key.id} was the last key")

    def _note(self) -> str:
        if self._access.is_required():
            return "From now on every request needs a key; until now none did on this machine."
        return "Programs on this machine may still call without a key, until keys are required."

    def _stored(self, request: AdminRequest) -> StoredKey:
        tenant, id = request.path_params["tenant"], request.path_params["id"]
        found = self._directory.keys.get(tenant, id)
        if found is None:
            if self._is_written(tenant, id):
                message = f"Key {id} of {tenant} is written in the policy document; change it there."
                raise Conflict(message, code="key_in_document")
            raise NotFound("There is no such key. GET /admin/api/keys lists them.")
        return found

    def _require_tenant(self, tenant: str) -> None:
        known = [item.id for item in self._policy().tenants]
        if tenant not in known:
            listed = ", ".join(known) or "none"
            message = f"tenant: the policy in force has no tenant {tenant} (it has: {listed}). Add it there first."
            raise InvalidRequest(message, param="tenant")

    def _is_written(self, tenant: str, id: str) -> bool:
        return any(key.id == id for item in self._policy().tenants if item.id == tenant for key in item.keys)

    def _free_id(self, tenant: str) -> str:
        today = f"key-{datetime.fromtimestamp(self._wall(), UTC):%Y-%m-%d}"
        taken = {key.id for key in self._directory.keys.all(tenant)}
        names = [today, *(f"{today}-{number}" for number in range(2, len(taken) + 3))]
        return next(name for name in names if name not in taken and not self._is_written(tenant, name))


def _written(tenant: str, id: str, digest: str) -> dict[str, Any]:
    nothing = dict.fromkeys(("created_at", "created_by", "expires_at", "revoked_at", "revoked_by"))
    known = {"tenant": tenant, "id": id, "source": "document", "state": "active", "has_tenant": True}
    return {**known, "sha256_start": digest[:8], **nothing}


def _shown(key: StoredKey, now: float, *, has_tenant: bool) -> dict[str, Any]:
    """Return a key of the store; without a tenant in the policy in force it identifies nobody."""
    fields = msgspec.to_builtins(key)
    digest = fields.pop("sha256")
    state = {"source": "store", "state": key.state(now), "has_tenant": has_tenant}
    return {**fields, **state, "sha256_start": digest[:8]}
