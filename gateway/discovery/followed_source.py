"""FollowedSource: the last members that one source listed, and whether it can be read."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gateway.timeline import Clock
from routing_policies.policy.members import Address


class FollowedSource:
    """Listing of one source; a failure never changes the members."""

    def __init__(
        self,
        clock: Clock,
        on_change: Callable[[], None],
        on_look: Callable[[bool], None],
        *,
        members: Sequence[Address] = (),
    ) -> None:
        """Start with the members that hold until the first listing.

        Args:
            clock: Monotonic clock.
            on_change: Called when the members have changed.
            on_look: Called after each listing or failure, with whether it was a listing.
            members: Members before the first listing.
        """
        self._clock = clock
        self._on_change = on_change
        self._on_look = on_look
        self.members = tuple(members)
        self.error: str | None = None
        """Reason why the source cannot be read now; None after a listing."""
        self.listed_at: float | None = None
        """Monotonic time of the last listing; None before the first."""

    @property
    def has_reported(self) -> bool:
        """Return whether a listing or a failure has come."""
        return self.listed_at is not None or self.error is not None

    def take(self, members: Sequence[Address]) -> None:
        """Adopt a complete listing."""
        self.listed_at, self.error = self._clock(), None
        self._on_look(True)
        if (found := tuple(members)) != self.members:
            self.members = found
            self._on_change()

    def fail(self, reason: str) -> None:
        """Note that the source cannot be read."""
        self.error = reason
        self._on_look(False)

    def age_s(self) -> float | None:
        """Return the seconds since the last listing."""
        return None if self.listed_at is None else self._clock() - self.listed_at
