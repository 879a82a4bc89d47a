"""Accounts: the admins and their API tokens, as the directory knows them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from gateway.access.identity import Identity, Role, RoleName

ADMIN_PREFIX: Final = "admin/"
TOKEN_PREFIX: Final = "token/"


class Admin(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody who may log in."""

    name: str
    role: RoleName
    created_at: float
    created_by: str
    password_hash: str | None = None
    """argon2id, with its parameters."""
    oidc_subject: str | None = None
    """`issuer subject`: who the identity provider says this is."""
    epoch: int = 0
    """Sessions of an earlier one are over: it counts up when the password or the role changes."""
    deleted_at: float | None = None
    """What is left of one who was deleted: nothing to log in with, and the knowledge that nobody does any more."""

    def deleted(self, now: float) -> Admin:
        """The same once nobody may log in as it."""
        return msgspec.structs.replace(
            self, deleted_at=now, password_hash=None, oidc_subject=None, epoch=self.epoch + 1
        )


class ApiToken(msgspec.Struct, frozen=True, kw_only=True):
    """An API token; never has more rights than the admin it belongs to."""

    id: str
    admin: str
    role: RoleName
    sha256: str
    created_at: float
    created_by: str
    expires_at: float | None = None
    deleted_at: float | None = None

    def deleted(self, now: float) -> ApiToken:
        """The same once it is good for nothing."""
        ends_at = now if self.expires_at is None else min(now, self.expires_at)
        return msgspec.structs.replace(self, deleted_at=now, expires_at=ends_at)


class Accounts:
    """Lookups by name and by the hash of a token, of those who were not deleted."""

    def __init__(self, wall: Callable[[], float]) -> None:
        self._wall = wall
        self._admins: dict[str, Admin] = {}
        self._tokens: dict[str, ApiToken] = {}

    @property
    def has_admins(self) -> bool:
        """Whether somebody has been made admin."""
        return bool(self._admins)

    def admin(self, name: str) -> Admin | None:
        """One admin."""
        return self._admins.get(name)

    def admins(self) -> list[Admin]:
        """All of them, by name."""
        return [self._admins[name] for name in sorted(self._admins)]

    def tokens(self) -> list[ApiToken]:
        """All of them, oldest first."""
        return sorted(self._tokens.values(), key=lambda token: token.created_at)

    def by_subject(self, subject: str) -> Admin | None:
        """The admin that an identity provider means."""
        return next((admin for admin in self._admins.values() if admin.oidc_subject == subject), None)

    def identify_token(self, digest: str) -> Identity | None:
        """Who has the token with this sha256; None when it is no token, or is over."""
        token = self._tokens.get(digest)
        if token is None or (token.expires_at is not None and token.expires_at <= self._wall()):
            return None
        owner = self._admins.get(token.admin)
        if owner is None:
            return None
        role = min(Role.of(token.role), Role.of(owner.role))
        return Identity(name=owner.name, role=role, mode="token")

    def take_admin(self, name: str, admin: Admin | None) -> None:
        """What is known of one name now."""
        self._admins.pop(name, None)
        if admin is not None and admin.deleted_at is None:
            self._admins[name] = admin

    def take_token(self, digest: str, token: ApiToken | None) -> None:
        """What is known of the token with this sha256 now."""
        self._tokens.pop(digest, None)
        if token is not None and token.deleted_at is None:
            self._tokens[digest] = token
