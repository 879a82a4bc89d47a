"""Cache seam: what a lookup returns, and the cache that is always bypassed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from gateway.request import ChatRequest
from gateway.telemetry.record import CacheResult
from routing_policies.document import Cache


@dataclass(frozen=True, slots=True, kw_only=True)
class Lookup:
    """What the cache knows about a request; `answer` is a whole JSON completion on a hit."""

    result: CacheResult
    answer: bytes | None = None
    age_s: float = 0.0


class AnswerCache(Protocol):
    """Finds an answer that was given before and may be given again."""

    def lookup(self, request: ChatRequest, rule: Cache, tenant: str) -> Lookup:
        """Never raises and never waits."""
        ...


_BYPASS = Lookup(result=CacheResult.BYPASS)


class BypassCache:
    """Looks nothing up and keeps nothing."""

    def lookup(self, request: ChatRequest, rule: Cache, tenant: str) -> Lookup:
        """Always `bypass`."""
        return _BYPASS
