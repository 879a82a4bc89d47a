"""The cache as the pipeline sees it: what a lookup says, and where an answer goes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from gateway.cache.exact.entry import CacheEntry
from gateway.cache.exact.fingerprint import Fingerprint
from gateway.cache.exact.shared_answer import SharedAnswer
from gateway.cache.exact.wanted import CacheIdentity
from gateway.chat.request import ChatRequest
from gateway.telemetry.records.cache_reasons import CacheReason
from gateway.telemetry.records.record import CacheResult, Usage

MAX_KEPT_BYTES: Final = 1024 * 1024
"""Of one answer; a longer one is not kept."""


OnKept = Callable[[CacheEntry, Callable[[CacheEntry], None]], None]
"""Gets an entry and the means to share it."""


class CacheLookup:
    """What the cache knows about one request, and what it wants to learn from it."""

    __slots__ = (
        *("age_s", "answer", "entry_id", "following", "key"),
        *("leading", "on_kept", "reason", "result", "wanted"),
    )

    def __init__(
        self,
        result: CacheResult,
        reason: CacheReason,
        *,
        key: Fingerprint | None = None,
        wanted: CacheIdentity | None = None,
        answer: bytes | None = None,
        age_s: float = 0.0,
        entry_id: str | None = None,
    ) -> None:
        self.result = result
        self.reason = reason
        """Why; a metric label."""
        self.key = key
        """Set when the answer of this request is to be kept."""
        self.wanted = wanted
        self.answer = answer
        """A whole JSON completion on a hit."""
        self.age_s = age_s
        self.entry_id = entry_id
        self.leading: SharedAnswer | None = None
        """The one that this request leads."""
        self.following: SharedAnswer | None = None
        """The one that this request may join instead of asking itself."""
        self.on_kept: OnKept | None = None
        """Who is told of the entry that this request makes, and passes it on to other processes."""

    def drop(self) -> None:
        """The request is over; followers of an answer that did not come look for another."""
        if self.leading is not None:
            self.leading.fail()
            self.leading = None


class ResponseStore(Protocol):
    """Finds answers and keeps them. Never raises and never waits."""

    def lookup(self, request: ChatRequest, wanted: CacheIdentity) -> CacheLookup:
        """What is known now."""
        ...

    def stale(self, request: ChatRequest, wanted: CacheIdentity) -> CacheLookup | None:
        """An answer that is too old to be given otherwise, for a moment in which a new one would come too late."""
        ...

    def keep(
        self,
        lookup: CacheLookup,
        answer: bytes | None,
        *,
        is_lasting: bool,
        request_id: str,
        deployment: str,
        usage: Usage | None,
    ) -> None:
        """The request was answered; `answer` is the whole completion, None when it must not be given again, and
        `is_lasting` whether it may be given to more than those who wait for it."""
        ...

    def note_hit(self, request_id: str, entry_id: str) -> None:
        """Remember which entry answered this request, so that feedback can name it."""
        ...
