"""One response: its head as values, its body as it arrives, and the right to give up on it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from types import TracebackType
from typing import Protocol, Self

from gateway.upstreams.http1.content_coding import ContentDecoder, decoder_of
from gateway.upstreams.http1.errors import (
    CodingError,
    ExchangePhase,
    ResponseClosed,
    UpstreamBodyTooLarge,
    UpstreamError,
)
from gateway.upstreams.http1.sse import SseProgress
from gateway.util.header_values import is_event_stream
from gateway.util.reserved_memory import BodyMemory

Sink = Callable[[bytes], None]
Progress = Callable[[bytes], bool]

_UNCOUNTED_BYTES = 64 * 1024
"""A body up to this size is read whole without asking for room."""
_HELD_RATIO = 2
"""Memory per byte of a body that is read whole: the pieces, and the whole while they are joined."""


class ResponseSource(Protocol):
    """The connection, as its current response sees it."""

    def pause(self) -> None:
        """Stop reading from the socket."""

    def resume(self) -> None:
        """Read again."""

    def abandon(self) -> None:
        """Close the connection at once; its response is not wanted any more."""


class UpstreamResponse:
    """What `UpstreamClient.send` returns. Use it with `async with`: leaving before the end closes the connection.

    The connection goes back to its pool by itself when the last byte has arrived, whoever still holds this object.
    """

    __slots__ = (
        "_buffer",
        "_buffer_bytes",
        "_decoder",
        "_error",
        "_is_finished",
        "_is_paused",
        "_loop",
        "_max_buffer_bytes",
        "_progress",
        "_sink",
        "_source",
        "_waiter",
        "connect_s",
        "first_byte_at",
        "headers",
        "num_progress",
        "reused",
        "status",
    )

    def __init__(
        self, source: ResponseSource, loop: asyncio.AbstractEventLoop, *, connect_s: float | None, max_buffer_bytes: int
    ) -> None:
        self.status = 0
        self.headers: list[tuple[bytes, bytes]] = []
        """Lower-case names, in the order received."""
        self.connect_s = connect_s or 0.0
        """Time to make the connection; 0.0 when it was reused."""
        self.reused = connect_s is None
        self.first_byte_at: float | None = None
        """Instant, on the client's clock, of the first byte of the response."""
        self._source: ResponseSource | None = source
        self._loop = loop
        self._max_buffer_bytes = max_buffer_bytes
        self._buffer: deque[bytes] = deque()
        self._buffer_bytes = 0
        self.num_progress = 0
        """Pieces so far that count as progress."""
        self._is_paused = False
        self._is_finished = False
        self._error: BaseException | None = None
        self._sink: Sink | None = None
        self._progress: Progress | None = None
        self._decoder: ContentDecoder | None = None
        self._waiter: asyncio.Future[None] | None = None

    # Whoever asked for the response.

    @property
    def is_complete(self) -> bool:
        """Whether the last byte has arrived (it may still wait here to be read)."""
        return self._is_finished

    @property
    def is_paused(self) -> bool:
        """Whether we stopped reading because the client is slow."""
        return self._is_paused

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body in the pieces it came in. Raises UpstreamError; stopping early closes the connection."""
        try:
            while True:
                while self._buffer:
                    yield self._take()
                if self._is_ended():
                    return
                await self._wait()
        finally:
            self.close()

    async def read(self, limit: int, room: BodyMemory | None = None) -> bytes:
        """The whole body. Raises UpstreamBodyTooLarge above `limit` bytes, or another UpstreamError.

        With `room`, a long body is read from the socket only as far as there is room for it.
        """
        if not self._is_finished:
            await self._wait_whole(limit, room)
        if self._buffer_bytes > limit:
            self.close()
            raise UpstreamBodyTooLarge(f"body exceeds {limit} bytes", phase=ExchangePhase.BODY, response_started=True)
        pieces = tuple(self._buffer)
        self._buffer.clear()
        self._buffer_bytes = 0
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    async def _wait_whole(self, limit: int, room: BodyMemory | None) -> None:
        """Until all of the body is here, or more than `limit` bytes are."""
        declared = self._refuse_declared_length_above(limit)
        self._max_buffer_bytes = _UNCOUNTED_BYTES if room is not None else max(self._max_buffer_bytes, limit)
        try:
            if room is not None and declared > _UNCOUNTED_BYTES:
                await self._make_room(room, declared)
            self.resume()  # from here on the room or the limit alone says how much is held
            while not self._is_ended():
                if self._buffer_bytes > limit:
                    break
                if room is not None and self._buffer_bytes > self._max_buffer_bytes:
                    await self._make_room(room, 2 * self._buffer_bytes)
                    self.resume()
                    continue
                await self._wait()
        except BaseException:  # cancellation too: nobody waits for the rest
            self.close()
            raise

    async def wait_body(self) -> None:
        """Until there is a piece of the body that counts as progress, or its end has come. Raises UpstreamError.

        Heartbeats before the first token do not count; returns all the same when they fill the buffer.
        """
        try:
            while not (self.num_progress or self._is_paused or self._is_ended()):
                await self._wait()
        except BaseException:  # cancellation too: nobody waits for the rest
            self.close()
            raise

    def waiting(self) -> list[bytes]:
        """The pieces that have come and were not read; they stay here."""
        return list(self._buffer)

    async def wait_more(self) -> bool:
        """Until there is another piece; False when the body has ended or no more is held. Raises UpstreamError."""
        num_pieces = len(self._buffer)
        try:
            while len(self._buffer) == num_pieces and not (self._is_paused or self._is_ended()):
                await self._wait()
        except BaseException:  # cancellation too: nobody waits for the rest
            self.close()
            raise
        return len(self._buffer) > num_pieces

    async def relay(self, sink: Sink, *, progress: Progress | None = None) -> None:
        """Call `sink` with every piece, straight from the socket's callback; returns at the end of the body.

        `progress` tells whether a piece restarts the inter-chunk deadline; by default every piece does, except
        heartbeats (comments and blank lines) of an event stream. Raises UpstreamError, or what `sink` raised;
        cancelling closes the connection.
        """
        if progress is not None:
            self._progress = progress
        pieces = tuple(self._buffer)
        self._buffer.clear()
        self._buffer_bytes = 0
        self._resume_if_drained()  # before the sink sees anything: from here on only the sink's owner pauses
        try:
            for piece in pieces:
                sink(piece)
            self._sink = sink
            while not self._is_ended():
                await self._wait()
        except BaseException:  # cancellation and the sink's own errors: nobody waits for the rest
            self.close()
            raise
        finally:
            self._sink = None  # it leads back here: all that one stream held would wait for the collector

    def expect_events(self) -> None:
        """Take the body for an event stream, whatever its type says: heartbeats are no progress. Idempotent."""
        if self._progress is None:
            self._progress = SseProgress()

    def pause(self) -> None:
        """Stop reading from the upstream: the client behind `sink` is slow. Idempotent."""
        if not self._is_paused and self._source is not None:
            self._is_paused = True
            self._source.pause()

    def resume(self) -> None:
        """Read from the upstream again. Idempotent."""
        if self._is_paused:
            self._is_paused = False
            if self._source is not None:
                self._source.resume()

    def close(self) -> None:
        """Give up: unless the response is whole, the connection is closed at once. Idempotent, never raises."""
        self._buffer.clear()
        self._buffer_bytes = 0
        if self._source is not None:
            self.give_up(ResponseClosed, "the response was closed before its end")

    def give_up(self, kind: type[UpstreamError], message: str) -> None:
        """Close the connection at once; whoever waits for this response gets a `kind` error. Nothing once whole."""
        source = self._source
        if source is None:
            return
        phase = ExchangePhase.BODY if self.status else ExchangePhase.HEAD
        started = self.first_byte_at is not None
        self.on_error(kind(message, phase=phase, response_started=started))
        source.abandon()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _take(self) -> bytes:
        piece = self._buffer.popleft()
        self._buffer_bytes -= len(piece)
        self._resume_if_drained()
        return piece

    def _resume_if_drained(self) -> None:
        if self._is_paused and self._buffer_bytes <= self._max_buffer_bytes // 2:
            self.resume()

    def _is_ended(self) -> bool:
        if self._error is not None:
            raise self._error
        return self._is_finished

    async def _make_room(self, room: BodyMemory, num_bytes: int) -> None:
        """Wait, with the socket left unread, until a body of so many bytes may be held."""
        self.pause()
        await room.cover(_HELD_RATIO * num_bytes)
        self._max_buffer_bytes = num_bytes

    def _refuse_declared_length_above(self, limit: int) -> int:
        """The declared length, 0 where there is none."""
        for name, value in self.headers:
            if name == b"content-length":
                if int(value) > limit:
                    self.close()
                    raise UpstreamBodyTooLarge(
                        f"body of {int(value)} bytes exceeds {limit}", phase=ExchangePhase.BODY, response_started=True
                    )
                return int(value)
        return 0

    async def _wait(self) -> None:
        assert self._waiter is None, "one reader at a time"
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # The connection.

    async def wait_head(self) -> None:
        """Until `status` and `headers` are set. Raises UpstreamError; cancelling closes the connection."""
        try:
            while self.status == 0:
                if self._error is not None:
                    raise self._error
                waiter = self._waiter = self._loop.create_future()
                try:
                    await waiter
                finally:
                    self._waiter = None
        except BaseException:  # cancellation: nobody waits for the answer
            self.close()
            raise

    def on_head(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        """The head is whole. Raises CodingError when the body cannot be read."""
        self.status = status
        self.headers = headers
        codings: list[bytes] = []
        for name, value in headers:
            if name == b"content-type" and is_event_stream(value):
                self._progress = SseProgress()
            elif name == b"content-encoding":
                codings.append(value)
        if codings:
            self._decoder = decoder_of(codings, status)
        if self._waiter is not None:
            self._wake()

    def on_piece(self, piece: bytes) -> bool:
        """A piece of the body came; returns whether it is progress. Raises CodingError, or what the sink raises."""
        if self._decoder is not None:
            piece = self._decoder.feed(piece)
            if not piece:
                return False
        counts = self._progress is None or self._progress(piece)
        if counts:
            self.num_progress += 1
        if self._sink is not None:
            self._sink(piece)
        else:
            self._buffer.append(piece)
            self._buffer_bytes += len(piece)
            if self._buffer_bytes > self._max_buffer_bytes:
                self.pause()
            if self._waiter is not None:
                self._wake()
        return counts

    def on_end(self) -> None:
        """The body is whole; the connection is no longer ours."""
        if self._decoder is not None:
            try:
                self._decoder.finish()
            except CodingError as error:
                self.on_error(error)
                return
        self._source = None
        self._is_finished = True
        if self._waiter is not None:
            self._wake()

    def on_error(self, error: BaseException) -> None:
        """The connection is gone; pieces that came before can still be read."""
        self._source = None
        self._error = error
        self._wake()
