"""A client that leaves frees the core at once, wherever its request is."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Iterator

from tests.engine.frontend.conftest import Running, StartFront, chat

PROMPT = "/v1/chat/completions"


@contextlib.contextmanager
def within(seconds: float) -> Iterator[None]:
    """The body took no longer than this."""
    started_at = time.perf_counter()
    yield
    assert time.perf_counter() - started_at < seconds


async def test_leaving_before_the_first_token_aborts_within_50_ms(running: Running) -> None:
    core = await running.core()
    for stream in (True, False):
        client = await running.raw("POST", PROMPT, chat(stream=stream))
        add = await core.next_add()
        with within(0.05):
            client.writer.close()
            abort = await core.next_abort()
        assert abort.seq_ids == [add.seq_id]
        await client.leave()


async def test_leaving_mid_stream_aborts_within_50_ms(running: Running) -> None:
    core = await running.core()
    client = await running.raw("POST", PROMPT, chat(stream=True))
    add = await core.next_add()
    core.emit(add.seq_id, running.ids("hello"))
    await client.read_until(b'"content":"hello"')
    with within(0.05):
        client.reset()
        abort = await core.next_abort()
    assert abort.seq_ids == [add.seq_id]


async def test_leaving_while_a_plain_answer_is_half_done_aborts(running: Running) -> None:
    core = await running.core()
    client = await running.raw("POST", PROMPT, chat())
    add = await core.next_add()
    core.emit(add.seq_id, running.ids("hello"))
    await asyncio.sleep(0.01)
    with within(0.05):
        client.reset()
        abort = await core.next_abort()
    assert abort.seq_ids == [add.seq_id]


async def test_every_choice_is_aborted_and_ended_ones_are_not(running: Running) -> None:
    core = await running.core()
    client = await running.raw("POST", PROMPT, chat(n=3))
    adds = [await core.next_add() for _ in range(3)]
    core.emit(adds[1].seq_id, running.ids("one"), "length")
    await asyncio.sleep(0.01)
    client.reset()
    assert (await core.next_abort()).seq_ids == [adds[0].seq_id, adds[2].seq_id]


async def test_a_half_closed_connection_counts_as_gone(running: Running) -> None:
    core = await running.core()
    client = await running.raw("POST", PROMPT, chat())
    add = await core.next_add()
    client.writer.write_eof()
    assert (await core.next_abort()).seq_ids == [add.seq_id]
    await client.leave()


async def test_leaving_with_a_second_request_in_the_pipe_aborts_the_first(running: Running) -> None:
    core = await running.core()
    client = await running.raw("POST", PROMPT, chat())
    add = await core.next_add()
    client.writer.write(b"GET /livez HTTP/1.1\r\nhost: test\r\n\r\n")
    await asyncio.sleep(0.01)
    client.reset()
    assert (await core.next_abort()).seq_ids == [add.seq_id]


async def test_tokens_that_come_after_the_client_left_are_dropped(running: Running) -> None:
    core = await running.core()
    client = await running.raw("POST", PROMPT, chat())
    add = await core.next_add()
    client.reset()
    await core.next_abort()
    core.emit(add.seq_id, running.ids("hello"))
    core.emit(add.seq_id, [], "abort")
    request = asyncio.create_task(running.client.post(PROMPT, json=chat()))
    second = await core.next_add()
    core.emit(second.seq_id, running.ids("fine"), "length")
    assert (await request).json()["choices"][0]["message"]["content"] == "fine"


async def test_a_storm_of_leaving_clients_leaves_nothing_behind(running: Running) -> None:
    core = await running.core()
    clients = [await running.raw("POST", PROMPT, chat(stream=i % 2 == 0)) for i in range(50)]
    adds = {(await core.next_add()).seq_id for _ in clients}
    for client in clients:
        client.reset()
    aborted = {(await core.next_abort()).seq_ids[0] for _ in clients}
    assert aborted == adds
    metrics = (await running.client.get("/metrics")).text
    assert "engine_ready 1.0" in metrics
    events = running.client.stream("GET", "/engine/load")
    async with events as response:
        first = await anext(response.aiter_lines())
    assert '"num_open":0' in first


async def test_a_client_that_reads_nothing_is_given_up(start_front: StartFront) -> None:
    async with start_front(write_stall_s=0.1) as running:
        core = await running.core()
        client = await running.raw("POST", PROMPT, chat(stream=True))
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        add = await core.next_add()
        aborted = asyncio.create_task(core.next_abort())
        while not aborted.done():
            core.emit(add.seq_id, running.ids("hello world") * 2000)
            await asyncio.sleep(0.005)
        assert (await aborted).seq_ids == [add.seq_id]
        client.reset()


async def test_every_event_carries_the_usage_so_far_where_the_client_wants_it(running: Running) -> None:
    core = await running.core()
    options = {"include_usage": True, "continuous_usage_stats": True}
    fields = chat(stream=True, stream_options=options)
    request = asyncio.create_task(running.client.post("http://test/v1/chat/completions", json=fields))
    add = await core.next_add()
    core.emit(add.seq_id, running.ids("hello"), "length")
    lines = (await request).text.splitlines()
    usages = [json.loads(line[6:])["usage"] for line in lines if line.startswith("data: {")]
    assert len(usages) >= 3
    assert {usage["prompt_tokens"] for usage in usages} == {len(add.prompt_token_ids)}
    assert usages[-1]["completion_tokens"] == len(running.ids("hello"))
