"""Answers under way: how they begin and end. What requests see of them is tested with the exact tier."""

from __future__ import annotations

import gc

import pytest

from gateway.cache.exact.shared_answer import MAX_SHARED_BYTES, SharedAnswer, SharedAnswers


async def test_an_answer_that_ended_may_not_be_joined_and_another_may_begin() -> None:
    under_way = SharedAnswers()
    first = under_way.lead(b"key", b"")
    assert under_way.find(b"key") is first

    first.finish(b"answer")
    assert under_way.find(b"key") is None
    second = under_way.lead(b"key", b"")
    first.fail()  # once more, as a request's end does: it is not the other's
    assert under_way.find(b"key") is second
    assert len(under_way) == 1


async def test_an_answer_grown_too_long_is_forgotten_while_it_goes_on() -> None:
    under_way = SharedAnswers()
    led = under_way.lead(b"key", b"stream")
    led.feed(b"x" * (MAX_SHARED_BYTES + 1))
    assert (under_way.find(b"key"), len(under_way)) == (None, 0)
    led.feed(b"more")
    led.finish(None)
    assert await led.done is None


@pytest.mark.parametrize("answer", [b"answer", None])
async def test_an_answer_that_ended_is_gone_without_the_collector(answer: bytes | None) -> None:
    under_way = SharedAnswers()
    gc.collect()
    gc.disable()
    try:
        for number in range(100):
            under_way.lead(b"%d" % number, b"").finish(answer)
        left = [thing for thing in gc.get_objects() if type(thing) is SharedAnswer]
        assert not left, f"{len(left)} answers of 100 in cycles"
    finally:
        gc.enable()
