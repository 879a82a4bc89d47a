"""The audit log: every change once, in an order that a changed or lost line breaks visibly."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from gateway.access.audit_log import LOG, SPACE, AuditLog
from gateway.access.identity import SYSTEM
from gateway.store.base import LogEntry, StoreLoss, StoreUnavailable
from tests.gateway.admin.test_access import PASSWORD, gateway, get, post, with_admins


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


async def test_a_log_whose_last_line_is_unreadable_is_still_listed(tmp_path: Path) -> None:
    async with gateway(tmp_path) as stack:
        for name in ("a", "b"):
            assert (await post(stack, "keys", {"tenant": "shop", "id": name})).status == 201
        await _change_log(tmp_path / "store.sqlite3", "UPDATE log SET payload = X'7B' WHERE seq = 2")
        for _ in range(2):
            found = (await get(stack, "audit?newest=true&limit=5")).json
            assert (found["last"], [entry["action"] for entry in found["entries"]]) == (2, ["unreadable", "key.create"])
            assert (await get(stack, "audit")).json["last"] == 2
            assert (await get(stack, "audit/verify")).json["broken_at"] == 2
    async with gateway(tmp_path) as stack:
        assert (await get(stack, "audit?newest=true&limit=5")).json["last"] == 2


async def test_an_unreadable_line_in_the_middle_does_not_stop_changes() -> None:
    store = _Log()
    audit = AuditLog(store, wall=lambda: 1.0)  # type: ignore[arg-type]
    for number in range(501):
        await audit.record(SYSTEM, "key.create", str(number))
    store.lines[499] = b"{"  # the last line of the first page
    anew = AuditLog(store, wall=lambda: 1.0)  # type: ignore[arg-type]
    assert await anew.record(SYSTEM, "key.create", "next") == 502
    assert (await anew.verify()).broken_at == 500


@pytest.mark.parametrize(("was_sent", "actions"), [(True, ["a"]), (False, ["a", "a.withdrawn"])])
async def test_an_announced_change_is_withdrawn_only_where_the_store_surely_did_not_take_it(
    was_sent: bool, actions: list[str]
) -> None:
    audit = AuditLog(_Log(), wall=lambda: 1.0)  # type: ignore[arg-type]
    with pytest.raises(StoreUnavailable):
        async with audit.announced(SYSTEM, "a", "it"):
            raise StoreUnavailable(StoreLoss.DOWN, "gone", was_sent=was_sent)
    entries = await audit.entries()
    assert [entry["action"] for entry in entries] == actions
    assert all(entry["target"] == "it" for entry in entries)
