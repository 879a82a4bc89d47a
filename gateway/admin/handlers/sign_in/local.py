"""Sign-in with what the machine's own user has: the admin token, or a login link made with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Final

from msgspec import Meta
from starlette.responses import Response

from gateway.access.audit_log import AuditLog
from gateway.access.identity import LOCAL, Identity, Role
from gateway.access.sign_in.login_links import LINK_S, LoginLinks
from gateway.access.sign_in.sessions import Sessions
from gateway.access.sign_in.source_rate import SourceRate, source_of
from gateway.admin.api.errors import Conflict, NotLoggedIn, RoleTooLow, TooManyLogins
from gateway.admin.api.fields import RequestBody
from gateway.admin.api.gate import AdminGate
from gateway.admin.api.request import AdminRequest, serves
from gateway.admin.api.return_path import LOGIN_PAGE
from gateway.admin.handlers.sign_in.login import API, LoginHandlers
from gateway.api.application import ApiResponse

LINKS: Final = f"{API}/login/links"
TRIES: Final = 20
TRIES_PER_S: Final = 0.2
"""Attempts per second of one source."""
NEW_LINK: Final = "penstock admin link"
_MAX_CHARS: Final = 4096

Secret = Annotated[str, Meta(min_length=1, max_length=_MAX_CHARS)]


class _Token(RequestBody, frozen=True, kw_only=True):
    token: Secret


class _Link(RequestBody, frozen=True, kw_only=True):
    link: Secret


class LocalSignInHandlers:
    """`/admin/api/login/token` and `/admin/api/login/links`. A session of either has the admin token's rights."""

    def __init__(
        self,
        gate: AdminGate,
        links: LoginLinks,
        sessions: Sessions,
        audit: AuditLog,
        login: LoginHandlers,
        *,
        clock: Callable[[], float],
    ) -> None:
        self._gate = gate
        self._links = links
        self._sessions = sessions
        self._audit = audit
        self._login = login
        self._tries = SourceRate(burst=TRIES, per_s=TRIES_PER_S, clock=clock)

    @serves(LINKS, "POST", role=Role.ADMIN)
    async def create_link(self, request: AdminRequest) -> Response:
        """Create a login link, which works once, within minutes, in a browser on this machine.

        Raises RoleTooLow for callers without the admin token, and Conflict where no browser counts as local.
        """
        if request.who.name != LOCAL.name or request.who.mode not in ("local", "session"):
            raise RoleTooLow("Login links give the rights of the admin token, so only its holder can make one.")
        if not self._gate.is_local(request):
            message = "Login links work on this machine only, and this listener serves other machines. Use a password."
            raise Conflict(message, code="not_local")
        async with self._audit.announced(request.who, "login.link", LOCAL.name, detail={"expires_in_s": LINK_S}):
            secret = await self._links.create()
        return ApiResponse({"path": f"{LOGIN_PAGE}#link={secret}", "expires_in_s": LINK_S}, 201)

    @serves(f"{LINKS}/redeem", "POST", is_public=True)
    async def redeem_link(self, request: AdminRequest) -> Response:
        """Start a session for an unused link. Raises NotLoggedIn or TooManyLogins."""
        form = request.fill(_Link)
        self._count(request)
        if not self._gate.is_local(request) or not await self._links.redeem(form.link):
            raise NotLoggedIn(
                f"This login link was used already, or is older than {LINK_S / 60:.0f} minutes. "
                f"'{NEW_LINK}' prints a new one.",
                code="bad_login_link",
            )
        return await self._begin("link")

    @serves(f"{API}/login/token", "POST", is_public=True)
    async def log_in(self, request: AdminRequest) -> Response:
        """Start a session for the admin token, so a browser sends it once. Raises NotLoggedIn or TooManyLogins."""
        form = request.fill(_Token)
        self._count(request)
        if not self._gate.is_admin_token(form.token.strip()):
            await self._login.record_failure(None)
            raise NotLoggedIn("That is not the admin token.", code="bad_login")
        return await self._begin("token")

    async def _begin(self, means: str) -> Response:
        who = Identity(name=LOCAL.name, role=LOCAL.role, mode="session")
        async with self._audit.announced(who, "login", who.name, detail={"by": means}):
            cookie, identity = await self._sessions.begin_local()
        return self._login.signed_in(cookie, identity)

    def _count(self, request: AdminRequest) -> None:
        wait_s = self._tries.take(source_of(request.scope))
        if wait_s > 0.0:
            raise TooManyLogins(wait_s, "There were too many attempts to sign in from here.")
