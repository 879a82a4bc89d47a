"""AdminGate: who makes a request to the admin listener, and whether that is enough.

Without any admin the pages and the API are open for reading, to programs on this machine only (`LocalPeers`); writing
takes the token in the gateway's runtime directory. From the first admin on, reading takes a login, too. A gateway that
has never seen its store does not know whether there are admins, and supposes so. What is outside `/admin`, such as
`/metrics`, stays open to this machine. Everybody else needs a login or a token for anything but probes and the login.
"""

from __future__ import annotations

import hmac
from hashlib import sha256
from typing import Final

from gateway.access.directory import Directory
from gateway.access.file_token import FileToken
from gateway.access.identity import ANYBODY, Identity, Role
from gateway.access.local_peers import LocalPeers
from gateway.access.local_token import LocalToken
from gateway.access.sign_in.sessions import COOKIE, Sessions
from gateway.admin.api.errors import CsrfFailed, ForeignHost, NotLoggedIn, RoleTooLow, StoreLost
from gateway.http.asgi import Scope, find_header
from gateway.store.base import StoreUnavailable

_LOCAL: Final = Identity(name="local", role=Role.ADMIN, mode="local")
_READING: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_MAX_COOKIE_BYTES: Final = 4096


class AdminGate:
    """One for the admin listener."""

    def __init__(
        self,
        directory: Directory,
        sessions: Sessions,
        token: LocalToken | FileToken,
        peers: LocalPeers,
        *,
        metrics_token: FileToken | None = None,
    ) -> None:
        """`metrics_token` reads `/metrics` and nothing else."""
        self._directory = directory
        self._sessions = sessions
        self._token = token
        self._peers = peers
        self._metrics_token = metrics_token

    @property
    def is_open(self) -> bool:
        """Whether reading takes no login on this machine."""
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
        return ANYBODY if self.is_open and self._peers.is_local(scope) else None

    def check_page(self, scope: Scope) -> None:
        """Refuse what another site's page makes a browser send; no such page knows a token.

        Raises ForeignHost or CsrfFailed.
        """
        authorization = find_header(scope, b"authorization")
        if authorization is not None and self._owner_of(authorization) is not None:
            return
        host, origin = find_header(scope, b"host"), find_header(scope, b"origin")
        if not self._peers.is_own_host(host):
            raise ForeignHost
        if origin is not None and not self._peers.is_own_origin(origin, host):
            raise CsrfFailed("This request comes from a page of another site.")

    async def admit_reader(self, scope: Scope, *, is_scrape: bool) -> None:
        """Let this machine, a login or a token read what is outside `/admin`; `is_scrape`: it is `/metrics`.

        Raises NotLoggedIn, RoleTooLow, CsrfFailed, ForeignHost or StoreLost.
        """
        if is_scrape and self._metrics_token is not None:
            authorization = find_header(scope, b"authorization")
            if authorization is not None and self._metrics_token.matches(_token_of(authorization)):
                return
        self.check_page(scope)
        if not self._peers.is_local(scope):
            self.authorize(scope, await self.identify(scope), Role.VIEWER)

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
            _check_csrf_token(scope, who)
        return who

    def _bearer(self, authorization: bytes) -> Identity:
        found = self._owner_of(authorization)
        if found is None:
            raise NotLoggedIn("The token is not one of this gateway, or its time is over.")
        return found

    def _owner_of(self, authorization: bytes) -> Identity | None:
        token = _token_of(authorization)
        if not token:
            return None
        if self._token.matches(token):
            return _LOCAL
        return self._directory.accounts.identify_token(sha256(token).hexdigest())


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


def _token_of(authorization: bytes) -> bytes:
    """The bearer token; empty for another scheme."""
    scheme, _, token = authorization.partition(b" ")
    return token.strip() if scheme.lower() == b"bearer" else b""


def _check_csrf_token(scope: Scope, who: Identity) -> None:
    given = find_header(scope, b"x-csrf-token")
    if not given or who.csrf_token is None or not hmac.compare_digest(given, who.csrf_token.encode()):
        raise CsrfFailed("Send the session's csrf_token as 'X-Csrf-Token'; GET /admin/api/session says it.")
