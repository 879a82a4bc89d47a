"""InFlightRequest: one request at one deployment, from the moment it was sent to its end."""

from __future__ import annotations

from typing import Protocol

import msgspec

from gateway.deployments.ttft_forecast import TtftForecast
from gateway.telemetry.records.record import Usage
from routing_policies.price import Price


class FlightOwner(Protocol):
    """Who keeps the books of flights and learns from them."""

    def note_first_token(self, flight: InFlightRequest, now: float) -> None:
        """Text came for the first time."""
        ...

    def note_end(self, flight: InFlightRequest, now: float, usage: Usage | None) -> None:
        """It is over."""
        ...

    def unqueued_ttft_s(self, flight: InFlightRequest) -> float:
        """What its first token takes when nothing is ahead of it."""
        ...


class InFlightRequest(msgspec.Struct, eq=False):
    """Ends exactly once, whatever happens."""

    owner: FlightOwner
    sent_at: float
    price: Price
    forecast_ttft_s: float
    """As it was when the request was sent."""
    sample: TtftForecast | None
    """What the forecast was made from; None outside the sample that is learned from."""
    rows_before: int
    """Answers that were being generated there when it was sent."""
    lane: str
    """Of the engine's, the one it stands in."""
    is_stream: bool
    """A plain answer never shows its first token."""
    is_held_up: bool = False
    """We stopped reading, because whoever reads from us is slow: the time it takes says nothing."""
    first_token_at: float | None = None
    num_rows: int = 0
    """Answers that were being generated there when the first token came, this one included."""
    is_ended: bool = False

    @property
    def measured_ttft_s(self) -> float | None:
        """Seconds from sending to the first token, None while there is none."""
        return None if self.first_token_at is None else self.first_token_at - self.sent_at

    @property
    def unqueued_ttft_s(self) -> float:
        """What the first token takes beside the rows that ran, with nothing ahead of it, at the usual speed."""
        return self.owner.unqueued_ttft_s(self)

    def first_token(self, now: float) -> None:
        """Text came; later calls do nothing."""
        if self.first_token_at is None and not self.is_ended:
            self.first_token_at = now
            self.owner.note_first_token(self, now)

    def ended(self, now: float, usage: Usage | None) -> None:
        """It is over: whole, with what the upstream counted, or broken off or without a count (None). Idempotent."""
        if not self.is_ended:
            self.is_ended = True
            self.owner.note_end(self, now, usage)
