"""InFlight: the number of a tenant's requests in flight in this process, and its limit."""

from __future__ import annotations

from gateway.admission.quotas.lease import OnLoss


class InFlight:
    """Counter of requests in flight; the store, or this process once the store is lost, grants `held` units."""

    __slots__ = ("held", "is_tight", "limit", "now", "on_loss", "retry_at", "until")

    def __init__(self) -> None:
        self.limit: int | None = None
        self.on_loss: OnLoss = "allow"
        self.now = 0
        self.held = 0
        self.until = 0.0
        self.retry_at = 0.0
        self.is_tight = False
        """True if the store granted less than requested: other processes need units, too."""

    def has_room(self, now: float) -> bool:
        """Return whether one more request may start without a call to the store."""
        return self.limit is None or (self.now < self.held and now < self.until)
