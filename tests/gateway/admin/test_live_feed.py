"""The live feed of the admin pages."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.admin.live_feed import MAX_SUBSCRIBERS
from tests.gateway.admin.test_context import POLICY, _subscribe, _until
from tests.gateway.stack import Stack, running


@pytest.fixture
async def stack(tmp_path: Path) -> AsyncIterator[Stack]:
    async with running(tmp_path, policy=POLICY.format(folder=tmp_path)) as stack:
        yield stack


async def test_more_pages_than_may_be_open_are_reported_so(stack: Stack) -> None:
    writers = [(await _subscribe(stack, "topic=load"))[1] for _ in range(MAX_SUBSCRIBERS)]
    try:
        await _until(lambda: stack.gateway.room.feed.num_subscribers == MAX_SUBSCRIBERS)
        reply = await stack.get("/admin/api/live?topic=load", admin=True)
        assert (reply.status, reply.error["code"]) == (503, "too_many_live")
    finally:
        for writer in writers:
            writer.close()
