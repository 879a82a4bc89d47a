"""Flight: one request at one deployment, from the moment it was sent to its end."""

from __future__ import annotations

from typing import Protocol

from gateway.routing.ttft_forecast import TtftForecast
from gateway.telemetry.record import Usage
from routing_policies.price import Price


class FlightOwner(Protocol):
    """Who keeps the books of flights and learns from them."""

    def note_first_token(self, flight: Flight, now: float) -> None:
        """Text came for the first time."""
        ...

    def note_end(self, flight: Flight, now: float, usage: Usage | None) -> None:
        """It is over."""
        ...

    def unqueued_ttft_s(self, flight: Flight) -> float:
        """What its first token takes when nothing is ahead of it."""
        ...


class Flight:
    """Ends exactly once, whatever happens."""

    __slots__ = (
        "_owner",
        "first_token_at",
        "forecast_ttft_s",
        "is_ended",
        "is_held_up",
        "is_stream",
        "lane",
        "num_rows",
        "price",
        "rows_before",
        "sample",
        "sent_at",
    )

    def __init__(
        self,
        owner: FlightOwner,
        now: float,
        price: Price,
        forecast_ttft_s: float,
        sample: TtftForecast | None,
        rows_before: int,
        lane: str,
        is_stream: bool,
    ) -> None:
        self._owner = owner
        self.is_ended = False
        self.sent_at = now
        self.price = price
        self.forecast_ttft_s = forecast_ttft_s
        """As it was when the request was sent."""
        self.sample = sample
        """What the forecast was made from; None outside the sample that is learned from."""
        self.rows_before = rows_before
        """Answers that were being generated there when it was sent."""
        self.lane = lane
        """Of the engine's, the one it stands in."""
        self.is_stream = is_stream
        """A plain answer never shows its first token."""
        self.is_held_up = False
        """We stopped reading, because whoever reads from us is slow: the time it takes says nothing."""
        self.first_token_at: float | None = None
        self.num_rows = 0
        """Answers that were being generated there when the first token came, this one included."""

    @property
    def measured_ttft_s(self) -> float | None:
        """Seconds from sending to the first token, None while there is none."""
        return None if self.first_token_at is None else self.first_token_at - self.sent_at

    @property
    def unqueued_ttft_s(self) -> float:
        """What the first token takes beside the rows that ran, with nothing ahead of it, at the usual speed."""
        return self._owner.unqueued_ttft_s(self)

    def first_token(self, now: float) -> None:
        """Text came; later calls do nothing."""
        if self.first_token_at is None and not self.is_ended:
            self.first_token_at = now
            self._owner.note_first_token(self, now)

    def ended(self, now: float, usage: Usage | None) -> None:
        """It is over: whole, with what the upstream counted, or broken off or without a count (None). Idempotent."""
        if not self.is_ended:
            self.is_ended = True
            self._owner.note_end(self, now, usage)
