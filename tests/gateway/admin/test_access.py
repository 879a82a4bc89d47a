"""Who may do what at the admin listener, and keys that are made, rotated and revoked while everything runs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from gateway.access.audit_log import LOG, SPACE, AuditLog
from gateway.access.identity import SYSTEM
from gateway.store.base import LogEntry
from tests.gateway.stack import Reply, Stack, chat, policy_text, running

PASSWORD = "correct horse battery"
NOBODY = {"authorization": None}
PATIENCE_S = 30.0


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


async def test_a_runtime_directory_without_room_for_a_token_costs_the_token_only(tmp_path: Path) -> None:
    (tmp_path / "admin.token").mkdir()
    async with gateway(tmp_path) as stack:
        assert (await stack.call(chat("solo"), headers={"authorization": "Bearer sk-in-the-document"})).status == 200
        assert (await get(stack, "policy")).status == 200
        assert (await post(stack, "keys", {"tenant": "shop"}, NOBODY)).status == 401
        assert stack.lines("admin_token_missing")


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
            "login": {"password": True, "oidc": None},
        }
        page = await stack.get("/admin/anything", admin=True)
        assert (page.status, page.headers["location"]) == (303, "/admin/login")
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


async def test_a_session_ends_by_logout_by_a_new_password_and_with_its_admin(tmp_path: Path) -> None:
    async with gateway(tmp_path) as stack:
        await with_admins(stack)
        one, two, three = [await log_in(stack, "editor") for _ in range(3)]
        assert (await post(stack, "logout", {}, one)).status == 200
        assert (await get(stack, "policy", one)).status == 401
        assert (await post(stack, "admins/editor", {"role": "admin"}, two)).status == 403
        assert (await post(stack, "admins/editor", {"password": "another long one"}, two)).status == 200
        assert (await get(stack, "policy", three)).status == 401
        four = await log_in(stack, "editor", "another long one")
        assert (await stack.call(admin=True, path="/admin/api/admins/editor", method="DELETE")).status == 200
        assert (await get(stack, "policy", four)).status == 401
        last = await stack.call(admin=True, path="/admin/api/admins/admin", method="DELETE")
        assert (last.status, last.error["code"]) == (409, "last_admin")


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


async def test_a_token_can_do_what_its_admin_can_or_less(tmp_path: Path) -> None:
    async with gateway(tmp_path) as stack:
        await with_admins(stack)
        session = await log_in(stack, "editor")
        made = (await post(stack, "tokens", {"name": "ci", "role": "admin"}, session)).json
        assert made["role"] == "editor"
        bearer = {"authorization": f"Bearer {made['token']}"}
        assert (await post(stack, "keys", {"tenant": "shop"}, bearer)).status == 201
        assert (await get(stack, "admins", bearer)).status == 403
        assert (await post(stack, "admins/editor", {"role": "viewer"})).status == 200
        assert (await post(stack, "keys", {"tenant": "shop"}, bearer)).status == 403
        assert (await stack.call(admin=True, path=f"/admin/api/tokens/{made['id']}", method="DELETE")).status == 200
        assert (await get(stack, "policy", bearer)).status == 401


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


async def test_what_is_wrong_with_a_form_is_stated_in_words(tmp_path: Path) -> None:
    async with gateway(tmp_path) as stack:
        anna = {"name": "anna", "role": "admin", "password": "short"}
        assert (await post(stack, "admins", anna)).error["message"] == "password: expected at least 10 characters."
        bad = (await post(stack, "admins", {**anna, "name": "a b"})).error
        assert bad["message"].startswith("name: expected 1 to 64 of letters, digits")
        assert bad["param"] == "name"
        reply = await get(stack, "policy/revisions/first")
        assert (reply.status, "-1" in reply.error["message"]) == (404, False)


async def test_a_host_that_is_none_is_refused(tmp_path: Path) -> None:
    async with gateway(tmp_path) as stack:
        for host in ("x/admin?", "", "a b", "evil@gateway"):
            assert (await get(stack, "policy", {"host": host})).status == 400


async def test_a_key_is_good_when_it_is_shown_and_bad_everywhere_when_it_is_revoked(tmp_path: Path) -> None:
    store = tmp_path / "store.sqlite3"
    async with gateway(tmp_path / "one", store) as one, gateway(tmp_path / "two", store) as two:
        made = await post(one, "keys", {"tenant": "shop", "id": "web"})
        assert made.status == 201
        key = {"authorization": f"Bearer {made.json['key']}"}
        assert (await one.call(chat("solo"), headers=key)).status == 200
        assert (await one.call(chat("auto"), headers=key)).status == 403
        await until(two, key, 200)
        assert (await post(two, "keys/shop/web/revoke", {"reason": "leaked"})).json["state"] == "revoked"
        assert (await two.call(chat("solo"), headers=key)).status == 401
        await until(one, key, 401)
        document_key = {"authorization": "Bearer sk-in-the-document"}
        assert (await one.call(chat(), headers=document_key)).status == 200
        (shown,) = (await get(one, "keys?tenant=shop")).json["keys"]
        assert (shown["state"], shown["revoked_by"]) == ("revoked", "local")
        text = json.dumps((await get(one, "audit")).json) + json.dumps((await get(one, "keys")).json)
        assert made.json["key"] not in text
        assert sha256(made.json["key"].encode()).hexdigest() not in text


async def until(stack: Stack, key: Mapping[str, str], status: int) -> None:
    deadline = asyncio.get_running_loop().time() + PATIENCE_S
    while (await stack.call(chat("solo"), headers=dict(key))).status != status:
        assert asyncio.get_running_loop().time() < deadline
        await asyncio.sleep(0.02)


async def test_a_rotated_key_and_its_successor_are_both_good_for_a_while(tmp_path: Path) -> None:
    async with gateway(tmp_path) as stack:
        old = (await post(stack, "keys", {"tenant": "shop", "id": "web"})).json["key"]
        new = (await post(stack, "keys/shop/web/rotate", {"overlap_s": 3600})).json["key"]
        for key in (old, new):
            assert (await stack.call(chat("solo"), headers={"authorization": f"Bearer {key}"})).status == 200
        newest = (await post(stack, "keys/shop/web/rotate", {"overlap_s": 0})).json["key"]
        notified = [
            (await stack.call(chat("solo"), headers={"authorization": f"Bearer {key}"})).status for key in (old, newest)
        ]
        assert notified == [401, 200]
        again = await post(stack, "keys/shop/web/rotate", {"overlap_s": 0})
        assert (again.status, again.error["code"]) == (409, "key_over")


async def test_a_key_past_its_time_is_no_key(tmp_path: Path) -> None:
    async with gateway(tmp_path) as stack:
        made = (await post(stack, "keys", {"tenant": "shop", "expires_in_s": 0.001})).json
        await until(stack, {"authorization": f"Bearer {made['key']}"}, 401)


async def test_keys_of_the_document_are_changed_there_and_unknown_tenants_have_none(tmp_path: Path) -> None:
    async with gateway(tmp_path) as stack:
        written = await post(stack, "keys/support/k1/revoke", {})
        assert (written.status, written.error["code"]) == (409, "key_in_document")
        assert (await post(stack, "keys", {"tenant": "support", "id": "k1"})).error["code"] == "key_exists"
        assert (await post(stack, "keys", {"tenant": "nobody"})).error["param"] == "tenant"
        assert (await post(stack, "keys/shop/none/revoke", {})).status == 404


async def test_the_first_key_ends_the_open_door(tmp_path: Path) -> None:
    text = policy_text(tmp_path).replace("routes:\n", "tenants: [{id: shop}]\nroutes:\n")
    async with running(tmp_path, policy=text) as stack:
        assert (await stack.call(chat())).status == 200
        made = (await post(stack, "keys", {"tenant": "shop"})).json
        assert "needs a key" in made["note"]
        assert (await stack.call(chat())).status == 401
        assert (await stack.call(chat(), headers={"authorization": f"Bearer {made['key']}"})).status == 200
        assert (await post(stack, f"keys/shop/{made['id']}/revoke", {})).status == 200
        assert (await stack.call(chat())).status == 401  # revoking the last key opens nothing


async def test_keys_of_the_store_are_good_in_a_gateway_that_starts_without_it(tmp_path: Path) -> None:
    async with gateway(tmp_path) as stack:
        key = (await post(stack, "keys", {"tenant": "shop"})).json["key"]
        copy = tmp_path / "keys.last.json"
        while not await asyncio.to_thread(copy.exists):
            await asyncio.sleep(0.01)
    (tmp_path / "file").write_text("no folder")
    async with gateway(tmp_path, tmp_path / "file" / "store.sqlite3") as stack:
        assert (await stack.call(chat("solo"), headers={"authorization": f"Bearer {key}"})).status == 200
        assert (await get(stack, "policy")).status == 401  # nobody can state that there are no admins


async def test_every_change_is_in_the_audit_log_and_a_changed_line_shows(tmp_path: Path) -> None:
    async with gateway(tmp_path) as stack:
        await with_admins(stack)
        await post(stack, "keys", {"tenant": "shop", "id": "web"})
        await post(stack, "keys/shop/web/revoke", {"reason": "leaked"})
        token = {"authorization": f"Bearer {stack.admin_token}"}
        entries = (await get(stack, "audit", token)).json["entries"]
        notified = [(entry["action"], entry["target"]) for entry in entries]
        assert notified[-2:] == [("key.create", "shop/web"), ("key.revoke", "shop/web")]
        assert entries[-1]["reason"] == "leaked"
        newest = (await get(stack, "audit?newest=true&limit=1", token)).json
        assert newest["entries"][0]["action"] == "key.revoke"
        assert (await get(stack, "audit/verify", token)).json["ok"] is True
        logged = [line["hash"] for line in stack.lines("admin_change")]
        assert logged[-1] == entries[-1]["hash"]
    await _tamper(tmp_path / "store.sqlite3")
    async with gateway(tmp_path) as stack:
        verdict = (await get(stack, "audit/verify", token)).json
        assert (verdict["ok"], verdict["broken_at"]) == (False, 2)


async def test_what_was_refused_is_not_in_the_audit_log_as_done(tmp_path: Path) -> None:
    async with gateway(tmp_path) as stack:
        token = {"authorization": f"Bearer {stack.admin_token}"}
        anna = {"name": "anna", "role": "admin", "password": PASSWORD}
        assert [(await post(stack, "admins", anna)).status for _ in range(2)] == [201, 409]
        entries = (await get(stack, "audit", token)).json["entries"]
        assert [entry["action"] for entry in entries] == ["admin.create"]


async def test_what_was_announced_and_lost_a_race_is_withdrawn(tmp_path: Path) -> None:
    store = tmp_path / "store.sqlite3"
    async with gateway(tmp_path / "one", store) as one, gateway(tmp_path / "two", store) as two:
        for number in range(8):
            name = {"name": f"anna{number}", "role": "admin", "password": PASSWORD}
            token = [{"authorization": f"Bearer {stack.admin_token}"} for stack in (one, two)]
            both = await asyncio.gather(post(one, "admins", name, token[0]), post(two, "admins", name, token[1]))
            assert sorted(reply.status for reply in both) == [201, 409]
        entries = (await get(one, "audit", token[0])).json["entries"]
        lines = {entry["seq"]: entry["target"] for entry in entries if entry["action"] == "admin.create"}
        for entry in entries:
            if entry["action"] == "admin.create.withdrawn":
                assert lines.pop(entry["detail"]["line"]) == entry["target"]
        assert sorted(lines.values()) == [f"anna{number}" for number in range(8)]


async def test_an_audit_log_that_lost_its_end_shows_it_and_goes_on(tmp_path: Path) -> None:
    async with gateway(tmp_path) as stack:
        for name in ("a", "b", "c"):
            assert (await post(stack, "keys", {"tenant": "shop", "id": name})).status == 201
        entries = (await get(stack, "audit")).json["entries"]
        await _change_log(tmp_path / "store.sqlite3", "DELETE FROM log WHERE seq > 1")
        verdict = (await get(stack, "audit/verify")).json
        assert (verdict["ok"], verdict["broken_at"]) == (False, 2)
        assert (await post(stack, "keys", {"tenant": "shop", "id": "d"})).status == 201
        after = (await get(stack, "audit")).json["entries"]
        assert [entry["action"] for entry in after] == ["key.create", "audit.cut_off", "key.create"]
        assert after[1]["detail"] == {"num_lines": 3, "hash": entries[-1]["hash"]}
        await _change_log(tmp_path / "store.sqlite3", "DELETE FROM log")
        assert (await post(stack, "keys", {"tenant": "shop", "id": "e"})).status == 201
        assert (await get(stack, "audit/verify")).json["ok"] is True


async def test_an_audit_log_whose_last_line_is_unreadable_refuses_changes_and_gives_the_reason(tmp_path: Path) -> None:
    async with gateway(tmp_path) as stack:
        assert (await post(stack, "keys", {"tenant": "shop", "id": "a"})).status == 201
    await _change_log(tmp_path / "store.sqlite3", "UPDATE log SET payload = X'7B'")
    async with gateway(tmp_path) as stack:
        reply = await post(stack, "keys", {"tenant": "shop", "id": "b"})
        assert (reply.status, reply.error["code"]) == (409, "audit_broken")
        assert "line 1 of the audit log cannot be read" in reply.error["message"]


async def _change_log(store: Path, statement: str) -> None:
    import sqlite3

    with sqlite3.connect(store) as db:
        assert db.execute(statement).rowcount
    db.close()


async def _tamper(store: Path) -> None:
    import sqlite3

    with sqlite3.connect(store) as db:
        (payload,) = db.execute(
            "SELECT payload FROM log WHERE space = ? AND name = ? AND seq = 2", (SPACE, LOG)
        ).fetchone()
        changed = payload.replace(b'"editor"', b'"admin"')
        assert changed != payload
        db.execute("UPDATE log SET payload = ? WHERE space = ? AND name = ? AND seq = 2", (changed, SPACE, LOG))
    db.close()


async def test_lines_that_others_wrote_over_a_log_that_began_anew_are_not_taken_for_those_that_were_lost() -> None:
    store = _Log()
    one, two = AuditLog(store, wall=lambda: 1.0), AuditLog(store, wall=lambda: 2.0)  # type: ignore[arg-type]
    for target in "abc":
        await one.record(SYSTEM, "key.create", target)
    await two.record(SYSTEM, "key.create", "d")
    await one.last()
    store.lines.clear()
    await two.record(SYSTEM, "key.create", "e")
    await two.record(SYSTEM, "key.create", "f")
    await two.record(SYSTEM, "key.create", "g")  # as many lines as there were
    assert (await one.verify()).broken_at == 4
    await one.record(SYSTEM, "key.create", "h")
    assert (await one.verify()).ok
    actions = [(entry["action"], entry["target"]) for entry in await one.entries()]
    assert actions == [
        ("audit.cut_off", "line 4"),
        ("key.create", "e"),
        ("key.create", "f"),
        ("key.create", "g"),
        ("audit.cut_off", "line 4"),
        ("key.create", "h"),
    ]


class _Log:
    """A store's log that can be emptied."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []

    async def append(self, space: str, log: str, payload: bytes, *, after: int | None = None) -> int | None:
        if after is not None and after != len(self.lines):
            return None
        self.lines.append(payload)
        return len(self.lines)

    async def read_log(self, space: str, log: str, *, after: int = 0, limit: int = 1000) -> tuple[LogEntry, ...]:
        found = self.lines[after : after + limit]
        return tuple(LogEntry(after + 1 + index, payload) for index, payload in enumerate(found))
