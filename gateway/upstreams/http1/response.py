"""UpstreamResponse: one response, with its head as values, its body as it arrives, and its cancellation."""

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
from gateway.upstreams.http1.sse import BOM, SseProgress, is_event_stream
from gateway.util.reserved_memory import BodyMemory

Sink = Callable[[bytes], None]
Progress = Callable[[bytes], bool]

_UNCOUNTED_BYTES = 64 * 1024
"""Size up to which a body is read whole without a reservation of memory."""
_HELD_RATIO = 2
"""Memory per byte of a body that is read whole: its pieces, and the whole while they are joined."""
_OK = 200


class ResponseSource(Protocol):
    """Connection of the response."""

    def pause(self) -> None:
        """Stop reading from the socket."""

    def resume(self) -> None:
        """Resume reading."""

    def abandon(self) -> None:
        """Close the connection at once, because the response is no longer needed."""

    def distrust(self) -> None:
        """Close the connection, whatever it carries by now, because its answers may belong to other requests."""


class BodyTranslator(Protocol):
    """Translator of a body from one form into another, piece by piece; its errors end the exchange."""

    def feed(self, piece: bytes) -> bytes:
        """Return the translation of what is whole so far, which may be empty."""

    def finish(self) -> bytes:
        """Return the rest at the end of the body."""


