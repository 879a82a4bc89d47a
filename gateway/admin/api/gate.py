"""AdminGate: who makes a request to the admin listener, and whether that is enough.

Without any admin the pages and the API are open for reading, to programs on this machine only (`LocalPeers`); writing
takes the token in the gateway's runtime directory. From the first admin on, reading takes a login, too. A gateway that
has never seen its store does not know whether there are admins, and supposes so. What is outside `/admin`, such as
`/metrics`, stays open to this machine. Everybody else needs a login or a token for anything but probes and the login.
"""

from __future__ import annotations

import hmac
from hashlib import sha256
from pathlib import Path
from typing import Final

from starlette.requests import HTTPConnection

from gateway.access.directory import Directory
from gateway.access.file_token import FileToken
from gateway.access.identity import ANYBODY, LOCAL, Identity, Role
from gateway.access.local_peers import LocalPeers
from gateway.access.local_token import LocalToken
from gateway.access.sign_in.sessions import COOKIE, Sessions
from gateway.admin.api.errors import CsrfFailed, ForeignHost, NotLoggedIn, RoleTooLow, StoreLost
from gateway.store.base import StoreUnavailable

METRICS_PATH: Final = "/metrics"
READING: Final = frozenset({"GET", "HEAD", "OPTIONS"})


class AdminGate:
    """The gate of the admin listener, which identifies and admits its callers."""

    def __init__(
        self,
        directory: Directory,
        sessions: Sessions,
        token: LocalToken | FileToken,
        peers: LocalPeers,
        *,
        metrics_token: FileToken | None = None,
    ) -> None:
        """Set up the gate; `metrics_token` gives access to `/metrics` and nothing else."""
        self._directory = directory
        self._sessions = sessions
        self._token = token
        self._peers = peers
        self._metrics_token = metrics_token

    async def admit(self, connection: HTTPConnection, least: Role | None) -> Identity:
        """Return who makes a request that needs at least this role; None is a request that anybody may make.

        Raises NotLoggedIn, RoleTooLow, CsrfFailed, ForeignHost or StoreLost.
        """
        if not is_below_admin(connection.scope["path"]):
            return await self._admit_reader(connection)
        self.check_page(connection)
        if least is None:
            return await self.known(connection) or ANYBODY
        return self._authorize(connection, await self._identify(connection), least)

    def check_page(self, connection: HTTPConnection) -> None:
        """Refuse a request that another site's page makes a browser send.

        A valid token passes: no such page has one. Raises ForeignHost or CsrfFailed.
        """
        authorization = connection.headers.get("authorization")
        if authorization is not None and self._owner_of(authorization) is not None:
            return
        host, origin = _header(connection, "host"), _header(connection, "origin")
        if not self._peers.is_own_host(host):
            raise ForeignHost
        if origin is not None and not self._peers.is_own_origin(origin, host):
            raise CsrfFailed("This request comes from a page of another site.")

    @property
    def token_path(self) -> Path:
        """Path of the file with the admin token."""
        return self._token.path

    def is_admin_token(self, given: str) -> bool:
        """Return whether `given` is the admin token."""
        return self._token.matches(given.encode())

    def is_local(self, connection: HTTPConnection) -> bool:
        """Return whether a program on this machine sent the request itself."""
        return self._peers.is_local(connection.scope)

    async def known(self, connection: HTTPConnection) -> Identity | None:
        """Return the caller of a request that needs no login.

        None without a login, for an invalid token or session, and while the store is lost.
        """
        try:
            return await self._identify(connection)
        except (NotLoggedIn, StoreLost):
            return None

    async def _admit_reader(self, connection: HTTPConnection) -> Identity:
        """Let this machine, a login or a token read what is outside `/admin`."""
        authorization = connection.headers.get("authorization")
        scraper = self._metrics_token if connection.scope["path"] == METRICS_PATH else None
        if scraper is not None and authorization is not None and scraper.matches(_token_of(authorization)):
            return ANYBODY
        self.check_page(connection)
        if self._peers.is_local(connection.scope):
            return ANYBODY
        return self._authorize(connection, await self._identify(connection), Role.VIEWER)

    async def _identify(self, connection: HTTPConnection) -> Identity | None:
        """Return the caller's identity, None without a login. Raises NotLoggedIn for an invalid token."""
        authorization = connection.headers.get("authorization")
        if authorization is not None:
            found = self._owner_of(authorization)
            if found is None:
                raise NotLoggedIn("The token is not one of this gateway, or its time is over.")
            return found
        if cookie := connection.cookies.get(COOKIE):
            try:
                found = await self._sessions.identify(cookie)
            except StoreUnavailable:
                raise StoreLost from None
            if found is not None:
                return found
        is_open = self._directory.is_known and not self._directory.accounts.has_admins
        return ANYBODY if is_open and self._peers.is_local(connection.scope) else None

    def _authorize(self, connection: HTTPConnection, who: Identity | None, least: Role) -> Identity:
        if who is None:
            raise NotLoggedIn("Sign in at /admin/login, or send 'Authorization: Bearer' with an API token.")
        if who.role < least:
            if who.mode == "open":
                raise NotLoggedIn(
                    f"Send 'Authorization: Bearer' with the token in {self._token.path}, "
                    "or make a first admin: penstock admin create NAME."
                )
            raise RoleTooLow(f"This needs the role {least.label}; {who.name} is {who.role.label}.")
        if who.mode == "session" and connection.scope["method"] not in READING:
            _check_csrf_token(connection, who)
        return who

    def _owner_of(self, authorization: str) -> Identity | None:
        token = _token_of(authorization)
        if not token:
            return None
        if self._token.matches(token):
            return LOCAL
        return self._directory.accounts.identify_token(sha256(token).hexdigest())


def is_below_admin(path: str) -> bool:
    """Return whether the path is a page or the API, not what else the admin listener serves."""
    return path == "/admin" or path.startswith("/admin/")


def _header(connection: HTTPConnection, name: str) -> bytes | None:
    value = connection.headers.get(name)
    return None if value is None else value.encode("latin-1")


def _token_of(authorization: str) -> bytes:
    """Return the bearer token; empty for another scheme."""
    scheme, _, token = authorization.partition(" ")
    return token.strip(" \t").encode("latin-1") if scheme.lower() == "bearer" else b""


def _check_csrf_token(connection: HTTPConnection, who: Identity) -> None:
    given = _header(connection, "x-csrf-token")
    if not given or who.csrf_token is None or not hmac.compare_digest(given, who.csrf_token.encode()):
        raise CsrfFailed("Send the session's csrf_token as 'X-Csrf-Token'; GET /admin/api/session returns it.")
