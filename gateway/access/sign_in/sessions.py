"""Sessions: logins of the admin page, valid at every replica until they end everywhere at once."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from hashlib import sha256
from typing import Final

import msgspec

from gateway.access.accounts import Accounts, Admin
from gateway.access.file_token import FileToken
from gateway.access.identity import LOCAL, Identity, Role
from gateway.access.local_token import LocalToken
from gateway.store.base import Store

SPACE: Final = "sessions"
COOKIE: Final = "penstock_session"
SESSION_S: Final = 12 * 3600.0


class _Session(msgspec.Struct, frozen=True):
    admin: str
    epoch: int
    csrf_token: str
    created_at: float
    token: str | None = None
    """Fingerprint of the admin token that began the session; None for a session of an admin."""


class Sessions:
    """Sessions in the store: the cookie holds a random value, the store its hash. Methods raise StoreUnavailable."""

    def __init__(
        self, store: Store, accounts: Accounts, wall: Callable[[], float], *, token: LocalToken | FileToken
    ) -> None:
        """Set up the sessions; `token` is the admin token, whose change ends the sessions that it began."""
        self._store = store
        self._accounts = accounts
        self._wall = wall
        self._token = token

    async def begin(self, admin: Admin) -> tuple[str, Identity]:
        """Start a session; return the cookie's value and the identity."""
        session = _Session(admin.name, admin.epoch, secrets.token_urlsafe(24), self._wall())
        return await self._put(session), _identity(admin, session.csrf_token)

    async def begin_local(self) -> tuple[str, Identity]:
        """Start a session with the rights of the admin token; return the cookie's value and the identity."""
        session = _Session(LOCAL.name, 0, secrets.token_urlsafe(24), self._wall(), self._token.fingerprint)
        return await self._put(session), _local(session.csrf_token)

    async def identify(self, cookie: str) -> Identity | None:
        """Return the identity behind a cookie, or None when its session is over."""
        entry = await self._store.get(SPACE, _name(cookie))
        if entry is None:
            return None
        session = msgspec.json.decode(entry.value, type=_Session)
        if session.token is not None:
            is_current = bool(session.token) and session.token == self._token.fingerprint
            return _local(session.csrf_token) if is_current else None
        admin = self._accounts.admin(session.admin)
        if admin is None or admin.epoch != session.epoch:
            return None
        return _identity(admin, session.csrf_token)

    async def end(self, cookie: str) -> None:
        """End the session of a cookie."""
        await self._store.delete(SPACE, _name(cookie))

    async def _put(self, session: _Session) -> str:
        cookie = secrets.token_urlsafe(32)
        await self._store.put(SPACE, _name(cookie), msgspec.json.encode(session), ttl_s=SESSION_S)
        return cookie


def _name(cookie: str) -> str:
    return sha256(cookie.encode()).hexdigest()


def _identity(admin: Admin, csrf_token: str) -> Identity:
    return Identity(name=admin.name, role=Role.of(admin.role), mode="session", csrf_token=csrf_token)


def _local(csrf_token: str) -> Identity:
    return Identity(name=LOCAL.name, role=LOCAL.role, mode="session", csrf_token=csrf_token)
