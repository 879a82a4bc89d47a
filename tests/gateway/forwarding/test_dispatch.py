"""Dispatch: what a request's way to a deployment takes of the event loop, and what begins in its shadow."""

from __future__ import annotations

import asyncio
import gc

import pytest

from gateway.forwarding.dispatch import Dispatch


class Ticks:
    """A clock that goes on only when somebody works."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def work(self, seconds: float) -> None:
        self.now += seconds


async def test_work_counts_and_waiting_does_not() -> None:
    clock = Ticks()

    async def sent() -> None:
        clock.work(1)
        await asyncio.sleep(0)
        clock.work(2)

    dispatch = Dispatch(sent(), clock, lambda: clock.work(100))
    await dispatch
    assert dispatch.worked_s == 3


async def test_what_it_takes_to_call_off_counts_too() -> None:
    clock = Ticks()

    async def sent() -> None:
        try:
            clock.work(1)
            await asyncio.sleep(60)
        finally:
            clock.work(2)

    dispatch = Dispatch(sent(), clock)
    task = asyncio.ensure_future(_awaited(dispatch))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert dispatch.worked_s == 3


async def test_something_begins_once_when_there_is_nothing_to_do_but_wait() -> None:
    order: list[str] = []

    async def sent() -> None:
        order.append("sent")
        await asyncio.sleep(0)
        order.append("answered")
        await asyncio.sleep(0)

    await Dispatch(sent(), Ticks(), lambda: order.append("looked"))
    assert order == ["sent", "looked", "answered"]


async def test_nothing_begins_for_what_fails_before_it_waits() -> None:
    async def refused() -> None:
        raise ConnectionError

    with pytest.raises(ConnectionError):
        await Dispatch(refused(), Ticks(), lambda: pytest.fail("nobody waits"))


async def test_an_error_beside_it_ends_it_properly() -> None:
    is_closed = False

    async def sent() -> None:
        nonlocal is_closed
        try:
            await asyncio.sleep(60)
        finally:
            is_closed = True

    def broken() -> None:
        raise ValueError("beside")

    with pytest.raises(ValueError, match="beside"):
        await Dispatch(sent(), Ticks(), broken)
    assert is_closed


async def test_one_that_was_called_off_leaves_no_garbage() -> None:
    async def sent() -> None:
        await asyncio.sleep(60)

    async def once() -> None:
        task = asyncio.ensure_future(_awaited(Dispatch(sent(), Ticks())))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])

    await once()
    gc.collect()
    gc.freeze()  # what other tests left is not counted
    gc.disable()
    try:
        for _ in range(100):
            await once()
        await asyncio.sleep(0)
        assert gc.collect() < 100
    finally:
        gc.enable()
        gc.unfreeze()


async def _awaited(dispatch: Dispatch) -> None:
    await dispatch
