"""Admins and API tokens at the admin API."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from hashlib import sha256
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta
from starlette.responses import Response

from gateway.access.accounts import Admin, ApiToken
from gateway.access.audit_log import AuditLog
from gateway.access.directory import Directory
from gateway.access.identity import Role, RoleName
from gateway.access.sign_in.passwords import MAX_PASSWORD_CHARS, MIN_PASSWORD_CHARS, Passwords
from gateway.admin.api.errors import Conflict, RoleTooLow
from gateway.admin.api.fields import Name, RequestBody, Seconds
from gateway.admin.api.request import AdminRequest, serves
from gateway.api.application import ApiResponse
from gateway.errors import InvalidRequest, NotFound

ADMINS: Final = "/admin/api/admins"
TOKENS: Final = "/admin/api/tokens"
TOKEN_PREFIX: Final = "pat-penstock-"

Password = Annotated[str, Meta(min_length=MIN_PASSWORD_CHARS, max_length=MAX_PASSWORD_CHARS)]
Subject = Annotated[str, Meta(min_length=1, max_length=512)]


class _NewAdmin(RequestBody, frozen=True, kw_only=True):
    name: Name
    role: RoleName = "viewer"
    password: Password | None = None
    oidc_subject: Subject | None = None


class _ChangedAdmin(RequestBody, frozen=True, kw_only=True):
    role: RoleName | None = None
    password: Password | None = None


class _NewToken(RequestBody, frozen=True, kw_only=True):
    name: Name
    role: RoleName | None = None
    expires_in_s: Seconds | None = None


class AccountHandlers:
    """`/admin/api/admins` and `/admin/api/tokens`."""

    def __init__(
        self, directory: Directory, passwords: Passwords, audit: AuditLog, *, wall: Callable[[], float]
    ) -> None:
        self._directory = directory
        self._accounts = directory.accounts
        self._passwords = passwords
        self._audit = audit
        self._wall = wall

    @serves(ADMINS, role=Role.ADMIN)
    async def list(self, request: AdminRequest) -> Response:
        """List the admins."""
        return ApiResponse({"admins": [_shown(admin) for admin in self._accounts.admins()]})

    @serves(ADMINS, "POST", role=Role.ADMIN)
    async def create(self, request: AdminRequest) -> Response:
        """Create an admin."""
        form = request.fill(_NewAdmin)
        if form.password is None and form.oidc_subject is None:
            raise InvalidRequest("password: an admin needs a password, or an oidc_subject.", param="password")
        if not self._accounts.has_admins and form.role != "admin":
            raise InvalidRequest("role: the first admin needs the role admin.", param="role")
        if self._accounts.admin(form.name) is not None:
            raise _taken(form.name)
        hashed = None if form.password is None else await self._passwords.hash(form.password)
        admin = Admin(
            name=form.name,
            role=form.role,
            created_at=self._wall(),
            created_by=request.who.name,
            password_hash=hashed,
            oidc_subject=form.oidc_subject,
            epoch=secrets.randbits(48),  # a namesake that was deleted has sessions with another one
        )
        async with self._audit.announced(request.who, "admin.create", form.name, detail={"role": form.role}) as line:
            is_made = await self._directory.put_admin(admin, is_new=True)
        if not is_made:
            await self._audit.withdraw(request.who, line, "admin.create", form.name)
            raise _taken(form.name)
        return ApiResponse(_shown(admin), 201)

    @serves(f"{ADMINS}/{{name}}", "POST", role=Role.VIEWER)
    async def change(self, request: AdminRequest) -> Response:
        """Change an admin's role or password; all admins may change their own password."""
        form = request.fill(_ChangedAdmin)
        admin = self._admin(request.path_params["name"])
        if request.who.role < Role.ADMIN and (form.role is not None or request.who.name != admin.name):
            raise RoleTooLow("This needs the role admin; you may change your own password.")
        if form.role is not None and form.role != "admin":
            self._require_another(admin)
        detail = {"role": form.role, "password": form.password is not None}
        hashed = admin.password_hash if form.password is None else await self._passwords.hash(form.password)
        changed = msgspec.structs.replace(
            admin, role=form.role or admin.role, password_hash=hashed, epoch=admin.epoch + 1
        )
        async with self._audit.announced(request.who, "admin.change", admin.name, detail=detail):
            await self._directory.put_admin(changed, is_new=False)
        return ApiResponse(_shown(changed))

    @serves(f"{ADMINS}/{{name}}", "DELETE", role=Role.ADMIN)
    async def delete(self, request: AdminRequest) -> Response:
        """Delete an admin, and end all sessions and tokens of that admin."""
        admin = self._admin(request.path_params["name"])
        self._require_another(admin)
        await self._audit.record(request.who, "admin.delete", admin.name)
        for token in self._accounts.tokens():
            if token.admin == admin.name:
                await self._directory.delete_token(token)
        await self._directory.delete_admin(admin)
        return ApiResponse({})

    @serves(TOKENS)
    async def tokens(self, request: AdminRequest) -> Response:
        """List one's own tokens; the role admin sees all of them."""
        listed = [token for token in self._accounts.tokens() if _may(request, token.admin)]
        return ApiResponse({"tokens": [_shown_token(token) for token in listed]})

    @serves(TOKENS, "POST", role=Role.VIEWER)
    async def create_token(self, request: AdminRequest) -> Response:
        """Create a token of the caller, shown this once; its role is the caller's or a lower one."""
        form = request.fill(_NewToken)
        owner = self._accounts.admin(request.who.name)
        if owner is None:
            message = "Tokens belong to admins: make one with penstock admin create, and log in as that."
            raise Conflict(message, code="no_admin")
        role = min(Role.of(form.role), request.who.role) if form.role else request.who.role
        secret, now = TOKEN_PREFIX + secrets.token_urlsafe(32), self._wall()
        token = ApiToken(
            id=f"{form.name}-{secrets.token_hex(3)}",
            admin=owner.name,
            role=role.label,
            sha256=sha256(secret.encode()).hexdigest(),
            created_at=now,
            created_by=request.who.name,
            expires_at=None if form.expires_in_s is None else now + form.expires_in_s,
        )
        async with self._audit.announced(request.who, "token.create", token.id, detail={"role": token.role}):
            await self._directory.put_token(token)
        return ApiResponse({"token": secret, **_shown_token(token)}, 201)

    @serves(f"{TOKENS}/{{id}}", "DELETE", role=Role.VIEWER)
    async def delete_token(self, request: AdminRequest) -> Response:
        """Revoke a token, which is then refused everywhere."""
        id = request.path_params["id"]
        found = next(
            (token for token in self._accounts.tokens() if token.id == id and _may(request, token.admin)), None
        )
        if found is None:
            raise NotFound("There is no such token of yours.")
        async with self._audit.announced(request.who, "token.delete", id):
            await self._directory.delete_token(found)
        return ApiResponse({})

    def _admin(self, name: str) -> Admin:
        found = self._accounts.admin(name)
        if found is None:
            raise NotFound("There is no such admin.")
        return found

    def _require_another(self, admin: Admin) -> None:
        if admin.role == "admin" and not any(
            other.role == "admin" and other.name != admin.name for other in self._accounts.admins()
        ):
            raise Conflict(f"{admin.name} is the last one with the role admin.", code="last_admin")


def _taken(name: str) -> Conflict:
    return Conflict(f"There is an admin {name} already.", code="admin_exists")


def _may(request: AdminRequest, owner: str) -> bool:
    return request.who.role is Role.ADMIN or request.who.name == owner


def _shown(admin: Admin) -> dict[str, Any]:
    return {
        "name": admin.name,
        "role": admin.role,
        "created_at": admin.created_at,
        "created_by": admin.created_by,
        "has_password": admin.password_hash is not None,
        "oidc_subject": admin.oidc_subject,
    }


def _shown_token(token: ApiToken) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.to_builtins(token)
    del fields["sha256"]
    return fields
