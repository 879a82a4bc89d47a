"""The spine over real sockets."""

from __future__ import annotations

from pathlib import Path

from tests.gateway.scripted import COMPLETION
from tests.gateway.stack import chat, running


async def test_a_plain_answer_comes_back_byte_for_byte(tmp_path: Path) -> None:
    async with running(tmp_path) as stack:
        reply = await stack.ask(chat())

        assert reply.status == 200
        assert reply.body == COMPLETION
        assert stack.small.received[0].json == chat("tiny")


async def test_a_stream_comes_back_byte_for_byte(tmp_path: Path) -> None:
    async with running(tmp_path) as stack:
        reply = await stack.ask(chat(stream=True))

        assert reply.status == 200
        assert reply.headers["content-type"].startswith("text/event-stream")
        assert reply.body.endswith(b"data: [DONE]\n\n")
        assert stack.lines()[0]["completion_tokens"] == 3
