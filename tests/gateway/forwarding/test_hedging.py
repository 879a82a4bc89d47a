"""Hedged streams: a late one gets a second attempt, and the loser is cancelled."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from gateway.deployments.health.ejection import EjectionRules
from tests.faults.stack import failing, faulty, streaming
from tests.faults.test_health_faults import warm
from tests.gateway.scripted import hang
from tests.gateway.stack import chat, encode

HEDGED = "policy: first_available, hedge: {max_ratio: 0.1}"


async def test_a_late_stream_is_requested_elsewhere_and_the_loser_is_cancelled(tmp_path: Path) -> None:
    """Fault row 26: only after what is usual, inside the budget; the loser's connection is closed and counted."""
    async with faulty(tmp_path, select=HEDGED, first_token_ms=10_000, ejection=EjectionRules()) as stack:
        num = await warm(stack, 60)
        hedges = await stack.metric("penstock_hedges_total")  # a busy machine is late by itself
        stack.engines[0].scripts = [hang]
        begun = time.monotonic()
        reply = await stack.call(chat(stream=True))

        assert (reply.status, reply.headers["x-penstock-deployment"]) == (200, "e1")
        assert reply.body.endswith(b"data: [DONE]\n\n")
        assert time.monotonic() - begun < 5
        await asyncio.wait_for(stack.engines[0].gone.wait(), 1)
        assert await stack.metric("penstock_hedges_total") == hedges + 1
        assert await stack.metric("penstock_hedges_total", deployment="e1", end="won") >= 1
        assert await stack.metric("penstock_hedged_prompt_tokens_total", deployment="e0") > 0
        assert await stack.metric("penstock_retries_total") == 0
        await stack.check_invariants(num + 1)


async def test_a_hedge_that_loses_is_cancelled_and_one_that_fails_hurts_nobody(tmp_path: Path) -> None:
    """Fault row 26."""
    async with faulty(tmp_path, select=HEDGED, ejection=EjectionRules()) as stack:
        num = await warm(stack, 60)
        late_s = stack.live(0).first_bytes.late_s(time.monotonic())
        assert late_s is not None
        late = streaming("late", first_s=0.3 + 2 * late_s)
        stack.engines[1].scripts = [hang, failing(500)]
        stack.engines[0].scripts = [late, late]
        for _ in range(2):
            reply = await stack.call(chat(stream=True))
            assert (reply.status, reply.headers["x-penstock-deployment"]) == (200, "e0")

        await asyncio.wait_for(stack.engines[1].gone.wait(), 1)
        assert await stack.metric("penstock_hedges_total", end="lost") == 1
        assert await stack.metric("penstock_hedges_total", end="failed") == 1
        await stack.check_invariants(num + 2)


async def test_hedges_stay_within_their_share_and_off_for_load_retries_and_plain_answers(tmp_path: Path) -> None:
    """Fault row 26: bimodal answers; at most the configured share of requests is called twice."""
    async with faulty(tmp_path, select="policy: first_available, hedge: {max_ratio: 0.02}", permits=8) as stack:
        num = await warm(stack, 50)
        late_s = stack.live(0).first_bytes.late_s(time.monotonic())
        assert late_s is not None
        stack.engines[0].otherwise = streaming("slow", first_s=0.05 + 2 * late_s)
        await stack.call(chat(), headers={})
        await stack.call(chat(stream=True), headers={"x-stainless-retry-count": "1"})
        assert await stack.metric("penstock_hedges_total") == 0
        await stack.storm(chat(stream=True), 40, num_at_once=2)
        hedges = await stack.metric("penstock_hedges_total")
        assert 1 <= hedges <= 0.02 * (num + 42)

        purse = stack.gateway._current().router.match("auto", None, {}).hedges
        assert purse is not None
        purse._purse = 5.0
        await stack.storm(chat(stream=True), 16, num_at_once=8)  # more than half of the permits are taken
        busy = await stack.metric("penstock_hedges_total") - hedges
        assert busy <= 4
        await stack.check_invariants(num + 58)


async def test_a_client_that_leaves_ends_both_attempts(tmp_path: Path) -> None:
    """Fault rows 2 and 26."""
    async with faulty(tmp_path, select=HEDGED) as stack:
        num = await warm(stack, 60)
        stack.engines[0].scripts, stack.engines[1].scripts = [hang], [hang]
        stack.engines[0].gone.clear()
        _, writer = await stack.connect()
        writer.write(encode(chat(stream=True)))
        await asyncio.wait_for(stack.engines[1].got_request.wait(), 30)
        writer.close()
        await asyncio.wait_for(stack.engines[0].gone.wait(), 30)
        await asyncio.wait_for(stack.engines[1].gone.wait(), 30)

        assert (await stack.recorded(num + 1))[-1]["outcome"] == "cancelled"
        await stack.check_invariants(num + 1)


async def test_answers_that_begin_at_the_same_moment_leave_nothing_held(tmp_path: Path) -> None:
    """Fault row 26: both attempts begin in the same instant, clients leave in between; every permit comes back."""
    async with faulty(tmp_path, select="policy: first_available, hedge: {max_ratio: 0.1}", permits=64) as stack:
        num = await warm(stack, 60)
        purse = stack.gateway._current().router.match("auto", None, {}).hedges
        assert purse is not None
        late_s = stack.live(0).first_bytes.late_s(time.monotonic())
        assert late_s is not None
        stack.engines[1].otherwise = streaming("b")
        for step in range(40):
            purse._purse = 5.0
            stack.engines[0].scripts = [streaming("a", first_s=late_s + step * 0.0005)]
            reader, writer = await stack.connect()
            writer.write(encode(chat(stream=True)))
            if step % 4 == 3:
                await asyncio.sleep(late_s + step * 0.0004)
            else:
                assert (await asyncio.wait_for(reader.read(), 10)).startswith(b"HTTP/1.1 200 ")
            writer.transport.abort()
            await stack.recorded(num + step + 1)
        await stack.check_invariants(num + 40)
