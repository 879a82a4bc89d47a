"""Limits and pauses that leave out what this process itself was late."""

from __future__ import annotations

import asyncio
import time

import pytest

from gateway.util.time_limit import MAX_GRACE_S, sleep_running, time_limit


async def test_a_limit_ends_the_body() -> None:
    with pytest.raises(TimeoutError):
        async with time_limit(0.01):
            await asyncio.Event().wait()


async def test_no_limit_ends_nothing() -> None:
    async with time_limit(None):
        await asyncio.sleep(0)


async def test_a_body_that_ends_in_time_leaves_no_timer() -> None:
    async with time_limit(0.001):
        pass
    await asyncio.sleep(0.01)  # a timer left behind would cancel this


async def test_a_limit_that_passed_while_the_loop_was_blocked_leaves_time_to_read() -> None:
    came = asyncio.Event()
    loop = asyncio.get_running_loop()
    async with time_limit(0.05):
        loop.call_soon(time.sleep, 0.5)
        await asyncio.sleep(0)
        loop.call_later(0.05, came.set)  # a peer that answers soon after the loop runs again
        await came.wait()


async def wait_through_two_stalls() -> None:
    """Outlast a limit of 0.05 s, stall once beyond it, and again beyond its extension."""
    loop = asyncio.get_running_loop()
    async with time_limit(0.05):
        loop.call_soon(time.sleep, 0.3)
        loop.call_later(0.4, time.sleep, 0.5)
        await asyncio.Event().wait()


async def test_a_limit_is_extended_only_once() -> None:
    with pytest.raises(TimeoutError):
        await wait_through_two_stalls()


async def test_a_pause_leaves_out_the_time_in_which_the_loop_was_blocked() -> None:
    loop = asyncio.get_running_loop()
    began_at = loop.time()
    loop.call_later(0.1, time.sleep, 0.5)
    await sleep_running(0.3)
    assert loop.time() - began_at >= 0.7


async def test_a_pause_ends_however_often_the_loop_is_blocked() -> None:
    loop = asyncio.get_running_loop()
    began_at, is_over = loop.time(), False

    def block() -> None:
        time.sleep(0.2)
        if not is_over:
            loop.call_soon(block)

    block()
    await sleep_running(1.0)
    is_over = True
    assert loop.time() - began_at < 1.0 + MAX_GRACE_S + 2.0
