"""Gate: who makes a request to a path below `/admin`, and whether that is enough.

Without any admin the listener, which only this machine reaches, is open for reading; writing takes the token in the
gateway's runtime directory. From the first admin on, reading takes a login, too. A gateway that has never seen its
store does not know whether there are admins, and supposes so.
"""

from __future__ import annotations

import re
from hashlib import sha256
from typing import Final

from gateway.access.directory import Directory
from gateway.access.identity import ANYBODY, Identity, Role
from gateway.access.local_token import LocalToken
from gateway.access.sessions import COOKIE, Sessions
from gateway.admin.errors import CsrfFailed, NotLoggedIn, RoleTooLow, StoreLost
from gateway.http.asgi import Scope, find_header
from gateway.store.base import StoreUnavailable

_LOCAL_NAMES: Final = re.compile(rb"(localhost|[0-9.]+|\[[0-9A-Fa-f:.]+\])(:[0-9]+)?")
_LOCAL: Final = Identity(name="local", role=Role.ADMIN, mode="local")
_READING: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_MAX_COOKIE_BYTES: Final = 4096


class Gate:
    """One for the admin listener."""

    def __init__(self, directory: Directory, sessions: Sessions, token: LocalToken, *, is_socket: bool) -> None:
        """`is_socket`: the listener is a Unix socket, which no web page can be talked into calling."""
        self._directory = directory
        self._sessions = sessions
        self._token = token
        self._is_socket = is_socket

    @property
    def is_open(self) -> bool:
        """Whether reading takes no login."""
        return self._directory.is_known and not self._directory.accounts.has_admins

    async def identify(self, scope: Scope) -> Identity | None:
        """Who it is, None when nobody is known to be there. Raises NotLoggedIn for a token that is none, StoreLost."""
        authorization = find_header(scope, b"authorization")
        if authorization is not None:
            return self._bearer(authorization)
        cookie = session_cookie(scope)
        if cookie is not None:
            try:
                found = await self._sessions.identify(cookie)
            except StoreUnavailable:
                raise StoreLost from None
            if found is not None:
                return found
        return ANYBODY if self.is_open and self._is_near(scope) else None

    async def known(self, scope: Scope) -> Identity | None:
        """As `identify`, for what is public: a token or session that is none is nobody's."""
        try:
            return await self.identify(scope)
        except (NotLoggedIn, StoreLost):
            return None

    def authorize(self, scope: Scope, who: Identity | None, least: Role) -> Identity:
        """The caller, who may do this. Raises NotLoggedIn, RoleTooLow or CsrfFailed."""
        if who is None:
            raise NotLoggedIn("Log in at /admin/login, or send 'Authorization: Bearer' with an API token.")
        if who.role < least:
            if who.mode == "open":
                raise NotLoggedIn(
                    f"Send 'Authorization: Bearer' with the token in {self._token.path}, "
                    "or make a first admin: penstock admin create NAME."
                )
            raise RoleTooLow(f"This needs the role {least.label}; {who.name} is {who.role.label}.")
        if who.mode == "session" and scope["method"] not in _READING:
            _check_origin(scope, who)
        return who

    def _bearer(self, authorization: bytes) -> Identity:
        scheme, _, token = authorization.partition(b" ")
        token = token.strip()
        if scheme.lower() == b"bearer" and token:
            if self._token.matches(token):
                return _LOCAL
            found = self._directory.accounts.identify_token(sha256(token).hexdigest())
            if found is not None:
                return found
        raise NotLoggedIn("The token is not one of this gateway, or its time is over.")

    def _is_near(self, scope: Scope) -> bool:
        """A page of a stranger that has its name point to this machine (DNS rebinding) still says its own name."""
        host = find_header(scope, b"host")
        return self._is_socket or (host is not None and _LOCAL_NAMES.fullmatch(host) is not None)


def session_cookie(scope: Scope) -> str | None:
    """The value of the session's cookie."""
    return cookie_of(scope, COOKIE)


def cookie_of(scope: Scope, wanted: str) -> str | None:
    """The value of one cookie."""
    header = find_header(scope, b"cookie")
    if header is None or len(header) > _MAX_COOKIE_BYTES:
        return None
    for part in header.decode("latin-1").split(";"):
        name, _, value = part.strip().partition("=")
        if name == wanted:
            return value
    return None


def _check_origin(scope: Scope, who: Identity) -> None:
    given = find_header(scope, b"x-csrf-token")
    if given is None or given.decode("latin-1") != who.csrf_token:
        raise CsrfFailed("Send the session's csrf_token as 'X-Csrf-Token'; GET /admin/api/session says it.")
    origin, host = find_header(scope, b"origin"), find_header(scope, b"host") or b""
    if origin is not None and origin.partition(b"://")[2] != host:
        raise CsrfFailed("This request comes from a page of another site.")
