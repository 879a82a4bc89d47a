"""Accounts: admins and their API tokens, in memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from gateway.access.identity import Identity, Role, RoleName

ADMIN_PREFIX: Final = "admin/"
TOKEN_PREFIX: Final = "token/"


class Admin(msgspec.Struct, frozen=True, kw_only=True):
    """A person who may log in to the admin page and API."""

    name: str
    role: RoleName
    created_at: float
    created_by: str
    password_hash: str | None = None
    """Hash by argon2id, with its parameters; None without a password."""
    oidc_subject: str | None = None
    """Identity at the identity provider, as `issuer subject`."""
    epoch: int = 0
    """Counter of changes to password and role; sessions of an earlier epoch are invalid."""
    deleted_at: float | None = None
    """Time of deletion. The record stays without credentials, so an older state of it cannot restore the login."""

    def deleted(self, now: float) -> Admin:
        """Return the record as deleted, without any credential."""
        return msgspec.structs.replace(
            self, deleted_at=now, password_hash=None, oidc_subject=None, epoch=self.epoch + 1
        )


class ApiToken(msgspec.Struct, frozen=True, kw_only=True):
    """An API token; its rights never exceed those of its admin."""

    id: str
    admin: str
    role: RoleName
    sha256: str
    created_at: float
    created_by: str
    expires_at: float | None = None
    deleted_at: float | None = None

    def deleted(self, now: float) -> ApiToken:
        """Return the record as deleted and expired."""
        ends_at = now if self.expires_at is None else min(now, self.expires_at)
        return msgspec.structs.replace(self, deleted_at=now, expires_at=ends_at)


class Accounts:
    """Admins by name and tokens by hash, deleted ones excluded."""

    def __init__(self, wall: Callable[[], float]) -> None:
        self._wall = wall
        self._admins: dict[str, Admin] = {}
        self._tokens: dict[str, ApiToken] = {}

    @property
    def has_admins(self) -> bool:
        """True if any admin exists."""
        return bool(self._admins)

    def admin(self, name: str) -> Admin | None:
        """Return the admin of this name, or None."""
        return self._admins.get(name)

    def admins(self) -> list[Admin]:
        """Return all admins by name."""
        return [self._admins[name] for name in sorted(self._admins)]

    def tokens(self) -> list[ApiToken]:
        """Return all tokens, oldest first."""
        return sorted(self._tokens.values(), key=lambda token: token.created_at)

    def by_subject(self, subject: str) -> Admin | None:
        """Return the admin with this subject (`issuer subject`) at the identity provider, or None."""
        return next((admin for admin in self._admins.values() if admin.oidc_subject == subject), None)

    def identify_token(self, digest: str) -> Identity | None:
        """Return the identity behind a token, or None when it is unknown or expired.

        Args:
            digest: The token's SHA-256, in hex.
        """
        token = self._tokens.get(digest)
        if token is None or (token.expires_at is not None and token.expires_at <= self._wall()):
            return None
        owner = self._admins.get(token.admin)
        if owner is None:
            return None
        role = min(Role.of(token.role), Role.of(owner.role))
        return Identity(name=owner.name, role=role, mode="token")

    def take_admin(self, name: str, admin: Admin | None) -> None:
        """Replace the admin of this name; None or a deleted record removes it."""
        self._admins.pop(name, None)
        if admin is not None and admin.deleted_at is None:
            self._admins[name] = admin

    def take_token(self, digest: str, token: ApiToken | None) -> None:
        """Replace the token with this SHA-256; None or a deleted record removes it."""
        self._tokens.pop(digest, None)
        if token is not None and token.deleted_at is None:
            self._tokens[digest] = token
