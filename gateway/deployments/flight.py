"""InFlightRequest: one request at one deployment, from sending to its end."""

from __future__ import annotations

from typing import Protocol

import msgspec

from gateway.deployments.ttft_forecast import TtftForecast
from gateway.telemetry.records.record import Usage
from routing_policies.price import Price


class FlightOwner(Protocol):
    """Forecast that tracks requests in flight and learns from them."""

    def note_first_token(self, flight: InFlightRequest, now: float) -> None:
        """Record the first token."""
        ...

    def note_end(self, flight: InFlightRequest, now: float, usage: Usage | None) -> None:
        """Record the end."""
        ...

    def unqueued_ttft_s(self, flight: InFlightRequest) -> float:
        """Return the TTFT in seconds with no request ahead of it."""
        ...


class InFlightRequest(msgspec.Struct, eq=False):
    """Request in flight; it ends exactly once, on every path."""

    owner: FlightOwner
    sent_at: float
    price: Price
    forecast_ttft_s: float
    """TTFT forecast at sending, in seconds."""
    sample: TtftForecast | None
    """Features behind the forecast; None for a request outside the learning sample."""
    rows_before: int
    """Number of sequences decoding at the deployment when the request was sent."""
    lane: str
    """Lane of the engine that the request waits in."""
    is_stream: bool
    """True for a stream; other responses do not show their first token."""
    is_held_up: bool = False
    """True if the gateway paused reading for a slow client, so the duration is no measure of the deployment."""
    first_token_at: float | None = None
    num_rows: int = 0
    """Number of sequences decoding when the first token came, this one included."""
    is_ended: bool = False

    @property
    def measured_ttft_s(self) -> float | None:
        """Seconds from sending to the first token; None before it."""
        return None if self.first_token_at is None else self.first_token_at - self.sent_at

    @property
    def unqueued_ttft_s(self) -> float:
        """TTFT in seconds beside the sequences that ran, with no request ahead and at the usual speed."""
        return self.owner.unqueued_ttft_s(self)

    def first_token(self, now: float) -> None:
        """Record the first token; later calls do nothing."""
        if self.first_token_at is None and not self.is_ended:
            self.first_token_at = now
            self.owner.note_first_token(self, now)

    def ended(self, now: float, usage: Usage | None) -> None:
        """Record the end, with the upstream's usage or None for a broken or uncounted response. Idempotent."""
        if not self.is_ended:
            self.is_ended = True
            self.owner.note_end(self, now, usage)
