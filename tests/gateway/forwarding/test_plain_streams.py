"""Plain answers for which the gateway requests a stream."""

from __future__ import annotations

from pathlib import Path

from tests.gateway.scripted import COMPLETION, Wire
from tests.gateway.stack import NO_EJECTION, chat, running


async def test_a_server_that_knows_no_streams_answers_a_plain_request_that_was_sent_as_one(tmp_path: Path) -> None:
    async def plain(wire: Wire) -> None:
        await wire.answer(COMPLETION)

    async with running(tmp_path, ejection=NO_EJECTION) as stack:
        stack.gateway._current().deployments["small"].plain_as_stream = "always"
        stack.small.otherwise = plain
        reply = await stack.call(chat())

        assert (reply.status, reply.headers["x-penstock-deployment"], reply.body) == (200, "small", COMPLETION)
        assert len(stack.small.received) == 1