class UpstreamResponse:
    """Response of `UpstreamClient.send`, for use with `async with`: leaving before the end closes the connection.

    The connection returns to its pool by itself once the last byte has arrived, whatever still references this object.
    Methods that wait for the upstream raise UpstreamError.
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
        "_origin",
        "_progress",
        "_sink",
        "_source",
        "_translator",
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
        """Headers with lower-case names, in the order received."""
        self.connect_s = connect_s or 0.0
        """Seconds spent on connecting; 0.0 for a reused connection."""
        self.reused = connect_s is None
        self.first_byte_at: float | None = None
        """Instant of the first byte of the response, on the client's clock."""
        self._source: ResponseSource | None = source
        self._origin = source
        self._loop = loop
        self._max_buffer_bytes = max_buffer_bytes
        self._buffer: deque[bytes] = deque()
        self._buffer_bytes = 0
        self.num_progress = 0
        """Number of pieces so far that count as progress."""
        self._is_paused = False
        self._is_finished = False
        self._error: BaseException | None = None
        self._sink: Sink | None = None
        self._progress: Progress | None = None
        self._decoder: ContentDecoder | None = None
        self._translator: BodyTranslator | None = None
        self._waiter: asyncio.Future[None] | None = None

    # For the caller.

    @property
    def is_complete(self) -> bool:
        """True if the last byte has arrived; it may still wait here to be read."""
        return self._is_finished

    @property
    def is_paused(self) -> bool:
        """True if reading is paused because the client is slow."""
        return self._is_paused

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the body in the pieces it came in; stopping early closes the connection."""
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
        """Return the whole body.

        Args:
            limit: Largest size in bytes; UpstreamBodyTooLarge is raised beyond it.
            room: Memory reservation; a long body is read from the socket only as far as it allows.
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
        """Wait until all of the body, or more than `limit` bytes, has arrived."""
        declared = self._refuse_declared_length_above(limit)
        self._max_buffer_bytes = _UNCOUNTED_BYTES if room is not None else max(self._max_buffer_bytes, limit)
        try:
            if room is not None and declared > _UNCOUNTED_BYTES:
                await self._make_room(room, declared)
            self.resume()  # from here on only the room or the limit bounds the buffer
            while not self._is_ended():
                if self._buffer_bytes > limit:
                    break
                if room is not None and self._buffer_bytes > self._max_buffer_bytes:
                    await self._make_room(room, 2 * self._buffer_bytes)
                    self.resume()
                    continue
                await self._wait()
        except BaseException:  # cancellation too: the rest has no reader
            self.close()
            raise

    async def wait_body(self) -> None:
        """Wait for a piece of the body that counts as progress, or for the end.

        Heartbeats before the first token do not count, but the method returns when they fill the buffer.
        """
        try:
            while not (self.num_progress or self._is_paused or self._is_ended()):
                await self._wait()
        except BaseException:  # cancellation too: the rest has no reader
            self.close()
            raise

    def waiting(self) -> list[bytes]:
        """Return the pieces that have arrived unread; they stay in the buffer."""
        return list(self._buffer)

    def drop_mark(self) -> None:
        """Remove the byte-order mark with which the unread pieces begin, if any."""
        if self._buffer and self._buffer[0].startswith(BOM[:1]):
            whole = b"".join(self._buffer)
            rest = whole.removeprefix(BOM)
            self._buffer = deque([rest] if rest else ())
            self._buffer_bytes = len(rest)

    async def wait_more(self) -> bool:
        """Wait for another piece; return False when the body has ended or the buffer is full."""
        num_pieces = len(self._buffer)
        try:
            while len(self._buffer) == num_pieces and not (self._is_paused or self._is_ended()):
                await self._wait()
        except BaseException:  # cancellation too: the rest has no reader
            self.close()
            raise
        return len(self._buffer) > num_pieces

    async def relay(self, sink: Sink, *, progress: Progress | None = None) -> None:
        """Call `sink` with every piece, directly from the socket's callback; return at the end of the body.

        Cancellation closes the connection.

        Args:
            sink: Receives the pieces; its errors are raised here.
            progress: Returns whether a piece restarts the inter-chunk deadline. By default every piece does, except
                heartbeats (comments and blank lines) of an event stream.
        """
        if progress is not None:
            self._progress = progress
        pieces = tuple(self._buffer)
        self._buffer.clear()
        self._buffer_bytes = 0
        self._resume_if_drained()  # before the sink gets any piece: from here on only the sink's owner pauses
        try:
            for piece in pieces:
                sink(piece)
            self._sink = sink
            while not self._is_ended():
                await self._wait()
        except BaseException:  # cancellation and the sink's own errors: the rest has no reader
            self.close()
            raise
        finally:
            self._sink = None  # breaks a reference cycle, so the stream's memory is freed at once

    @property
    def is_events(self) -> bool:
        """True when the body is an event stream, by its type or because it was expected."""
        return self._progress is not None

    def expect_events(self) -> None:
        """Treat the body as an event stream, whatever its type: heartbeats are no progress. Idempotent."""
        if self._progress is None:
            self._progress = SseProgress()

    def translate(self, translator: BodyTranslator) -> None:
        """Translate the body, with what has arrived of it and was not read yet."""
        pieces = [piece for waiting in self._buffer if (piece := translator.feed(waiting))]
        if self._is_finished:
            pieces.append(translator.finish())
        else:
            self._translator = translator
        self._buffer = deque(pieces)
        self._buffer_bytes = sum(map(len, pieces))

    def pause(self) -> None:
        """Stop reading from the upstream, because the client behind `sink` is slow. Idempotent."""
        if not self._is_paused and self._source is not None:
            self._is_paused = True
            self._source.pause()

    def resume(self) -> None:
        """Resume reading from the upstream. Idempotent."""
        if self._is_paused:
            self._is_paused = False
            if self._source is not None:
                self._source.resume()

    def close(self) -> None:
        """Drop the response; unless it is whole and was read, the connection is closed. Idempotent, never raises.

        A refusal need not be read: its status says enough.
        """
        is_unread = self.status == _OK and bool(self._buffer)
        self._buffer.clear()
        self._buffer_bytes = 0
        if self._source is not None:
            self.give_up(ResponseClosed, "the response was closed before its end")
        elif is_unread:
            self.distrust()

    def give_up(self, kind: type[UpstreamError], message: str) -> None:
        """Close the connection at once and fail the response with a `kind` error; does nothing once it is whole."""
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
            raise _without_traceback(self._error)
        return self._is_finished

    async def _make_room(self, room: BodyMemory, num_bytes: int) -> None:
        """Wait, with reading paused, until a body of `num_bytes` may be held."""
        self.pause()
        await room.cover(_HELD_RATIO * num_bytes)
        self._max_buffer_bytes = num_bytes

    def _refuse_declared_length_above(self, limit: int) -> int:
        """Return the declared length, 0 without one; raises UpstreamBodyTooLarge above `limit`."""
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

    def distrust(self) -> None:
        """Close the connection that this response came on, even if it is back in its pool.

        A response that cannot be the answer to its request may be that of another one. Whatever follows on such a
        connection could then reach the wrong client.
        """
        self._origin.distrust()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # For the connection.

    async def wait_head(self) -> None:
        """Wait until `status` and `headers` are set; cancellation closes the connection."""
        try:
            while self.status == 0:
                if self._error is not None:
                    raise _without_traceback(self._error)
                waiter = self._waiter = self._loop.create_future()
                try:
                    await waiter
                finally:
                    self._waiter = None
        except BaseException:  # cancellation: the response has no reader
            self.close()
            self.distrust()
            raise

    def on_head(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        """Adopt the whole head; raises CodingError for an unknown coding of the body."""
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
        """Take a piece of the body and return whether it is progress; raises CodingError, or the sink's own error."""
        if self._decoder is not None:
            piece = self._decoder.feed(piece)
            if not piece:
                return False
        counts = self._progress is None or self._progress(piece)
        if counts:
            self.num_progress += 1
        if self._translator is not None:
            piece = self._translator.feed(piece)
            if not piece:
                return counts
        self._take_in(piece)
        return counts

    def _take_in(self, piece: bytes) -> None:
        """Pass a piece to the sink, or store it for the reader."""
        if self._sink is not None:
            self._sink(piece)
        else:
            self._buffer.append(piece)
            self._buffer_bytes += len(piece)
            if self._buffer_bytes > self._max_buffer_bytes:
                self.pause()
            if self._waiter is not None:
                self._wake()

    def on_end(self) -> None:
        """Complete the body and detach from the connection."""
        if self._decoder is not None:
            try:
                self._decoder.finish()
            except CodingError as error:
                self.on_error(error)
                return
        if self._translator is not None:
            self._finish_translation(self._translator)
        self._source = None
        self._is_finished = True
        if self._waiter is not None:
            self._wake()

    def _finish_translation(self, translator: BodyTranslator) -> None:
        self._translator = None
        if rest := translator.finish():
            self._take_in(rest)

    def on_error(self, error: BaseException) -> None:
        """Fail the response; pieces that came earlier can still be read."""
        self._source = None
        self._error = error
        self._wake()


def _without_traceback(error: BaseException) -> BaseException:
    """Return an equal error to raise; errors of the sink, whose traceback tells its fault, are returned as they are.

    The traceback of a raised error holds the frames of its reader, and those hold the response. A response that held
    the raised error itself would be in a reference cycle with them. Readers may also share one error.
    """
    if not isinstance(error, UpstreamError):
        return error
    same = type(error).__new__(type(error), *error.args)
    same.__dict__.update(error.__dict__)
    same.__cause__ = error.__cause__
    return same
