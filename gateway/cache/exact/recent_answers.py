"""RecentAnswers: who got an answer to which conversation a short time ago."""

from __future__ import annotations

from typing import Final

from gateway.util.fair_bounded_dict import FairRecent

_MAX_REMEMBERED: Final = 50_000


class RecentAnswers:
    """Times of answers, by conversation and user; a tenant with many of them evicts its own first."""

    __slots__ = ("_answered_at",)

    def __init__(self) -> None:
        self._answered_at: FairRecent[tuple[bytes, str], float] = FairRecent(_MAX_REMEMBERED)

    def note(self, exact: bytes, user: str, tenant: str, now: float) -> None:
        """Note that the user gets an answer to the conversation with this fingerprint."""
        self._answered_at.put((exact, user), now, tenant)

    def is_repeated(self, exact: bytes, user: str, now: float, window_s: float) -> bool:
        """Return whether the user got an answer to an equal conversation within the last `window_s` seconds."""
        answered_at = self._answered_at.get((exact, user))
        return answered_at is not None and 0.0 <= now - answered_at < window_s
