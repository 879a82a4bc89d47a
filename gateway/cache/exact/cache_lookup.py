"""CacheLookup: the cache's state of one request, and CacheIdentity: its tenant, route, rule and candidates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from gateway.cache.exact.control import NO_WISHES, CacheControl
from gateway.cache.exact.entry import CacheEntry
from gateway.cache.exact.fingerprint import Fingerprint
from gateway.cache.exact.shared_answer import SharedAnswer
from gateway.telemetry.records.cache_reasons import CacheReason
from gateway.telemetry.records.record import CacheResult
from routing_policies.policy.document import Cache

MAX_STORED_BYTES: Final = 1024 * 1024
"""Length of one response; a longer one is not stored."""

OnStored = Callable[[CacheEntry, Callable[[CacheEntry], None]], None]
"""Callback with a new entry and the means to share it."""


class CacheIdentity(msgspec.Struct, frozen=True):
    """The identity of a request for the cache: its tenant, route, rule and candidates."""

    rule: Cache
    route: str
    tenant: str
    candidates: bytes
    """Digest that separates the route's candidates from another's."""
    control: CacheControl = NO_WISHES
    regenerating_user: str | None = None
    """User for whom a repeated conversation asks for a new response; None where it does not."""


class CacheLookup:
    """The state of one request in the cache: its result, its key and the response to store."""

    __slots__ = (
        *("age_s", "answer", "entry_id", "following", "key"),
        *("leading", "on_stored", "reason", "result", "wanted"),
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
        """Reason for the lookup's result; a metric label."""
        self.key = key
        """Fingerprint to store the response under; None when it is not stored."""
        self.wanted = wanted
        self.answer = answer
        """The whole JSON completion on a hit."""
        self.age_s = age_s
        self.entry_id = entry_id
        self.leading: SharedAnswer | None = None
        """The shared answer that this request makes."""
        self.following: SharedAnswer | None = None
        """A shared answer that this request may join."""
        self.on_stored: OnStored | None = None
        """Callback with the entry that this request makes; it passes the entry on to other processes."""

    def drop(self) -> None:
        """End the request; followers of an answer that did not come look for another."""
        if self.leading is not None:
            self.leading.fail()
            self.leading = None
