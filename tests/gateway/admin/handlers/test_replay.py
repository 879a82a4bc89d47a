"""`POST /admin/api/replay`: who may, what is refused, and what stays in the audit log."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway.telemetry.records.answer_log import find_answer
from tests.gateway.replay.replay_stack import SETTINGS, replayed
from tests.gateway.stack import chat, running

PATH = "/admin/api/replay"


async def test_a_replay_is_a_line_in_the_audit_log_without_any_text(tmp_path: Path) -> None:
    async with running(tmp_path, settings=SETTINGS) as stack:
        sent = (await stack.call(chat(temperature=0))).headers["x-request-id"]
        await replayed(stack, sent, bisect=True)
        entries = (await stack.get("/admin/api/audit", admin=True)).json["entries"]
        (entry,) = [entry for entry in entries if entry["action"] == "request.replay"]
        assert entry["target"] == sent
        assert entry["detail"] == {"tenant": "dev", "bisect": True}
        assert "hello" not in str(entry)
        assert await stack.metric("penstock_replays_total", result="equal") == 1


async def test_a_record_from_another_place_is_replayed_here(tmp_path: Path) -> None:
    async with running(tmp_path, settings=SETTINGS) as stack:
        sent = (await stack.call(chat(temperature=0))).headers["x-request-id"]
        await replayed(stack, sent)
        record = await asyncio.to_thread(find_answer, tmp_path / "recorded" / "answers", sent)
        assert record is not None
        reply = await stack.call({"record": msgspec.to_builtins(record)}, path=PATH, admin=True)
        assert reply.json["replay"]["is_equal"] is True


@pytest.mark.parametrize(
    ("order", "param"),
    [
        ({}, "id"),
        ({"id": "req_1", "record": {}}, "id"),
        ({"record": {"id": "req_1"}}, "record"),
        ({"record": {**dict.fromkeys(("id", "tenant", "model", "route", "policy", "deployment"), "x"), "at": 1.0,
                     "request": "{}", "sent": "{}", "answer": "{}"}}, "model"),
    ],
)  # fmt: skip
async def test_what_is_no_record_is_refused_with_its_place(tmp_path: Path, order: Any, param: str) -> None:
    async with running(tmp_path, settings=SETTINGS) as stack:
        reply = await stack.call(order, path=PATH, admin=True)
        assert (reply.status, reply.error["param"]) == (400, param), reply.body


async def test_a_login_is_needed(tmp_path: Path) -> None:
    async with running(tmp_path, settings=SETTINGS) as stack:
        reply = await stack.call({"id": "req_1"}, path=PATH, admin=True, headers={"authorization": "Bearer no"})
        assert reply.status == 401
