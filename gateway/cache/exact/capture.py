"""Capture: the bounded copy of one response on its way to the client, for the cache and for followers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from gateway.cache.exact.cache_lookup import MAX_STORED_BYTES
from gateway.cache.exact.shared_answer import SharedAnswer
from gateway.chat.operation import CHAT, Operation
from gateway.completion.answers import is_whole
from gateway.completion.assembly import completion_of_stream

MAX_READ_HERE_BYTES: Final = 16 * 1024
"""Longer responses are assembled on a thread: their events are decoded, which takes a millisecond by then."""
UNCOUNTED_BYTES: Final = 64 * 1024
"""Bytes of a copy that take no reservation; more memory is reserved in steps of this size."""


def _always(num_bytes: int) -> bool:
    return True


class Capture:
    """A copy fed by the relay; `completion` is for a response that has ended well."""

    __slots__ = ("_body", "_counted_bytes", "_has_room", "_num_bytes", "_operation", "_pieces", "_shared")

    def __init__(
        self, shared: SharedAnswer | None, has_room: Callable[[int], bool] = _always, operation: Operation = CHAT
    ) -> None:
        """Start a copy; `has_room` reserves so many bytes of memory, or returns False: then nothing is stored."""
        self._shared = shared
        self._operation = operation
        self._has_room = has_room
        self._counted_bytes = UNCOUNTED_BYTES
        self._pieces: list[bytes] = []
        self._num_bytes = 0
        self._body: bytes | None = None

    @property
    def num_bytes(self) -> int:
        """Return the bytes that the copy holds."""
        if self._body is not None:
            return len(self._body)
        return self._num_bytes if self._pieces else 0

    @property
    def is_long(self) -> bool:
        """Return whether `completion` takes too long for the event loop, so that `completed` should be used."""
        num_bytes = self._num_bytes if self._body is None else len(self._body)
        return MAX_READ_HERE_BYTES < num_bytes <= MAX_STORED_BYTES

    def feed(self, piece: bytes) -> None:
        """Copy a piece of a stream."""
        if self._shared is not None:
            self._shared.feed(piece)
        if self._num_bytes <= MAX_STORED_BYTES:
            self._num_bytes += len(piece)
            self._pieces.append(piece)
            if self._num_bytes > self._counted_bytes:
                self._count()
        else:
            self._pieces.clear()

    def take(self, body: bytes) -> None:
        """Copy a plain response."""
        self._body = body

    def completion(self) -> bytes | None:
        """Return the whole completion as JSON, or None when it is too long or not whole."""
        if self._body is not None:
            is_stored = len(self._body) <= MAX_STORED_BYTES and is_whole(self._body, self._operation)
            return self._body if is_stored else None
        if self._num_bytes > MAX_STORED_BYTES:
            return None
        return completion_of_stream(b"".join(self._pieces), self._operation)

    async def completed(self) -> bytes | None:
        """Return what `completion` does, computed on a thread where that takes long."""
        return await asyncio.to_thread(self.completion) if self.is_long else self.completion()

    def _count(self) -> None:
        """Reserve memory for what has come, or give the copy up."""
        missing = max(UNCOUNTED_BYTES, self._num_bytes - self._counted_bytes)
        if self._has_room(missing):
            self._counted_bytes += missing
        else:
            self._num_bytes = MAX_STORED_BYTES + 1
            self._pieces.clear()
