"""A pause lasts until its event is set again, or for its time."""

from __future__ import annotations

import asyncio

from gateway.util.next_set import until_set_again


async def test_an_event_that_was_set_before_does_not_end_the_pause() -> None:
    event = asyncio.Event()
    event.set()
    pause = asyncio.create_task(until_set_again(event, 60.0))
    await asyncio.sleep(0)
    assert not pause.done()
    event.set()
    await asyncio.wait_for(pause, 10)


async def test_the_pause_ends_after_its_time() -> None:
    event = asyncio.Event()
    await asyncio.wait_for(until_set_again(event, 0.01), 10)
    assert not event.is_set()
