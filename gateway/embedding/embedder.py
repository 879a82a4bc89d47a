"""Embedder: the event loop's side of the encoder, with a bounded queue and batches.

One thread encodes. Each batch takes the texts that arrived during the last one. A lone text therefore never waits for a
batch to fill, and many texts share its cost. A text that finds the queue full goes without a vector at once.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Executor
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from gateway.embedding.background import stay_behind
from gateway.embedding.encoder import TextEncoder, Vector
from gateway.embedding.model_files import EncoderUnavailable
from gateway.util.workers import Workers

MAX_WAITING: Final = 32
MAX_TEXT_CHARS: Final = 4096
"""Longest text that is encoded; the encoder reads about a thousand characters, too few to represent a longer one."""
BATCH_TEXTS: Final = 8
BATCH_CHARS: Final = 1024
"""Characters in one batch of several texts; it bounds the wait of texts that arrive meanwhile."""
_RETRY_PAUSES_S: Final = (5.0, 30.0, 300.0)

EmbedResult = Literal["encoded", "unreadable", "cancelled", "not_ready", "queue_full", "too_long", "failed"]
"""Outcome of one text; a closed set of metric labels."""


class _Wanted:
    __slots__ = ("text", "vector")

    def __init__(self, text: str, vector: asyncio.Future[Vector | None]) -> None:
        self.text = text
        self.vector = vector


class Embedder:
    """Queue in front of an encoder; all but the encoding runs on the loop that called `start`."""

    def __init__(
        self,
        load: Callable[[Executor], Awaitable[TextEncoder]],
        *,
        count: Callable[[EmbedResult], None],
        on_failure: Callable[[BaseException], None],
        max_waiting: int = MAX_WAITING,
        close: Callable[[], None] | None = None,
    ) -> None:
        """Create a stopped embedder.

        Args:
            load: Loads the encoder, given the thread that encodes; retried after EncoderUnavailable.
            count: Called with the result of each text.
            on_failure: Called with each error of loading or encoding.
            max_waiting: Length of the queue.
            close: Called at the end, when nothing is encoded any more; it may block.
        """
        self._load = load
        self._count = count
        self._on_failure = on_failure
        self._max_waiting = max_waiting
        self._close = close
        self._waiting: deque[_Wanted] = deque()
        self._has_work = asyncio.Event()
        self._is_idle = asyncio.Event()
        self._thread: Workers | None = None
        self._task: asyncio.Task[None] | None = None
        self._encoder: TextEncoder | None = None

    @property
    def is_ready(self) -> bool:
        """True if the encoder is loaded; before that no request should wait for a vector."""
        return self._encoder is not None

    @property
    def encoder_id(self) -> str | None:
        """Id that vectors are stored under; None until the encoder is loaded."""
        return None if self._encoder is None else self._encoder.id

    @property
    def dimensions(self) -> int | None:
        """Length of a vector; None until the encoder is loaded."""
        return None if self._encoder is None else self._encoder.dimensions

    @property
    def num_waiting(self) -> int:
        """Number of texts that no batch has taken yet."""
        return len(self._waiting)

    async def until_idle(self) -> None:
        """Return once the encoder is loaded and no text waits for it."""
        await self._is_idle.wait()

    def start(self) -> None:
        """Begin to load the encoder, unless that has begun; returns at once."""
        if self._task is None:
            self._thread = Workers(1, name="encoder", initializer=stay_behind)
            self._task = asyncio.get_running_loop().create_task(self._live(self._thread), name="embedder")

    async def aclose(self) -> None:
        """Stop after the running batch; waiting texts get None. Idempotent."""
        task, self._task = self._task, None
        thread, self._thread = self._thread, None
        self._encoder = None
        self._is_idle.clear()
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        self._give(tuple(self._waiting), None)
        self._waiting.clear()
        if thread is not None:
            await asyncio.to_thread(thread.shutdown)
        if self._close is not None:
            await asyncio.to_thread(self._close)

    async def embed(self, text: str) -> Vector | None:
        """Return the text's vector; None when it is too long or too foreign to have one, or the queue is full.

        A text whose waiter is cancelled leaves the queue.
        """
        refused = self._refusal(text)
        if refused is not None:
            self._count(refused)
            return None
        wanted = _Wanted(text, asyncio.get_running_loop().create_future())
        self._waiting.append(wanted)
        self._is_idle.clear()
        self._has_work.set()
        try:
            vector = await wanted.vector
        except asyncio.CancelledError:
            self._count("cancelled")
            with contextlib.suppress(ValueError):  # its batch has begun
                self._waiting.remove(wanted)
            raise
        if vector is None:
            self._count("failed")
            return None
        is_readable = bool(vector.any())
        self._count("encoded" if is_readable else "unreadable")
        return vector if is_readable else None

    def _refusal(self, text: str) -> EmbedResult | None:
        if len(text) > MAX_TEXT_CHARS:
            return "too_long"
        if self._encoder is None:
            return "not_ready"
        return "queue_full" if len(self._waiting) >= self._max_waiting else None

    async def _live(self, thread: Executor) -> None:
        encoder = await self._load_patiently(thread)
        self._encoder = encoder
        loop = asyncio.get_running_loop()
        while True:
            if not self._waiting:
                self._is_idle.set()
            await self._has_work.wait()
            batch = self._take()
            if not batch:
                self._has_work.clear()
                continue
            try:
                vectors = await loop.run_in_executor(thread, encoder.encode, [wanted.text for wanted in batch])
            except (asyncio.CancelledError, KeyboardInterrupt, SystemExit):
                self._give(batch, None)
                raise
            # Requests go on without a vector after any error; a panic in the runtime's Rust code is no Exception.
            except BaseException as error:
                self._on_failure(error)
                self._give(batch, None)
            else:
                self._give(batch, vectors)

    async def _load_patiently(self, thread: Executor) -> TextEncoder:
        failures = 0
        while True:
            try:
                return await self._load(thread)
            except EncoderUnavailable as error:
                self._on_failure(error)
            await asyncio.sleep(_RETRY_PAUSES_S[min(failures, len(_RETRY_PAUSES_S) - 1)])
            failures += 1

    def _take(self) -> tuple[_Wanted, ...]:
        """Take the next batch, oldest first: one text, and the following ones while they are few and short."""
        batch: list[_Wanted] = []
        num_chars = 0
        while self._waiting and len(batch) < BATCH_TEXTS:
            num_chars += len(self._waiting[0].text)
            if batch and num_chars > BATCH_CHARS:
                break
            batch.append(self._waiting.popleft())
        return tuple(batch)

    def _give(self, batch: Sequence[_Wanted], vectors: NDArray[np.float32] | None) -> None:
        for place, wanted in enumerate(batch):
            if not wanted.vector.done():
                wanted.vector.set_result(None if vectors is None else vectors[place])
