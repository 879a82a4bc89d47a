"""Logging in with the identity provider, at the admin API."""

from __future__ import annotations

import hmac
from collections.abc import Callable
from typing import Final
from urllib.parse import parse_qs

from gateway.access.accounts import Accounts
from gateway.access.sign_in.oidc import LOGIN_S, Oidc, OidcFailed
from gateway.access.sign_in.source_rate import SourceRate, source_of
from gateway.admin.api.errors import NotLoggedIn, RoleTooLow, TooManyLogins
from gateway.admin.api.gate import cookie_of
from gateway.admin.api.table import AdminEndpoint, Call
from gateway.admin.handlers.login import API, OIDC_START, LoginHandlers
from gateway.api.routes import SmallResponse

CALLBACK: Final = f"{API}/oidc/callback"
COOKIE: Final = "penstock_oidc"
STARTS: Final = 20
STARTS_PER_S: Final = 0.1
"""Of one source: each start asks the provider and is kept for minutes."""
_NO_STORE: Final = (b"cache-control", b"no-store")
_HTML: Final = (b"content-type", b"text/html; charset=utf-8")
# A redirect would still count as coming from the provider, and a strict cookie stay at home.
_ONWARD: Final = b'<!doctype html><meta http-equiv="refresh" content="0;url=/admin/"><a href="/admin/">Go on</a>'


class OidcHandlers:
    """`/admin/api/oidc/start` and `/callback`."""

    def __init__(
        self, oidc: Oidc, accounts: Accounts, login: LoginHandlers, *, clock: Callable[[], float], is_secure: bool
    ) -> None:
        self._oidc = oidc
        self._accounts = accounts
        self._login = login
        self._is_secure = is_secure
        self._starts = SourceRate(burst=STARTS, per_s=STARTS_PER_S, clock=clock)

    def entries(self) -> list[AdminEndpoint]:
        """For the table."""
        return [
            AdminEndpoint(method="GET", path=OIDC_START, action=self.start, is_public=True),
            AdminEndpoint(method="GET", path=CALLBACK, action=self.callback, is_public=True),
        ]

    async def start(self, call: Call) -> SmallResponse:
        """To the provider. Raises TooManyLogins, NotLoggedIn."""
        wait_s = self._starts.take(source_of(call.scope))
        if wait_s > 0.0:
            raise TooManyLogins(wait_s, "Too many logins were begun from here.")
        try:
            url, state = await self._oidc.begin()
        except OidcFailed as error:
            raise NotLoggedIn(f"The identity provider cannot be used: {error}.") from None
        return SmallResponse(
            status=303, headers=((b"location", url.encode()), _NO_STORE, self._cookie(state, int(LOGIN_S)))
        )

    async def callback(self, call: Call) -> SmallResponse:
        """Back from the provider: a session for an admin that it knows."""
        query = parse_qs(call.scope.get("query_string", b"").decode("latin-1"))
        state, code = query.get("state", [""])[0], query.get("code", [""])[0]
        kept = cookie_of(call.scope, COOKIE) or ""
        if not state or not code or not hmac.compare_digest(state.encode(), kept.encode()):
            raise NotLoggedIn("This browser did not begin the login that ends here. Begin again at /admin/login.")
        try:
            subject = await self._oidc.finish(state, code)
        except OidcFailed as error:
            raise NotLoggedIn(f"The identity provider did not say who you are: {error}.") from None
        admin = self._accounts.by_subject(subject)
        if admin is None:
            raise RoleTooLow(f"No admin belongs to this login; make one with --oidc-subject '{subject}'.")
        begun = await self._login.admit(admin)
        cookies = [header for header in begun.headers if header[0] == b"set-cookie"]
        return SmallResponse(headers=(_HTML, _NO_STORE, *cookies, self._cookie("", 0)), body=_ONWARD)

    def _cookie(self, value: str, max_age_s: int) -> tuple[bytes, bytes]:
        """Lax: it has to come along when the provider sends the browser back."""
        text = f"{COOKIE}={value}; Path=/admin/api/oidc; Max-Age={max_age_s}; HttpOnly; SameSite=Lax"
        return b"set-cookie", (text + ("; Secure" if self._is_secure else "")).encode("ascii")
