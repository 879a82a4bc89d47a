"""Trial: which requests a canary's snapshot serves, beside the one in force."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import TYPE_CHECKING

from gateway.chat.request import ChatRequest
from gateway.chat.schema import ChatTextPart, UserMessage
from routing_policies.trial import trial_share

if TYPE_CHECKING:
    from gateway.routing.snapshot import PolicySnapshot

_BUCKETS = 10_000
_MAX_CHARS = 512


class Trial:
    """A canary's share of traffic, drawn per conversation.

    All requests of one conversation take the same side: by their user, cache key or first words.
    """

    __slots__ = ("_limits", "_percent", "_salt", "_tenants", "snapshot")

    def __init__(
        self,
        snapshot: PolicySnapshot,
        *,
        salt: str,
        percent: int,
        tenants: frozenset[str] | None,
        limits: Mapping[str, int],
    ) -> None:
        """Create a trial.

        `limits` holds the largest percentage that each tenant allows; `salt` makes each canary's draw its own.
        """
        self.snapshot = snapshot
        self._salt = salt
        self._percent = percent
        self._tenants = tenants
        self._limits = limits

    def takes(self, tenant: str, request: ChatRequest) -> bool:
        """Return whether the canary serves this request."""
        if (self._tenants is not None and tenant not in self._tenants) or self.snapshot.keys.caller_of(tenant) is None:
            return False
        percent = trial_share(self._percent, self._limits.get(tenant))
        unit = f"{self._salt}\0{tenant}\0{_unit(request)}".encode(errors="surrogatepass")
        drawn = int.from_bytes(blake2b(unit, digest_size=8).digest(), "big") % _BUCKETS
        return drawn < percent * _BUCKETS // 100


def _unit(request: ChatRequest) -> str:
    fields = request.fields
    named = fields.user or fields.prompt_cache_key
    if named:
        return named
    first = next((message for message in request.messages if isinstance(message, UserMessage)), None)
    if first is None:
        return ""
    if isinstance(first.content, str):
        return first.content[:_MAX_CHARS]
    return next((part.text[:_MAX_CHARS] for part in first.content if isinstance(part, ChatTextPart)), "")
