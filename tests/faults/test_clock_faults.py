"""A machine whose clock is set: deadlines do not notice, and what has a date stays sane (fault row 41)."""

from __future__ import annotations

import asyncio
import hashlib
import time
from pathlib import Path

import pytest

from gateway.app.runtime import Surroundings
from tests.faults.stack import faulty, streaming, text_of
from tests.gateway.stack import chat

KEY = "psk-clock"
HOUR_S = 3600.0
TENANTS = (
    f'[{{id: t, keys: [{{id: k, sha256: "{hashlib.sha256(KEY.encode()).hexdigest()}"}}], '
    "limits: {requests_per_min: 40, tokens_per_min: 100000, max_in_flight: 4}}]"
)
ROUTES = """
  - id: cached
    match: {models: [cached]}
    cache: {mode: exact, scope: tenant, ttl_s: 60}
    select: {candidates: [e0]}
"""


class WallClock:
    """The time of day, which somebody sets."""

    def __init__(self) -> None:
        self.offset_s = 0.0

    def __call__(self) -> float:
        return time.time() + self.offset_s


@pytest.mark.parametrize("jump_s", [HOUR_S, -HOUR_S])
async def test_a_clock_that_is_set_by_an_hour_ends_nothing_and_locks_nobody_out(tmp_path: Path, jump_s: float) -> None:
    wall, headers = WallClock(), {"authorization": f"Bearer {KEY}"}
    around = Surroundings(wall=wall)
    async with faulty(tmp_path, num=1, tenants=TENANTS, routes=ROUTES, around=around) as stack:
        stack.engines[0].otherwise = streaming(*"abcdef", pause_s=0.03)
        under_way = asyncio.create_task(stack.call(chat(stream=True), headers=headers))
        while not stack.engines[0].received:
            await asyncio.sleep(0.005)
        wall.offset_s += jump_s
        reply = await under_way
        assert text_of(reply.body) == "abcdef"
        assert reply.body.endswith(b"data: [DONE]\n\n")

        cached = chat("cached", stream=True, temperature=0)
        assert (await stack.call(cached, headers=headers)).headers["x-penstock-cache"] == "miss"
        hit = await stack.call(cached, headers=headers)
        assert hit.headers["x-penstock-cache"] == "hit-exact"
        wall.offset_s -= 2 * jump_s
        after = await stack.call(cached, headers=headers)
        assert after.status == 200
        assert 0 <= int(after.headers.get("age", 0)) <= 60, "no answer is older than it may be, nor from the future"
        replies = [await stack.call(chat(stream=True), headers=headers) for _ in range(3)]
        assert [reply.status for reply in replies] == [200] * 3, "a quota of the other hour locks nobody out"
        await stack.until_idle()
        assert all(quota.num_in_flight == 0 for quota in stack.gateway._quotas)
