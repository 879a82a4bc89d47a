"""Logging in with the identity provider, at the admin API."""

from __future__ import annotations

import hmac
from collections.abc import Callable
from html import escape
from typing import Final

from starlette.responses import HTMLResponse, RedirectResponse, Response

from gateway.access.accounts import Accounts
from gateway.access.sign_in.oidc import LOGIN_S, Oidc, OidcFailed
from gateway.access.sign_in.sessions import COOKIE as SESSION_COOKIE
from gateway.access.sign_in.sessions import SESSION_S
from gateway.access.sign_in.source_rate import SourceRate, source_of
from gateway.admin.api.errors import NotLoggedIn, RoleTooLow, TooManyLogins
from gateway.admin.api.request import AdminRequest, serves
from gateway.admin.api.return_path import return_path
from gateway.admin.handlers.sign_in.login import API, OIDC_START, LoginHandlers, set_cookie
from gateway.api.application import NO_STORE

CALLBACK: Final = f"{API}/oidc/callback"
COOKIE: Final = "penstock_oidc"
STARTS: Final = 20
STARTS_PER_S: Final = 0.1
"""Starts per second of one source: each start calls the provider and is stored for minutes."""
_COOKIE_PATH: Final = "/admin/api/oidc"
# A redirect would still count as coming from the provider, and a strict cookie stay at home.
_ONWARD: Final = '<!doctype html><meta http-equiv="refresh" content="0;url={page}"><a href="{page}">Continue</a>'


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

    @serves(OIDC_START, is_public=True)
    async def start(self, request: AdminRequest) -> Response:
        """Redirect to the identity provider. Raises TooManyLogins, NotLoggedIn."""
        wait_s = self._starts.take(source_of(request.scope))
        if wait_s > 0.0:
            raise TooManyLogins(wait_s, "Too many logins were begun from here.")
        try:
            url, state = await self._oidc.begin(return_path(request.query_params.get("next")))
        except OidcFailed as error:
            raise NotLoggedIn(f"The identity provider cannot be used: {error}.") from None
        response = RedirectResponse(url, 303, NO_STORE)
        self._keep(response, state, LOGIN_S)
        return response

    @serves(CALLBACK, is_public=True)
    async def callback(self, request: AdminRequest) -> Response:
        """Start a session after the provider's login, for an admin of this gateway."""
        state, code = request.query_params.get("state", ""), request.query_params.get("code", "")
        sealed = request.cookies.get(COOKIE, "")
        if not state or not code or not hmac.compare_digest(state.encode(), sealed.encode()):
            raise NotLoggedIn("This browser did not begin the login that ends here. Begin again at /admin/login.")
        try:
            finished = await self._oidc.finish(state, code)
        except OidcFailed as error:
            raise NotLoggedIn(f"The identity provider did not identify you: {error}.") from None
        admin = self._accounts.by_subject(finished.subject)
        if admin is None:
            raise RoleTooLow(f"No admin belongs to this login; make one with --oidc-subject '{finished.subject}'.")
        cookie, _ = await self._login.begin_session(admin)
        response = HTMLResponse(_ONWARD.format(page=escape(return_path(finished.page))), headers=NO_STORE)
        set_cookie(response, SESSION_COOKIE, cookie, SESSION_S, is_secure=self._is_secure)
        self._keep(response, "", 0)
        return response

    def _keep(self, response: Response, state: str, max_age_s: float) -> None:
        """Let the cookie come along when the provider sends the browser back: a strict one would stay at home."""
        set_cookie(response, COOKIE, state, max_age_s, path=_COOKIE_PATH, same_site="lax", is_secure=self._is_secure)
