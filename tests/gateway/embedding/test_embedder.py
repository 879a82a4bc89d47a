"""The queue before the encoder: bounded, in batches, and nobody's leaving is another's trouble."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import Executor

import numpy as np
import pytest
from numpy.typing import NDArray

from gateway.embedding.embedder import BATCH_CHARS, BATCH_TEXTS, MAX_TEXT_CHARS, Embedder
from gateway.embedding.encoder import TextEncoder
from gateway.embedding.model_files import EncoderUnavailable
from tests.gateway.embedding.scripted_encoder import PATIENCE_S, ScriptedEncoder


class EmbedderHarness:
    """An embedder, its encoder and what it given."""

    def __init__(self, encoder: ScriptedEncoder, *, max_waiting: int = 32) -> None:
        self.encoder = encoder
        self.counted: Counter[str] = Counter()
        self.failures: list[BaseException] = []
        self.embedder = Embedder(
            encoder.load,
            count=lambda result: self.counted.update([result]),
            on_failure=self.failures.append,
            max_waiting=max_waiting,
        )

    def call(self, text: str) -> asyncio.Task[float | None]:
        """Embed in a task; its result is the length that the vector shows."""

        async def sending() -> float | None:
            vector = await self.embedder.embed(text)
            return None if vector is None else float(vector[0])

        return asyncio.create_task(sending())


@pytest.fixture
async def harness() -> AsyncIterator[EmbedderHarness]:
    """Ready, free-running."""
    made = EmbedderHarness(ScriptedEncoder())
    await connected(made)
    yield made
    await made.embedder.aclose()


@pytest.fixture
async def held() -> AsyncIterator[EmbedderHarness]:
    """Ready, each batch waiting to be let go, room for three."""
    made = EmbedderHarness(ScriptedEncoder(held=True), max_waiting=3)
    await connected(made)
    yield made
    made.encoder.let_go(100)
    await made.embedder.aclose()


async def connected(harness: EmbedderHarness) -> None:
    harness.embedder.start()
    await until(lambda: harness.embedder.is_ready)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.001)


async def test_each_text_gets_its_own_vector(harness: EmbedderHarness) -> None:
    requested = [harness.call("x" * length) for length in range(1, 30)]
    assert await asyncio.gather(*requested) == list(range(1, 30))
    assert harness.counted == {"encoded": 29}
    assert max(map(len, harness.encoder.batches)) <= BATCH_TEXTS


async def test_what_came_while_it_was_busy_is_the_next_batch(held: EmbedderHarness) -> None:
    first = held.call("a")
    await until(lambda: len(held.encoder.batches) == 1)
    rest = [held.call(text) for text in ("bb", "ccc")]
    await until(lambda: held.embedder.num_waiting == 2)
    held.encoder.let_go(2)
    assert await asyncio.gather(first, *rest) == [1, 2, 3]
    assert held.encoder.batches == [["a"], ["bb", "ccc"]]


async def test_a_long_text_is_a_batch_of_its_own(held: EmbedderHarness) -> None:
    first = held.call("a")
    await until(lambda: len(held.encoder.batches) == 1)
    rest = [held.call(text) for text in ("b" * (BATCH_CHARS + 1), "c")]
    await until(lambda: held.embedder.num_waiting == 2)
    held.encoder.let_go(3)
    await asyncio.gather(first, *rest)
    assert [len(batch) for batch in held.encoder.batches] == [1, 1, 1]


async def test_a_full_queue_gives_none_at_once(held: EmbedderHarness) -> None:
    requested = [held.call("a")]
    await until(lambda: len(held.encoder.batches) == 1)
    requested += [held.call(text) for text in ("b", "c", "d")]
    await until(lambda: held.embedder.num_waiting == 3)
    assert await held.embedder.embed("e") is None
    assert held.counted == {"queue_full": 1}
    held.encoder.let_go(2)
    assert await asyncio.gather(*requested) == [1, 1, 1, 1]


async def test_a_text_too_long_to_mean_anything_has_no_vector(harness: EmbedderHarness) -> None:
    assert await harness.embedder.embed("x" * (MAX_TEXT_CHARS + 1)) is None
    assert await harness.embedder.embed("x" * MAX_TEXT_CHARS) is not None
    assert harness.counted == {"too_long": 1, "encoded": 1}


async def test_a_text_that_the_encoder_cannot_read_has_no_vector(harness: EmbedderHarness) -> None:
    assert await harness.embedder.embed("") is None
    assert harness.counted == {"unreadable": 1}


async def test_who_is_cancelled_while_waiting_leaves_the_queue(held: EmbedderHarness) -> None:
    requested = [held.call("a")]
    await until(lambda: len(held.encoder.batches) == 1)
    leaving = [held.call(text) for text in ("b", "c", "d")]
    await until(lambda: held.embedder.num_waiting == 3)
    for task in leaving:
        task.cancel()
    await asyncio.gather(*leaving, return_exceptions=True)
    assert held.embedder.num_waiting == 0
    requested.append(held.call("ee"))
    held.encoder.let_go(2)
    assert await asyncio.gather(*requested) == [1, 2]
    assert held.encoder.batches == [["a"], ["ee"]]
    assert held.counted == {"cancelled": 3, "encoded": 2}


async def test_who_is_cancelled_while_being_encoded_takes_nobody_along(held: EmbedderHarness) -> None:
    first = held.call("a")
    await until(lambda: len(held.encoder.batches) == 1)
    leaving, staying = held.call("bb"), held.call("ccc")
    await until(lambda: held.embedder.num_waiting == 2)
    held.encoder.let_go()
    await until(lambda: len(held.encoder.batches) == 2)
    leaving.cancel()
    held.encoder.let_go()
    assert [await first, await staying] == [1, 3]
    with pytest.raises(asyncio.CancelledError):
        await leaving


class PanicException(BaseException):
    """As pyo3 raises it when Rust code panics: no Exception."""


@pytest.mark.parametrize("failure", [RuntimeError, PanicException])
async def test_a_batch_that_fails_gives_none_and_the_next_one_is_encoded(
    harness: EmbedderHarness, failure: type[BaseException]
) -> None:
    harness.encoder.fails_on, harness.encoder.failure = "bad", failure
    assert await harness.call("bad") is None
    assert await harness.call("good") == 4
    assert harness.counted == {"failed": 1, "encoded": 1}
    assert [str(failure) for failure in harness.failures] == ["cannot encode bad"]


async def test_the_thread_that_encodes_takes_no_core_from_the_loop_as_it_wakes_up() -> None:
    policies: list[int] = []

    class Watched(ScriptedEncoder):
        def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
            policies.append(os.sched_getscheduler(0))
            return super().encode(texts)

    harness = EmbedderHarness(Watched())
    await connected(harness)
    assert await harness.call("abc") == 3
    await harness.embedder.aclose()
    assert (policies, os.sched_getscheduler(0)) == ([os.SCHED_BATCH], os.SCHED_OTHER)


async def test_nobody_waits_before_it_is_ready() -> None:
    harness = EmbedderHarness(ScriptedEncoder())
    assert await harness.embedder.embed("early") is None
    assert harness.counted == {"not_ready": 1}
    assert harness.embedder.encoder_id is None
    await connected(harness)
    assert harness.embedder.encoder_id == "scripted"
    assert await harness.call("late") == 4
    await harness.embedder.aclose()


async def test_closing_gives_none_to_those_who_wait() -> None:
    harness = EmbedderHarness(ScriptedEncoder(held=True))
    await connected(harness)
    requested = [harness.call("a")]
    await until(lambda: len(harness.encoder.batches) == 1)
    requested.append(harness.call("b"))
    await until(lambda: harness.embedder.num_waiting == 1)
    closing = asyncio.create_task(harness.embedder.aclose())
    assert await asyncio.gather(*requested) == [None, None]
    harness.encoder.let_go(2)
    await closing
    assert await harness.embedder.embed("c") is None
    await harness.embedder.aclose()


async def test_loading_is_tried_again_after_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.embedding.embedder._RETRY_PAUSES_S", (0.0,))
    encoder, attempts, failures = ScriptedEncoder(), [0], list[BaseException]()

    async def load(thread: Executor) -> TextEncoder:
        attempts[0] += 1
        if attempts[0] < 3:
            raise EncoderUnavailable("not installed")
        return encoder

    embedder = Embedder(load, count=lambda result: None, on_failure=failures.append)
    embedder.start()
    await until(lambda: embedder.is_ready)
    assert [str(failure) for failure in failures] == ["not installed", "not installed"]
    await embedder.aclose()


async def test_closing_while_it_loads_stops_the_loading() -> None:
    begun, cancelled = asyncio.Event(), []

    async def load(thread: Executor) -> TextEncoder:
        begun.set()
        try:
            await asyncio.sleep(PATIENCE_S)
        except asyncio.CancelledError:
            cancelled.append(True)
            raise
        raise AssertionError("nobody closed it")

    embedder = Embedder(load, count=lambda result: None, on_failure=lambda error: None)
    embedder.start()
    await begun.wait()
    await embedder.aclose()
    assert cancelled == [True]
    assert not embedder.is_ready


async def test_it_is_idle_once_it_is_loaded_and_no_text_waits(held: EmbedderHarness) -> None:
    await asyncio.wait_for(held.embedder.until_idle(), PATIENCE_S)
    tasks = [held.call(text) for text in ("one", "four")]
    await asyncio.sleep(0)
    idle = asyncio.create_task(held.embedder.until_idle())
    await asyncio.sleep(0)
    assert not idle.done()
    held.encoder.let_go(2)
    await asyncio.wait_for(idle, PATIENCE_S)
    assert held.embedder.num_waiting == 0
    await asyncio.gather(*tasks)
