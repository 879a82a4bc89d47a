"""ServedEncoder: an encoder for requests of clients, on threads of its own, in pieces that share them fairly.

The cache has another encoder, so that its lookups never wait behind a client's batch.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Executor
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gateway.embedding.background import stay_behind
from gateway.embedding.model_files import EncoderUnavailable
from gateway.errors import InvalidRequest, Shed, ShedReason
from gateway.util.workers import Workers

if TYPE_CHECKING:
    from gateway.embedding.onnx_encoder import OnnxEncoder

PIECE_TOKENS: Final = 1024
"""Tokens that one request has encoded before another one's turn."""
_TEXTS_AT_ONCE: Final = 64
"""Texts that are cut into tokens at once."""
_RETRY_PAUSES_S: Final = (5.0, 30.0, 300.0)
_RETRY_AFTER_S: Final = 5.0

LoadEncoder = Callable[[Executor], "Awaitable[OnnxEncoder]"]
"""Loader of the encoder, given the threads that encode."""


EncoderState = Literal["starting", "ready", "failed"]
"""State of an encoder; one that failed to load is loaded again later."""


class TextVectors(NamedTuple):
    """Vectors of some inputs."""

    vectors: NDArray[np.float32]
    """Shape `[inputs, dimensions]`; each row has length 1."""
    num_tokens: int
    """Tokens of all inputs, marks included."""


class ServedEncoder:
    """Encoder that loads once it is wanted; every method belongs to one event loop."""

    def __init__(self, load: LoadEncoder, *, num_threads: int, on_failure: Callable[[BaseException], None]) -> None:
        """Create a stopped encoder; `on_failure` gets each error of loading, which is then tried again."""
        self._load = load
        self._num_threads = num_threads
        self._on_failure = on_failure
        self._threads: Workers | None = None
        self._task: asyncio.Task[None] | None = None
        self._encoder: OnnxEncoder | None = None
        self._num_failures = 0

    @property
    def state(self) -> EncoderState:
        """State for probes."""
        if self._encoder is not None:
            return "ready"
        return "failed" if self._num_failures else "starting"

    def start(self) -> None:
        """Begin to load, unless that has begun; returns at once."""
        if self._task is None:
            self._threads = Workers(self._num_threads, name="embeddings", initializer=stay_behind)
            self._task = asyncio.get_running_loop().create_task(self._load_patiently(self._threads), name="embeddings")

    async def aclose(self) -> None:
        """Stop after the running pieces. Idempotent."""
        task, self._task = self._task, None
        threads, self._threads = self._threads, None
        self._encoder = None
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        if threads is not None:
            threads.shutdown(wait=False, cancel_futures=True)
            await asyncio.to_thread(threads.join)

    async def vectors(self, inputs: Sequence[str | list[int]], dimensions: int | None, name: str) -> TextVectors:
        """Return the vectors of texts, or of tokens of this encoder's vocabulary.

        Args:
            inputs: Texts or token ids.
            dimensions: Length to which vectors are cut before they get length 1 again; None leaves them whole.
            name: Name of the model in errors.

        Raises:
            InvalidRequest: An input is too long or has an unknown token, or `dimensions` exceeds the model's.
            Shed: The encoder is not loaded yet.
        """
        encoder, threads = self._encoder, self._threads
        if encoder is None or threads is None:
            raise _still_loading()
        if dimensions is not None and dimensions > encoder.dimensions:
            raise InvalidRequest(
                f"`dimensions` must be at most {encoder.dimensions} for '{name}'; got {dimensions}.", param="dimensions"
            )
        rows = await self._rows(encoder, threads, inputs, name)
        pieces = [await threads.run(encoder.vectors_of, piece) for piece in _pieces(rows)]
        found = np.concatenate(pieces)
        if dimensions is not None and dimensions < encoder.dimensions:
            found = _shortened(found, dimensions)
        return TextVectors(found, sum(map(len, rows)))

    async def _rows(
        self, encoder: OnnxEncoder, threads: Workers, inputs: Sequence[str | list[int]], name: str
    ) -> list[list[int]]:
        rows: list[list[int]] = []
        for start in range(0, len(inputs), _TEXTS_AT_ONCE):
            some = inputs[start : start + _TEXTS_AT_ONCE]
            texts = [one for one in some if isinstance(one, str)]
            if texts:
                rows += await threads.run(encoder.rows_of, texts)
            else:
                rows += [encoder.marked(one) for one in some if not isinstance(one, str)]
        for place, row in enumerate(rows):
            _check_row(row, place, len(rows), encoder, name)
        return rows

    async def _load_patiently(self, threads: Executor) -> None:
        while True:
            try:
                self._encoder = await self._load(threads)
            except EncoderUnavailable as error:
                self._num_failures += 1
                self._on_failure(error)
            else:
                return
            await asyncio.sleep(_RETRY_PAUSES_S[min(self._num_failures, len(_RETRY_PAUSES_S)) - 1])


def _check_row(row: list[int], place: int, num_rows: int, encoder: OnnxEncoder, name: str) -> None:
    path = f"input[{place}]" if num_rows > 1 else "input"
    if len(row) > encoder.max_tokens:
        raise InvalidRequest(
            f"`{path}` must have at most {encoder.max_tokens} tokens for '{name}'; got {len(row)}. Split the text.",
            param=path,
            code="context_length_exceeded",
        )
    if (token := max(row, default=0)) >= encoder.num_words:
        raise InvalidRequest(
            f"`{path}` has token {token}; the vocabulary of '{name}' has {encoder.num_words} tokens. "
            "Send text, or tokens of this model's own tokenizer.",
            param=path,
        )


def _pieces(rows: list[list[int]]) -> list[list[list[int]]]:
    """Return the rows in order, cut into pieces of at most `PIECE_TOKENS` tokens or one row."""
    pieces: list[list[list[int]]] = []
    num_tokens = PIECE_TOKENS
    for row in rows:
        num_tokens += len(row)
        if num_tokens > PIECE_TOKENS or not pieces:
            pieces.append([])
            num_tokens = len(row)
        pieces[-1].append(row)
    return pieces


def _shortened(vectors: NDArray[np.float32], dimensions: int) -> NDArray[np.float32]:
    """Return the first dimensions of each vector, with length 1; a row of zeros stays one."""
    cut = vectors[:, :dimensions]
    lengths = np.linalg.norm(cut, axis=1, keepdims=True)
    found: NDArray[np.float32] = np.divide(cut, lengths, out=np.zeros_like(cut), where=lengths > 0)
    return found


def _still_loading() -> Shed:
    return Shed(
        ShedReason.OVERLOAD,
        lane="",
        message="The encoder is being loaded. Try again after the time in Retry-After.",
        hint="The same request at a later time.",
        retry_after_s=_RETRY_AFTER_S,
        predicted_wait_s=_RETRY_AFTER_S,
    )
