"""Who may do what at the admin listener, and keys that are made, rotated and revoked while everything runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.stack import Reply, Stack, policy_text, running

PASSWORD = "correct horse battery"
NOBODY = {"authorization": None}


def with_tenants(folder: Path) -> str:
    digest = sha256(b"sk-in-the-document").hexdigest()
    tenants = (
        f'tenants:\n  - {{id: support, keys: [{{id: k1, sha256: "{digest}"}}]}}\n  - {{id: shop, models: [solo]}}\n'
    )
    return policy_text(folder).replace("routes:\n", f"{tenants}routes:\n")


@asynccontextmanager
async def gateway(folder: Path, store: Path | None = None) -> AsyncIterator[Stack]:
    await asyncio.to_thread(folder.mkdir, exist_ok=True)
    settings = {"store.address": f"embedded:{store}"} if store else {}
    async with running(folder, policy=with_tenants(folder), settings=settings) as stack:
        yield stack


async def post(stack: Stack, path: str, body: Any, headers: Mapping[str, Any] | None = None) -> Reply:
    return await stack.call(body, admin=True, path=f"/admin/api/{path}", headers=dict(headers or {}))


async def get(stack: Stack, path: str, headers: Mapping[str, Any] | None = None) -> Reply:
    return await stack.get(f"/admin/api/{path}", admin=True, headers=dict(headers or {}))


async def log_in(stack: Stack, name: str, password: str = PASSWORD) -> dict[str, Any]:
    """Headers of a session."""
    reply = await post(stack, "login", {"name": name, "password": password}, NOBODY)
    assert reply.status == 200
    cookie = reply.headers["set-cookie"]
    assert {"httponly", "samesite=strict", "path=/admin"} <= {part.strip().lower() for part in cookie.split(";")}
    return {"authorization": None, "cookie": cookie.partition(";")[0], "x-csrf-token": reply.json["csrf_token"]}


async def with_admins(stack: Stack) -> None:
    for role in ("admin", "editor", "viewer"):
        body = {"name": role, "role": role, "password": PASSWORD}
        assert (await post(stack, "admins", body)).status == 201


async def test_before_the_first_admin_reading_is_open_and_writing_takes_the_local_token(tmp_path: Path) -> None:
    async with gateway(tmp_path) as stack:
        assert (await get(stack, "session")).json["mode"] == "open"
        assert (await get(stack, "policy")).status == 200
        refused = await post(stack, "keys", {"tenant": "shop"}, NOBODY)
        assert (refused.status, refused.error["code"]) == (401, "not_logged_in")
        assert (await post(stack, "cache/purge", {"route": "main"}, NOBODY)).status == 401
        assert (await post(stack, "cache/purge", {"route": "main"})).status == 200
        assert (tmp_path / "admin.token").stat().st_mode & 0o077 == 0
        wrong = {"authorization": "Bearer sk-in-the-document"}
        assert (await post(stack, "keys", {"tenant": "shop"}, wrong)).status == 401
        assert (await get(stack, "policy", wrong)).status == 401


async def test_from_the_first_admin_on_reading_takes_a_login(tmp_path: Path) -> None:
    async with gateway(tmp_path) as stack:
        first = await post(stack, "admins", {"name": "anna", "role": "viewer", "password": PASSWORD})
        assert first.error["param"] == "role"
        await with_admins(stack)
        assert (await get(stack, "policy")).status == 401
        assert (await get(stack, "session")).json == {
            "mode": "none",
            "admin": None,
            "role": None,
            "csrf_token": None,
            "login": {"password": True, "oidc": None, "token_path": str(tmp_path / "admin.token")},
        }
        page = await stack.get("/admin/anything", admin=True)
        assert (page.status, page.headers["location"]) == (303, "/admin/login?next=%2Fadmin%2Fanything")
        assert (await stack.get("/admin/", admin=True)).headers["location"] == "/admin/login"
        for path in ("/metrics", "/livez", "/readyz"):
            assert (await stack.get(path, admin=True)).status == 200
        viewer = await log_in(stack, "viewer")
        assert (await get(stack, "policy", viewer)).status == 200
        assert (await get(stack, "session", viewer)).json["admin"] == {"name": "viewer", "role": "viewer"}


ALL, WRITERS, ADMIN = {"viewer", "editor", "admin"}, {"editor", "admin"}, {"admin"}
ALLOWED: list[tuple[str, str, Any, set[str]]] = [
    ("GET", "policy", None, ALL),
    ("GET", "audit", None, ALL),
    ("POST", "policy/check", {"document": "x"}, ALL),
    ("POST", "keys", {"tenant": "nobody"}, WRITERS),
    ("POST", "cache/purge", {"route": "main"}, WRITERS),
    ("PUT", "policy", {"document": "x", "reason": "y"}, WRITERS),
    ("GET", "admins", None, ADMIN),
    ("DELETE", "admins/nobody", None, ADMIN),
]


async def test_each_role_may_do_its_own(tmp_path: Path) -> None:
    async with gateway(tmp_path) as stack:
        await with_admins(stack)
        for role in ("viewer", "editor", "admin"):
            session = await log_in(stack, role)
            for method, path, body, allowed in ALLOWED:
                reply = await stack.call(body, admin=True, path=f"/admin/api/{path}", method=method, headers=session)
                is_allowed = reply.status not in (401, 403)
                assert is_allowed == (role in allowed), (role, method, path, reply.status)
                assert is_allowed or reply.error["code"] == "role_too_low"


async def test_a_write_by_cookie_needs_the_sessions_token_and_our_own_page(tmp_path: Path) -> None:
    async with gateway(tmp_path) as stack:
        await with_admins(stack)
        session = await log_in(stack, "editor")
        body = {"tenant": "shop"}
        for changed in ({"x-csrf-token": None}, {"x-csrf-token": "wrong"}, {"origin": "http://elsewhere"}):
            reply = await post(stack, "keys", body, {**session, **changed})
            assert (reply.status, reply.error["code"]) == (403, "csrf_failed")
        assert (await post(stack, "keys", body, {**session, "origin": "http://gateway"})).status == 201


async def test_wrong_passwords_are_counted_and_then_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.access.sign_in.failed_logins.FIRST_DELAY_S", 60.0)
    async with gateway(tmp_path) as stack:
        await with_admins(stack)
        codes = []
        for name in ("admin", "admin", "no-such-admin", "admin", "admin", "admin"):
            reply = await post(stack, "login", {"name": name, "password": "wrong wrong wrong"}, NOBODY)
            codes.append((reply.status, reply.error["code"]))
        assert codes[:5] == [(401, "bad_login")] * 5
        assert codes[5] == (429, "too_many_logins")
        assert (await post(stack, "login", {"name": "admin", "password": PASSWORD}, NOBODY)).status == 429


ODD_PATHS = (
    "//admin/api/policy",
    "/admin/..;/admin/api/policy",
    "/%61dmin/api/policy",
    "/admin/%2e%2e/admin/api/policy",
)


async def test_an_odd_path_is_no_way_around_the_gate(tmp_path: Path) -> None:
    async with gateway(tmp_path) as stack:
        await post(stack, "admins", {"name": "anna", "role": "admin", "password": PASSWORD})
        ways: list[tuple[str, dict[str, str]]] = [(path, {}) for path in ODD_PATHS]
        ways += [(path, {"authorization": "Bearer sk-in-the-document"}) for path in ODD_PATHS]
        for path, bearer in ways:
            reply = await stack.get(path, admin=True, headers=bearer)
            assert reply.status in ((400, 401, 403, 404) if bearer else (303, 400, 401, 403, 404))
            assert b"schema_version" not in reply.body
            assert (await stack.get(path, headers=bearer)).status in (400, 404)


async def test_only_who_requests_a_page_is_sent_to_log_in(tmp_path: Path) -> None:
    async with gateway(tmp_path) as stack:
        await post(stack, "admins", {"name": "anna", "role": "admin", "password": PASSWORD})
        assert (await stack.get("/admin/policy", admin=True)).status == 303
        for path in ("/admin/policy", "/admin/..;/admin/api/policy"):
            assert (await stack.call({}, admin=True, path=path, method="PUT", headers=NOBODY)).status == 401


async def test_a_host_that_is_none_is_refused(tmp_path: Path) -> None:
    async with gateway(tmp_path) as stack:
        for host in ("x/admin?", "", "a b", "evil@gateway"):
            assert (await get(stack, "policy", {"host": host})).status == 400
