"""Failed logins slow down their sender alone; what is stored of them is bounded and no secret."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from gateway.access.accounts import Admin
from gateway.access.sign_in.known_device import DEVICE_S, device_cookie, device_id
from gateway.access.sign_in.passwords import MAX_WAITING, Passwords, PasswordsBusy
from gateway.access.sign_in.source_rate import SourceRate, source_of
from gateway.admin.handlers.login import FAILED_LINES
from gateway.admin.handlers.oidc import STARTS
from tests.gateway.access.sign_in import test_oidc
from tests.gateway.admin.test_access import PASSWORD
from tests.gateway.admin.test_remote import remote_gateway
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


async def test_logins_with_the_provider_are_limited_by_source(tmp_path: Path) -> None:
    async with test_oidc.gateway(tmp_path) as (stack, _):
        statuses = [(await stack.get("/admin/api/oidc/start", admin=True)).status for _ in range(STARTS + 5)]
        assert statuses[:STARTS] == [303] * STARTS
        assert set(statuses[STARTS + 1 :]) == {429}


async def test_of_too_many_logins_with_the_provider_the_oldest_are_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.access.sign_in.oidc.MAX_PENDING", 3)
    async with test_oidc.gateway(tmp_path) as (stack, provider):
        store = stack.gateway._stores.control
        for _ in range(10):
            assert (await stack.get("/admin/api/oidc/start", admin=True)).status == 303
        assert len(await store.keys("oidc")) == 3
        done, _ = await test_oidc.come_back(stack, provider)
        assert done.status == 200
        assert len(await store.keys("oidc")) == 2


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


async def test_checks_of_passwords_wait_in_a_bounded_line_with_places_for_known_devices() -> None:
    passwords = Passwords()
    stored = await passwords.hash(PASSWORD)
    await passwords._turn.acquire()
    strangers = [asyncio.create_task(passwords.is_right(None, WRONG)) for _ in range(MAX_WAITING)]
    await asyncio.sleep(0)
    with pytest.raises(PasswordsBusy):
        await passwords.is_right(stored, PASSWORD)
    known = asyncio.create_task(passwords.is_right(stored, PASSWORD, is_known=True))
    await asyncio.sleep(0)
    for task in strangers:
        task.cancel()
    await asyncio.gather(*strangers, return_exceptions=True)
    with pytest.raises(PasswordsBusy):  # who has left still has a check to be made
        await passwords.is_right(stored, PASSWORD)
    passwords._turn.release()
    assert await known
    assert await passwords.is_right(stored, PASSWORD)


def test_a_source_has_its_burst_and_then_its_rate_and_old_sources_are_forgotten() -> None:
    now = [0.0]
    rate = SourceRate(burst=2, per_s=0.5, clock=lambda: now[0], max_sources=100)
    assert [rate.take("a") for _ in range(3)] == [0.0, 0.0, 2.0]
    assert rate.take("b") == 0.0
    now[0] = 2.0
    assert rate.take("a") == 0.0
    now[0] = 1.0  # a clock that goes back gives nothing and takes nothing
    assert rate.take("a") == 2.0
    for number in range(100_000):
        rate.take(f"source {number}")
    assert len(rate) == 100


@pytest.mark.parametrize(
    ("client", "source"),
    [
        (("192.0.2.7", 1), "192.0.2.7"),
        (("::ffff:192.0.2.7", 1), "192.0.2.7"),
        (("2001:db8:1:2:3:4:5:6", 1), "2001:db8:1:2::/64"),
        (("2001:db8:1:2::9", 2), "2001:db8:1:2::/64"),
        (("fe80::1%eth0", 1), "fe80::/64"),
        (("odd", 1), "odd"),
        (("", 0), "local"),
        (None, "local"),
    ],
)
def test_a_source_is_an_address_or_an_ipv6_network(client: tuple[str, int] | None, source: str) -> None:
    forged = [(b"x-forwarded-for", b"203.0.113.1")]
    assert source_of({"client": client, "headers": forged}) == source


def test_a_device_is_known_to_its_admin_until_the_password_changes() -> None:
    anna = Admin(name="anna", role="admin", created_at=0.0, created_by="x", password_hash="$argon2id$one")
    value = device_cookie(anna, 1_000.0)
    assert value is not None
    assert device_id(value, anna, 2_000.0) == value.partition(".")[0]
    others = (
        Admin(name="bert", role="admin", created_at=0.0, created_by="x", password_hash="$argon2id$one"),
        Admin(name="anna", role="admin", created_at=0.0, created_by="x", password_hash="$argon2id$two"),
        Admin(name="anna", role="admin", created_at=0.0, created_by="x"),
        None,
    )
    assert [device_id(value, other, 2_000.0) for other in others] == [None] * 4
    assert device_id(value, anna, 1_000.0 + DEVICE_S) is None
    for bad in (None, "", ".", "..", "x", "a.b.c", "\xff", value[:-1], f"x{value}", value * 9):
        assert device_id(bad, anna, 2_000.0) is None
    assert device_cookie(others[2], 0.0) is None


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
