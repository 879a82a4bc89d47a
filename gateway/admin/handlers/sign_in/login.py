"""Login and logout at the admin API, and the data that a page needs before them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

from msgspec import Meta
from starlette.responses import Response

from gateway.access.accounts import Accounts, Admin
from gateway.access.audit_log import AuditLog
from gateway.access.identity import Identity, Role
from gateway.access.sign_in.failed_logins import FailedLogins
from gateway.access.sign_in.known_device import COOKIE as DEVICE_COOKIE
from gateway.access.sign_in.known_device import DEVICE_S, device_cookie, device_id
from gateway.access.sign_in.passwords import MAX_PASSWORD_CHARS, Passwords, PasswordsBusy
from gateway.access.sign_in.sessions import COOKIE, SESSION_S, Sessions
from gateway.access.sign_in.source_rate import SourceRate, source_of
from gateway.admin.api.errors import BadLogin, TooManyLogins
from gateway.admin.api.fields import Name, RequestBody
from gateway.admin.api.gate import AdminGate
from gateway.admin.api.request import AdminRequest, serves
from gateway.api.application import ApiResponse

API: Final = "/admin/api"
OIDC_START: Final = f"{API}/oidc/start"
_UNKNOWN: Final = "unknown"
"""The audit log's entry in place of a name that no admin has: it may be a password in the wrong field."""
_BUSY_S: Final = 1.0
_BUSY: Final = "Too many logins are being checked."
FAILED_LINES: Final = 30
FAILED_LINES_PER_S: Final = 0.1
"""Rate of failed logins that are written to the audit log, which is stored forever and may not be filled by them."""
_NOBODY: Final = Identity(name="nobody", role=Role.VIEWER, mode="open")


class _Login(RequestBody, frozen=True, kw_only=True):
    name: Name
    password: Annotated[str, Meta(min_length=1, max_length=MAX_PASSWORD_CHARS)]


@dataclass(frozen=True, slots=True, kw_only=True)
class SignIn:
    """The parts that check a login by name and password."""

    accounts: Accounts
    sessions: Sessions
    passwords: Passwords
    failed_logins: FailedLogins


class LoginHandlers:
    """`/admin/api/session`, `/login` and `/logout`."""

    def __init__(
        self,
        gate: AdminGate,
        sign_in: SignIn,
        audit: AuditLog,
        *,
        wall: Callable[[], float],
        oidc_start: str | None,
        is_secure: bool,
    ) -> None:
        """Set up the handlers; `oidc_start` is the path of the provider's login, `is_secure` means pages by TLS."""
        self._gate = gate
        self._accounts = sign_in.accounts
        self._sessions = sign_in.sessions
        self._passwords = sign_in.passwords
        self._failed_logins = sign_in.failed_logins
        self._audit = audit
        self._wall = wall
        self._failed_lines = SourceRate(burst=FAILED_LINES, per_s=FAILED_LINES_PER_S, clock=wall, max_sources=1)
        self._num_unrecorded = 0
        self._oidc_start = oidc_start
        self._is_secure = is_secure

    @serves(f"{API}/session", is_public=True)
    async def session(self, request: AdminRequest) -> Response:
        """Show the caller's identity, and the ways to log in."""
        path = str(self._gate.token_path) if self._gate.is_local(request) else None
        return ApiResponse(self._described(await self._gate.known(request), path))

    @serves(f"{API}/login", "POST", is_public=True)
    async def log_in(self, request: AdminRequest) -> Response:
        """Start a session for the right password. Raises BadLogin or TooManyLogins."""
        form = request.fill(_Login)
        admin, source = self._accounts.admin(form.name), source_of(request.scope)
        device = device_id(request.cookies.get(DEVICE_COOKIE), admin, self._wall())
        own = f"account {source} {form.name}" if device is None else f"device {device}"
        shared = (f"host {source}",) if device is None else ()
        if self._passwords.is_full(is_known=device is not None):  # before anything is counted in the store
            raise TooManyLogins(_BUSY_S, _BUSY)
        wait_s = await self._failed_logins.take(*shared, own)
        if wait_s > 0:
            raise TooManyLogins(wait_s)
        stored_hash = None if admin is None else admin.password_hash
        try:
            is_right = await self._passwords.is_right(stored_hash, form.password, is_known=device is not None)
        except PasswordsBusy:
            for name in (*shared, own):
                await self._failed_logins.give_back(name)
            raise TooManyLogins(_BUSY_S, _BUSY) from None
        if not is_right or admin is None:
            await self.record_failure(admin)
            raise BadLogin
        await self._failed_logins.forget(own)
        for name in shared:
            await self._failed_logins.give_back(name)
        cookie, identity = await self.begin_session(admin)
        return self.signed_in(cookie, identity, device_cookie(admin, self._wall()) if device is None else None)

    def signed_in(self, cookie: str, identity: Identity, device: str | None = None) -> Response:
        """Return the response that gives a browser its new session, and where it is new here, a device cookie."""
        response = ApiResponse(self._described(identity))
        if device is not None:
            set_cookie(response, DEVICE_COOKIE, device, DEVICE_S, path=f"{API}/login", is_secure=self._is_secure)
        set_cookie(response, COOKIE, cookie, SESSION_S, is_secure=self._is_secure)
        return response

    async def begin_session(self, admin: Admin) -> tuple[str, Identity]:
        """Start a session; return its cookie and its identity."""
        who = Identity(name=admin.name, role=Role.of(admin.role), mode="session")
        async with self._audit.announced(who, "login", admin.name):
            return await self._sessions.begin(admin)

    @serves(f"{API}/logout", "POST", role=Role.VIEWER)
    async def log_out(self, request: AdminRequest) -> Response:
        """End the session at every replica."""
        if cookie := request.cookies.get(COOKIE):
            await self._sessions.end(cookie)
        response = ApiResponse({})
        set_cookie(response, COOKIE, "", 0, is_secure=self._is_secure)
        return response

    async def record_failure(self, admin: Admin | None) -> None:
        """Write a failed login to the audit log, up to the rate that it may fill."""
        if self._failed_lines.take("") > 0.0:
            self._num_unrecorded += 1
            return
        detail = {"unrecorded_before": self._num_unrecorded} if self._num_unrecorded else {}
        self._num_unrecorded = 0
        await self._audit.record(_NOBODY, "login.failed", _UNKNOWN if admin is None else admin.name, detail=detail)

    def _described(self, who: Identity | None, token_path: str | None = None) -> dict[str, Any]:
        """Return the session's document; `token_path` is for callers on this machine only."""
        is_somebody = who is not None and who.mode != "open"
        return {
            "mode": "none" if who is None else who.mode,
            "admin": {"name": who.name, "role": who.role.label} if who is not None and is_somebody else None,
            "role": None if who is None else who.role.label,
            "csrf_token": None if who is None else who.csrf_token,
            "login": {
                "password": self._accounts.has_admins,
                "oidc": self._oidc_start,
                "token_path": token_path,
            },
        }


def set_cookie(
    response: Response,
    name: str,
    value: str,
    max_age_s: float,
    *,
    path: str = "/admin",
    same_site: Literal["lax", "strict"] = "strict",
    is_secure: bool,
) -> None:
    """Set a cookie that no script can read."""
    response.set_cookie(
        name, value, max_age=int(max_age_s), path=path, secure=is_secure, httponly=True, samesite=same_site
    )
