"""Accounts: the admins and their API tokens, as the store's feed tells."""

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


class Token(msgspec.Struct, frozen=True, kw_only=True):
    """An API token; never has more rights than the admin it belongs to."""

    id: str
    admin: str
    role: RoleName
    sha256: str
    created_at: float
    created_by: str
    expires_at: float | None = None


class Accounts:
    """Lookups by name and by the hash of a token. `None` counts nobody: nothing was read yet."""

    def __init__(self, wall: Callable[[], float]) -> None:
        self._wall = wall
        self._admins: dict[str, Admin] = {}
        self._tokens: dict[str, Token] = {}

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

    def tokens(self) -> list[Token]:
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

    def take(self, key: str, value: bytes | None) -> None:
        """What the store says of one name now."""
        if key.startswith(ADMIN_PREFIX):
            self._admins.pop(key.removeprefix(ADMIN_PREFIX), None)
            if value is not None:
                admin = msgspec.json.decode(value, type=Admin)
                self._admins[admin.name] = admin
        elif key.startswith(TOKEN_PREFIX):
            self._tokens.pop(key.removeprefix(TOKEN_PREFIX), None)
            if value is not None:
                token = msgspec.json.decode(value, type=Token)
                self._tokens[token.sha256] = token
