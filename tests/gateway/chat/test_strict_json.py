"""Where a body is parsed: a short one at once, a long one where it holds nobody up."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from gateway.chat.request import ChatRequest, ChatRequestParser
from gateway.chat.strict_json import LONG_BYTES
from tests.gateway.stack import chat, running


def sending(num_bytes: int) -> dict[str, object]:
    return {**chat(), "messages": [{"role": "user", "content": "x" * num_bytes}]}


@pytest.mark.parametrize(("num_bytes", "is_here"), [(100, True), (LONG_BYTES, False)])
async def test_only_long_bodies_leave_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, num_bytes: int, is_here: bool
) -> None:
    threads: list[threading.Thread] = []

    class Watched(ChatRequestParser):
        def parse(self, body: bytes) -> ChatRequest:
            threads.append(threading.current_thread())
            return super().parse(body)

    monkeypatch.setattr("gateway.app.request_path.ChatRequestParser", Watched)
    async with running(tmp_path) as stack:
        assert (await stack.call(sending(num_bytes))).status == 200
    assert [thread is threading.current_thread() for thread in threads] == [is_here]


async def test_a_long_body_that_is_wrong_is_refused_like_a_short_one(tmp_path: Path) -> None:
    async with running(tmp_path) as stack:
        short, long = await asyncio.gather(
            *(stack.call({**sending(size), "temperature": "hot"}) for size in (100, LONG_BYTES))
        )

    assert (short.status, long.status) == (400, 400)
    assert short.json["error"] == long.json["error"]
