"""The end of a process."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Final

import pytest

from gateway.app.serving import CLOSE_S
from tests.gateway.stack import Reply, chat
from tests.gateway.test_long_requests import call, served

ENDED_S: Final = 5.0
"""For the interpreter to end on a busy machine."""


@pytest.mark.parametrize("stuck", ["stuck_reading", "stuck_files"])
async def test_sigterm_ends_a_process_whose_work_hangs_within_the_drain_budget(stuck: str, tmp_path: Path) -> None:
    """Fault row 46."""
    drain_s = 1.0
    body = json.dumps(chat("plain", messages=[{"role": "user", "content": "x" * (1 << 20)}])).encode()
    async with served(tmp_path, stuck, settings={"process.drain_timeout_s": drain_s}) as gateway:
        hanging = []
        if stuck == "stuck_reading":  # more than threads and places in their queue
            hanging = [asyncio.create_task(call(tmp_path / "public.sock", body)) for _ in range(80)]
            refused = await next(iter(asyncio.as_completed(hanging)))
            assert (refused.status, refused.error["code"]) == (503, "server_is_overloaded")
            assert "retry-after" in refused.headers
        began_at = time.monotonic()
        gateway.terminate()
        assert await gateway.ended() == 0
        assert time.monotonic() - began_at < drain_s + CLOSE_S + ENDED_S
        for reply in await asyncio.gather(*hanging, return_exceptions=True):
            if isinstance(reply, ConnectionError):
                continue  # its body was still on the way when the process ended
            assert isinstance(reply, Reply), reply
            assert (reply.status, reply.error["code"]) == (503, "server_is_overloaded")
