"""InFlight: how many requests of a tenant are under way in this process, and how many may be."""

from __future__ import annotations

from gateway.admission.quotas.lease import OnLoss


class InFlight:
    """`held` units were given to this process by the store, or by itself once the store is lost."""

    __slots__ = ("ask_again_at", "held", "is_tight", "limit", "now", "on_loss", "until")

    def __init__(self) -> None:
        self.limit: int | None = None
        self.on_loss: OnLoss = "allow"
        self.now = 0
        self.held = 0
        self.until = 0.0
        self.ask_again_at = 0.0
        self.is_tight = False
        """The store gave less than was wished for: others want it too."""

    def has_room(self, now: float) -> bool:
        """Return whether one more request may start without a call to the store."""
        return self.limit is None or (self.now < self.held and now < self.until)
