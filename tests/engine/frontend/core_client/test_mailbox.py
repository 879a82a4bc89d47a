"""Outputs of a request between the connection that writes them and the task that reads them."""

from __future__ import annotations

import asyncio

import pytest

from engine.frontend.core_client.mailbox import DeadlinePassed, Mailbox, RequestAbandoned
from engine.protocol import SeqOutput


def output(token_id: int) -> SeqOutput:
    return SeqOutput(seq_id=1, token_ids=[token_id])


async def test_a_reader_gets_all_that_arrived_since_it_last_looked() -> None:
    box = Mailbox()
    box.put(output(1), 10.0)
    box.put(output(2), 10.5)
    assert await box.take() == [(output(1), 10.0), (output(2), 10.5)]
    box.put(output(3), 11.0)
    assert await box.take() == [(output(3), 11.0)]


async def test_a_waiting_reader_is_woken() -> None:
    box = Mailbox()
    reader = asyncio.create_task(box.take())
    await asyncio.sleep(0)
    assert not reader.done()
    box.put(output(1), 1.0)
    assert await asyncio.wait_for(reader, 5) == [(output(1), 1.0)]


async def test_a_failure_comes_behind_the_outputs_before_it_and_the_first_one_counts() -> None:
    box = Mailbox()
    box.put(output(1), 1.0)
    box.fail(DeadlinePassed())
    box.fail(ValueError())
    assert len(await box.take()) == 1
    for _ in range(2):
        with pytest.raises(DeadlinePassed):
            await box.take()


async def test_a_client_that_is_gone_reads_no_further() -> None:
    box = Mailbox()
    box.put(output(1), 1.0)
    box.fail(RequestAbandoned())
    with pytest.raises(RequestAbandoned):
        await box.take()


async def test_a_failure_wakes_a_waiting_reader() -> None:
    box = Mailbox()
    reader = asyncio.create_task(box.take())
    await asyncio.sleep(0)
    box.fail(DeadlinePassed())
    with pytest.raises(DeadlinePassed):
        await asyncio.wait_for(reader, 5)


async def test_a_reader_that_was_cancelled_loses_nothing() -> None:
    box = Mailbox()
    reader = asyncio.create_task(box.take())
    await asyncio.sleep(0)
    reader.cancel()
    await asyncio.gather(reader, return_exceptions=True)
    box.put(output(1), 1.0)
    assert await box.take() == [(output(1), 1.0)]
