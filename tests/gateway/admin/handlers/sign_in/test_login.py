"""Failed logins slow down their sender alone; what is stored of them is bounded and no secret."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from gateway.access.sign_in.passwords import Passwords
from gateway.admin.handlers.sign_in.login import FAILED_LINES
from tests.gateway.admin.api.test_gate import remote_gateway
from tests.gateway.admin.test_access import PASSWORD
from tests.gateway.stack import Reply, Stack, encode

WRONG = "wrong wrong wrong"


@pytest.fixture
def long_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep what is refused refused, however slow the machine is."""
    monkeypatch.setattr("gateway.access.sign_in.failed_logins.FIRST_DELAY_S", 60.0)


async def log_in(
    stack: Stack, source: str, password: str, *, name: str = "admin", headers: Mapping[str, str] | None = None
) -> Reply:
    """Over a real socket from one of this machine's loopback addresses."""
    port = int(stack.gateway.server.addresses["admin"][0].rpartition(":")[2])
    reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(source, 0))
    body = {"name": name, "password": password}
    writer.write(encode(body, path="/admin/api/login", headers={"host": "127.0.0.1", **(headers or {})}))
    raw = await asyncio.wait_for(reader.read(), 30)
    writer.close()
    return Reply(raw)


async def admins(stack: Stack) -> None:
    port = int(stack.gateway.server.addresses["admin"][0].rpartition(":")[2])
    token = stack.gateway.config.admin.token_file
    assert token is not None
    for role in ("admin", "editor"):
        body = {"name": role, "role": role, "password": PASSWORD}
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        bearer = {"authorization": f"Bearer {token.read_text().strip()}"}
        writer.write(encode(body, path="/admin/api/admins", headers=bearer))
        assert Reply(await asyncio.wait_for(reader.read(), 30)).status == 201
        writer.close()


async def test_a_locked_source_locks_neither_the_account_nor_another_source(tmp_path: Path, long_delay: None) -> None:
    async with remote_gateway(tmp_path) as stack:
        await admins(stack)
        for attacker in ("127.0.0.2", "127.0.0.3"):
            replies = [await log_in(stack, attacker, WRONG) for _ in range(6)]
            assert [reply.status for reply in replies] == [401] * 5 + [429]
            assert 1 <= int(replies[-1].headers["retry-after"]) <= 60
            assert (await log_in(stack, attacker, PASSWORD)).status == 429
            assert (await log_in(stack, attacker, PASSWORD, name="editor")).status == 429
        for name in ("admin", "editor"):
            assert (await log_in(stack, "127.0.0.4", PASSWORD, name=name)).status == 200


async def test_a_device_that_logged_in_before_is_not_locked_out_by_its_neighbours(
    tmp_path: Path, long_delay: None
) -> None:
    """Behind a proxy everybody has its address."""
    async with remote_gateway(tmp_path) as stack:
        await admins(stack)
        first = await log_in(stack, "127.0.0.2", PASSWORD)
        device = _device(first)
        for _ in range(6):
            refused = await log_in(stack, "127.0.0.2", WRONG)
        assert refused.status == 429
        assert (await log_in(stack, "127.0.0.2", PASSWORD)).status == 429
        again = await log_in(stack, "127.0.0.2", PASSWORD, headers=device)
        assert again.status == 200
        for name, headers in (("editor", device), ("admin", {"cookie": device["cookie"] + "0"})):
            assert (await log_in(stack, "127.0.0.2", PASSWORD, name=name, headers=headers)).status == 429
        statuses = [(await log_in(stack, "127.0.0.5", WRONG, headers=device)).status for _ in range(6)]
        assert statuses == [401] * 5 + [429], "a stolen cookie has a few guesses like everybody else"


async def test_names_that_no_admin_has_are_stored_nowhere(tmp_path: Path) -> None:
    typed = ("hunter2hunter2", "Tr0ub4dor.and.3", "correct-horse-battery", "admin1", "ADMIN")
    async with remote_gateway(tmp_path) as stack:
        await admins(stack)
        for number, name in enumerate(typed):
            assert (await log_in(stack, f"127.0.1.{number + 1}", WRONG, name=name)).status == 401
        assert (await log_in(stack, "127.0.2.1", WRONG)).status == 401
        lines = await stack.gateway.control.audit.entries(limit=100)
        assert [line["target"] for line in lines if line["action"] == "login.failed"] == ["unknown"] * 5 + ["admin"]
        stack.gateway.log.flush()
        stored = json.dumps(lines) + stack._log.getvalue().decode()
        files = await asyncio.to_thread(_stored, tmp_path)
        for name in typed[:3]:
            assert name not in stored
            assert name.encode() not in files


async def test_failed_logins_do_not_fill_the_audit_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Passwords, "_verify", lambda self, stored, password: False)
    async with remote_gateway(tmp_path) as stack:
        await admins(stack)
        for number in range(FAILED_LINES + 20):
            assert (await log_in(stack, f"127.0.1.{number + 1}", WRONG)).status == 401
        lines = await stack.gateway.control.audit.entries(limit=500)
        assert FAILED_LINES <= sum(line["action"] == "login.failed" for line in lines) <= FAILED_LINES + 5


async def test_while_too_many_checks_wait_nothing_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with remote_gateway(tmp_path) as stack:
        await admins(stack)
        with monkeypatch.context() as patched:
            patched.setattr(Passwords, "is_full", lambda self, *, is_known=False: not is_known)
            for number in range(8):
                refused = await log_in(stack, "127.0.0.2", WRONG, name=f"name{number}")
                assert (refused.status, refused.headers["retry-after"]) == (429, "1")
        assert not await stack.gateway._stores.control.keys("logins")
        assert (await log_in(stack, "127.0.0.2", PASSWORD)).status == 200


def _stored(folder: Path) -> bytes:
    """The store's files."""
    found = b"".join(path.read_bytes() for path in folder.glob("store.sqlite3*"))
    assert b"login.failed" in found
    return found


def _device(reply: Reply) -> dict[str, str]:
    """The cookie that a login left for the next one."""
    (line,) = [line for line in reply.cookies if line.startswith("penstock_device=")]
    assert {"httponly", "samesite=strict", "path=/admin/api/login"} <= {
        part.strip().lower() for part in line.split(";")
    }
    return {"cookie": line.partition(";")[0]}
