"""Stopping: what is under way ends well or with an error, and the core ends too."""

from __future__ import annotations

import asyncio
import time

from tests.engine.frontend.conftest import Running, StartFront, chat
from tests.engine.frontend.tiny_model import END

PATH = "/v1/chat/completions"


async def draining(running: Running) -> None:
    """Request the drain and wait until it shows."""
    running.front.stop()
    while (await running.client.get("/readyz")).json()["state"] != "draining":
        await asyncio.sleep(0.002)


async def test_a_drain_refuses_new_requests_and_finishes_old_ones(start_front: StartFront) -> None:
    async with start_front(drain_timeout_s=5.0) as running:
        core = await running.core()
        request = asyncio.create_task(running.client.post(PATH, json=chat()))
        add = await core.next_add()
        await draining(running)
        assert (await running.client.get("/readyz")).status_code == 503
        refused = await running.client.post(PATH, json=chat())
        assert (refused.status_code, refused.headers["x-penstock-shed-reason"]) == (503, "draining")
        core.emit(add.seq_id, [*running.ids("hello"), END], "stop")
        assert (await request).json()["choices"][0]["message"]["content"] == "hello"
        await asyncio.wait_for(running.serving, 5)
        assert core.has_shut_down
        assert not running.path.exists()


async def test_what_outlives_the_drain_gets_an_error_event(running: Running) -> None:
    core = await running.core()
    client = await running.raw("POST", PATH, chat(stream=True))
    plain = asyncio.create_task(running.client.post(PATH, json=chat()))
    add = await core.next_add()
    await core.next_add()
    core.emit(add.seq_id, running.ids("hello"))
    started_at = time.monotonic()
    running.front.stop()
    rest = await client.read_to_end()
    assert b'"content":"hello"' in rest
    assert b'"code":"server_is_overloaded"' in rest
    assert b"[DONE]" not in rest
    assert (await plain).status_code == 503
    await asyncio.wait_for(running.serving, 5)
    assert 0.3 <= time.monotonic() - started_at < 3
    await client.leave()


async def test_a_core_that_ignores_shutdown_is_ended(start_front: StartFront) -> None:
    async with start_front() as running:
        core = await running.core()
        core.ignores_shutdown = True
        running.front.stop()
        await asyncio.wait_for(running.serving, 5)
        assert core.was_pushed


async def test_stopping_while_the_core_starts_does_not_wait_for_it(start_front: StartFront) -> None:
    async with start_front(starts_up=False) as running:
        await running.cores.next()
        running.front.stop()
        await asyncio.wait_for(running.serving, 5)
        assert len(running.cores.started) == 1


async def test_the_load_feed_ends_with_the_server(running: Running) -> None:
    await running.core()
    async with running.client.stream("GET", "/engine/load") as response:
        lines = response.aiter_lines()
        assert '"ready":true' in await anext(lines)
        running.front.stop()
        rest = "".join([line async for line in lines])
    assert '"state":"draining"' in rest
