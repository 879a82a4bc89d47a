"""SharedAnswer: one upstream answer under way that several identical requests wait for.

The first request leads: its own way through the pipeline makes the answer. Those that come after follow: they get the
pieces so far at once and the others as they come. A follower that leaves changes nothing; when the leader's client
leaves while others follow, the work continues without it; when the last of all has left, it is cancelled.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, Final

MAX_SHARED_BYTES: Final = 1024 * 1024
"""Length of a shared answer; a longer one is not followed from then on."""

Sink = Callable[[bytes], object]
"""Callback with a piece; the result is ignored."""


class SharedAnswerFollower:
    """One request that waits for the answer of another."""

    __slots__ = ("_cut", "_shared", "sink")

    def __init__(self, shared: SharedAnswer, sink: Sink | None) -> None:
        self._shared = shared
        self._cut: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.sink = sink

    @property
    def is_cut(self) -> bool:
        """Return whether the follower gets nothing more."""
        return self._cut.done()

    def cut(self) -> None:
        """End the follower: `whole` returns None. Idempotent."""
        self.sink = None
        if not self._cut.done():
            self._cut.set_result(None)

    async def whole(self) -> bytes | None:
        """Return the whole completion as JSON once it is there; None when the leader failed, or after `cut`."""
        done = self._shared.done
        try:
            ends: set[asyncio.Future[Any]] = {done, self._cut}
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            return done.result() if done.done() and not self._cut.done() else None
        finally:
            self._shared.unfollow(self)


class SharedAnswer:
    """An answer under way, of one event loop. It ends exactly once, by `finish` or `fail`."""

    __slots__ = (
        *("_call_off", "_followers", "_num_bytes", "_on_end"),
        *("begun", "done", "entry_id", "is_joinable", "pieces", "shape"),
    )

    def __init__(self, shape: bytes, on_end: Callable[[SharedAnswer], None]) -> None:
        """Start an answer; `on_end` gets it as soon as no request may join any more, and perhaps again."""
        self.shape = shape
        """The form of the answer: followers that want the same form may be passed the pieces."""
        self.entry_id: str | None = None
        """The cache entry of the answer, once it is stored."""
        self.pieces: list[bytes] = []
        """The stream so far; empty for a plain answer."""
        self.is_joinable = True
        loop = asyncio.get_running_loop()
        self.begun: asyncio.Future[None] = loop.create_future()
        """Event that is set with the first piece, or with the end."""
        self.done: asyncio.Future[bytes | None] = loop.create_future()
        self._num_bytes = 0
        self._followers: dict[SharedAnswerFollower, None] = {}
        self._call_off: Callable[[], None] | None = None
        self._on_end = on_end

    @property
    def num_followers(self) -> int:
        """Number of requests that wait, the leader not counted."""
        return len(self._followers)

    # The leader.

    def feed(self, piece: bytes) -> None:
        """Pass a piece of the stream on."""
        if not self.begun.done():
            self.begun.set_result(None)
        if not self.is_joinable:
            self._pass_on(piece)
            return
        self._num_bytes += len(piece)
        if self._num_bytes > MAX_SHARED_BYTES:
            self.is_joinable = False
            self.pieces.clear()
            self._on_end(self)
        else:
            self.pieces.append(piece)
        self._pass_on(piece)

    def finish(self, answer: bytes | None) -> None:
        """End the answer; None for one that others may not be given. Idempotent."""
        self.is_joinable = False
        self._on_end(self)
        if not self.done.done():
            self.done.set_result(answer)
        if not self.begun.done():
            self.begun.set_result(None)

    def fail(self) -> None:
        """End without an answer; followers look for one themselves. Idempotent."""
        self.finish(None)

    def keeps_going(self, call_off: Callable[[], None]) -> bool:
        """Go on without the leader's client while others wait, then `call_off`; return whether others wait."""
        if not self._followers or self.done.done():
            return False
        self._call_off = call_off
        return True

    # The followers.

    def follow(self, sink: Sink | None = None) -> SharedAnswerFollower:
        """Join the answer; `sink` gets every later piece, and the caller has written `pieces` itself."""
        follower = SharedAnswerFollower(self, sink)
        self._followers[follower] = None
        return follower

    def unfollow(self, follower: SharedAnswerFollower) -> None:
        """Remove a follower that got its answer or left. Idempotent."""
        if follower not in self._followers:
            return
        del self._followers[follower]
        if not self._followers and self._call_off is not None and not self.done.done():
            call_off, self._call_off = self._call_off, None
            self.is_joinable = False
            self._on_end(self)
            call_off()

    def _pass_on(self, piece: bytes) -> None:
        for follower in tuple(self._followers):
            if follower.sink is not None:
                follower.sink(piece)


class SharedAnswers:
    """The answers under way in this process, by exact fingerprint."""

    __slots__ = ("_by_key",)

    def __init__(self) -> None:
        self._by_key: dict[bytes, SharedAnswer] = {}

    def __len__(self) -> int:
        return len(self._by_key)

    def find(self, key: bytes) -> SharedAnswer | None:
        """Return an answer that may still be joined."""
        shared = self._by_key.get(key)
        return shared if shared is not None and shared.is_joinable else None

    def lead(self, key: bytes, shape: bytes) -> SharedAnswer:
        """Begin an answer; there must be none to join."""
        assert self.find(key) is None, "one leader at a time"
        shared = SharedAnswer(shape, partial(self._forget, key))  # a closure over itself would leave a cycle behind
        self._by_key[key] = shared
        return shared

    def _forget(self, key: bytes, shared: SharedAnswer) -> None:
        if self._by_key.get(key) is shared:
            del self._by_key[key]
