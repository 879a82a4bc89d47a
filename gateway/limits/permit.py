"""Permit: one unit of admitted concurrency, returned exactly once."""

from __future__ import annotations

from types import TracebackType
from typing import Protocol

import msgspec

from gateway.limits.admission_request import AdmissionRequest


class PermitOwner(Protocol):
    """Limiter that counts the permits in use."""

    def take_back(self, permit: Permit) -> None:
        """Return a permit whose work is over."""
        ...

    def resize(self, permit: Permit, tokens: int) -> None:
        """Correct the work counted for a permit to `tokens`."""
        ...

    def note_ttft(self, permit: Permit, measured_s: float, expected_s: float) -> None:
        """Learn from the permit's first token."""
        ...


class Permit(msgspec.Struct, eq=False):
    """One unit of concurrency.

    Leaving the `with` block or calling `release` returns it; a second release does nothing.
    """

    _owner: PermitOwner | None
    claim: AdmissionRequest
    tokens: int
    """Work tokens counted for the permit now."""
    granted_at: float = 0.0
    unread: int = 0
    """Tokens that its prompt counts until its first token; 0 once it came, or when it is not awaited."""
    waited_s: float = 0.0
    """Seconds that the request waited in the queue."""

    @property
    def is_released(self) -> bool:
        """True if the permit has been returned."""
        return self._owner is None

    def settle(self, tokens: int) -> None:
        """Correct the work counted for the permit to `tokens`; does nothing after the release."""
        if self._owner is not None and tokens != self.tokens:
            self._owner.resize(self, max(tokens, 1))

    def note_ttft(self, measured_s: float, expected_s: float) -> None:
        """Report the TTFT, measured and as expected without a queue, to the adaptive limit."""
        if self._owner is not None:
            self._owner.note_ttft(self, measured_s, expected_s)

    def release(self) -> None:
        """Return the permit. Idempotent."""
        owner, self._owner = self._owner, None
        if owner is not None:
            owner.take_back(self)

    def __enter__(self) -> Permit:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()
