"""Permit: one unit of admitted concurrency, given back exactly once."""

from __future__ import annotations

from types import TracebackType
from typing import Protocol

import msgspec

from gateway.limits.admission_request import AdmissionRequest


class PermitOwner(Protocol):
    """Who counts the permits that are out."""

    def take_back(self, permit: Permit) -> None:
        """The permit's work is over."""
        ...

    def resize(self, permit: Permit, tokens: int) -> None:
        """The permit's work turned out to be `tokens`."""
        ...

    def note_ttft(self, permit: Permit, measured_s: float, expected_s: float) -> None:
        """The permit's first token came."""
        ...


class Permit(msgspec.Struct, eq=False):
    """Leave the `with` block, or call `release`, and the unit is free again; a second release does nothing."""

    _owner: PermitOwner | None
    claim: AdmissionRequest
    tokens: int
    """What is counted for it now."""
    granted_at: float = 0.0
    unread: int = 0
    """What its prompt counts until its first token; 0: it came, or is not awaited."""
    waited_s: float = 0.0
    """Seconds the request stood in the queue."""

    @property
    def is_released(self) -> bool:
        """Whether the unit was given back."""
        return self._owner is None

    def settle(self, tokens: int) -> None:
        """The work turned out to be `tokens`; what was claimed beyond it is free at once. Nothing after the release."""
        if self._owner is not None and tokens != self.tokens:
            self._owner.resize(self, max(tokens, 1))

    def note_ttft(self, measured_s: float, expected_s: float) -> None:
        """Sending to first token, and what it takes where nothing is queued; the adaptive limit learns from it."""
        if self._owner is not None:
            self._owner.note_ttft(self, measured_s, expected_s)

    def release(self) -> None:
        """Give the unit back."""
        owner, self._owner = self._owner, None
        if owner is not None:
            owner.take_back(self)

    def __enter__(self) -> Permit:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()
