"""Logging in and out at the admin API, and what a page has to know before."""

from __future__ import annotations

from typing import Annotated, Any, Final

from msgspec import Meta

from gateway.access.accounts import Accounts, Admin
from gateway.access.audit_log import AuditLog
from gateway.access.guesses import Guesses
from gateway.access.identity import Identity, Role
from gateway.access.passwords import MAX_PASSWORD_CHARS, Passwords
from gateway.access.sessions import COOKIE, SESSION_S, Sessions
from gateway.admin.errors import BadLogin, TooManyLogins
from gateway.admin.fields import Form, Name, fill
from gateway.admin.gate import Gate, session_cookie
from gateway.admin.table import Call, Entry
from gateway.endpoints import JSON, Answer
from gateway.http.asgi import Header, Scope

API: Final = "/admin/api"
OIDC_START: Final = f"{API}/oidc/start"
_NO_STORE: Final = (b"cache-control", b"no-store")
_NOBODY: Final = Identity(name="nobody", role=Role.VIEWER, mode="open")


class _Login(Form, frozen=True, kw_only=True):
    name: Name
    password: Annotated[str, Meta(min_length=1, max_length=MAX_PASSWORD_CHARS)]


class LoginDesk:
    """`/admin/api/session`, `/login` and `/logout`."""

    def __init__(
        self,
        gate: Gate,
        accounts: Accounts,
        sessions: Sessions,
        passwords: Passwords,
        audit: AuditLog,
        *,
        guesses: Guesses,
        oidc_start: str | None,
        is_secure: bool,
    ) -> None:
        """`oidc_start` is the path that begins a login with the identity provider; `is_secure`: pages come by TLS."""
        self._gate = gate
        self._accounts = accounts
        self._sessions = sessions
        self._passwords = passwords
        self._audit = audit
        self._guesses = guesses
        self._oidc_start = oidc_start
        self._is_secure = is_secure

    def entries(self) -> list[Entry]:
        """For the table."""
        return [
            Entry(method="GET", path=f"{API}/session", action=self.session, is_public=True),
            Entry(method="POST", path=f"{API}/login", action=self.log_in, is_public=True),
            Entry(method="POST", path=f"{API}/logout", action=self.log_out, role=Role.VIEWER),
        ]

    async def session(self, call: Call) -> Answer:
        """Who the caller is, and how to log in."""
        return Answer.json(self._described(await self._gate.known(call.scope)))

    async def log_in(self, call: Call) -> Answer:
        """A session for the right password. Raises BadLogin or TooManyLogins."""
        form = fill(_Login, call.document)
        name, host = f"name {form.name}", f"host {_host(call.scope)}"
        wait_s = await self._guesses.take(host, name)
        if wait_s > 0:
            raise TooManyLogins(wait_s)
        admin = self._accounts.admin(form.name)
        if not await self._passwords.is_right(admin.password_hash if admin else None, form.password) or admin is None:
            await self._audit.record(_NOBODY, "login.failed", form.name)
            raise BadLogin
        await self._guesses.forget(name)
        await self._guesses.give_back(host)
        return await self.admit(admin)

    async def admit(self, admin: Admin) -> Answer:
        """Begin a session."""
        cookie, identity = await self._sessions.begin(admin)
        await self._audit.record(identity, "login", admin.name)
        headers = (JSON, _NO_STORE, self._cookie(cookie, int(SESSION_S)))
        return Answer(headers=headers, body=Answer.json(self._described(identity)).body)

    async def log_out(self, call: Call) -> Answer:
        """The session is over at every replica."""
        cookie = session_cookie(call.scope)
        if cookie is not None:
            await self._sessions.end(cookie)
        return Answer(headers=(JSON, _NO_STORE, self._cookie("", 0)), body=b"{}")

    def _described(self, who: Identity | None) -> dict[str, Any]:
        is_somebody = who is not None and who.mode != "open"
        return {
            "mode": "none" if who is None else who.mode,
            "admin": {"name": who.name, "role": who.role.label} if who is not None and is_somebody else None,
            "role": None if who is None else who.role.label,
            "csrf_token": None if who is None else who.csrf_token,
            "login": {"password": self._accounts.has_admins, "oidc": self._oidc_start},
        }

    def _cookie(self, value: str, max_age_s: int) -> Header:
        text = f"{COOKIE}={value}; Path=/admin; Max-Age={max_age_s}; HttpOnly; SameSite=Strict"
        return b"set-cookie", (text + ("; Secure" if self._is_secure else "")).encode("ascii")


def _host(scope: Scope) -> str:
    client = scope.get("client")
    return str(client[0]) if client else "local"
