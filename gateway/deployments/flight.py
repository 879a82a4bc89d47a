"""One request at a deployment: its forecast, its actual times, and the longest silence allowed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from gateway.telemetry.records.record import Usage
from routing_policies.estimation.estimators import Price

if TYPE_CHECKING:
    from gateway.deployments.live import LiveDeployment


Features = tuple[float, ...]

_ALIKE: Final = 0.125
"""The forecast is about the same for a prompt and a queue that differ by no larger share."""


class TtftForecast(msgspec.Struct, frozen=True, gc=False):
    """Forecast of the time to first token at one deployment, at one instant."""

    at: float
    lane: str
    uncached_tokens: int
    num_pending: int
    """Number of requests without a first token at that instant."""
    seconds: float
    """Seconds from sending to the first token."""
    num_seqs: float
    """Number of sequences that were decoding at that instant."""
    ahead: float
    """Prompt tokens of the lane that were sent and not computed yet."""
    others: float
    """Prompt tokens of all other lanes that were sent and not computed yet."""
    beyond: float
    """Number of requests beyond the largest number of sequences ever observed."""
    step_left_s: float
    """Seconds left of the engine's step under way."""
    by_report: Features | None
    """Features from the engine's report, if a fresh one was complete enough."""
    tpot_s: float
    """Seconds per output token, beside the running sequences and this one."""
    caution: float
    """Factor by which routing distrusts `seconds`, at least 1.

    Routing thus avoids a deployment that was, or is, far slower than forecast before the forecast has followed.
    Ordinary error does not count.
    """

    @property
    def by_outstanding(self) -> Features:
        """Return the features from our own counts, from which the model of the time to first token learns."""
        uncached, num_seqs = float(self.uncached_tokens), self.num_seqs
        work = self.uncached_tokens + self.ahead
        return (
            1.0,
            num_seqs,
            uncached,
            self.ahead,
            self.others,
            work * num_seqs,
            work if num_seqs or self.num_pending else 0.0,
            1.0 if self.others else 0.0,
            self.beyond,
            self.step_left_s,
        )

    def is_like(self, uncached_tokens: int, num_pending: int) -> bool:
        """Return whether the forecast would be about the same for such a request behind so many others."""
        return (
            abs(uncached_tokens - self.uncached_tokens) <= _ALIKE * self.uncached_tokens
            and abs(num_pending - self.num_pending) <= 1.0 + _ALIKE * self.num_pending
        )


class FlightOwner(Protocol):
    """Forecast that tracks requests in flight and learns from them."""

    def note_first_token(self, flight: InFlightRequest, now: float) -> None:
        """Record the first token."""
        ...

    def note_reported_token(self, flight: InFlightRequest, now: float) -> None:
        """Record the first token of a plain answer, reported at its end."""
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
    seqs_before: int
    """Number of sequences decoding at the deployment when the request was sent."""
    lane: str
    """Lane of the engine that the request waits in."""
    is_stream: bool
    """True for a stream; of other responses the first token is known at their end, if at all."""
    is_held_up: bool = False
    """True if the gateway paused reading for a slow client, so the duration is no measure of the deployment."""
    first_token_at: float | None = None
    num_seqs: int = 0
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

    def first_token_was(self, at: float, now: float) -> None:
        """Record when the first token of a plain answer came, which the deployment reports at the answer's end."""
        if self.first_token_at is None and not self.is_ended:
            self.first_token_at = at
            self.owner.note_reported_token(self, now)

    def ended(self, now: float, usage: Usage | None) -> None:
        """Record the end, with the upstream's usage or None for a broken or uncounted response. Idempotent."""
        if not self.is_ended:
            self.is_ended = True
            self.owner.note_end(self, now, usage)


PLAIN_FACTOR: Final = 2.0
"""Multiple of the forecast for its longest form that a plain answer may take."""
PROMPT_FACTOR: Final = 4.0
"""Multiple of the forecast that a plain answer's prompt may take, as for a stream."""
LEAST_TOKENS: Final = 256
"""Answer length that is assumed at least, where neither the request nor earlier answers give a larger one."""
MEAN_FACTOR: Final = 2.0
"""Multiple of the usual answer length that is assumed where the request sets no limit."""
STRANGER_S: Final = 5.0
"""Shortest patience, in seconds, with a deployment that never answered: its speed is unknown."""
STRANGER_MOST_S: Final = 10.0
"""Longest patience, in seconds, with such a deployment where the request does not limit its answer."""


def stream_bound_s(live: LiveDeployment, now: float, flight: InFlightRequest | None) -> float | None:
    """Seconds within which the first token of a stream is expected; None: nothing is known of the deployment."""
    usual_s = live.first_bytes.late_s(now)
    if usual_s is None or flight is None:
        return usual_s
    return max(usual_s, flight.forecast_ttft_s)


def plain_bound_s(live: LiveDeployment, now: float, flight: InFlightRequest, max_tokens: int | None) -> float:
    """Return the seconds within which a plain answer of up to `max_tokens` is whole, or the engine reports progress."""
    report = live.forecast.report(now)
    prompt_s = PROMPT_FACTOR * flight.forecast_ttft_s
    if report is not None and report.silent_s is not None:  # each of the engine's steps is reported
        return prompt_s
    tokens = max_tokens or max(int(MEAN_FACTOR * flight.price.output_tokens), LEAST_TOKENS)
    bound_s = prompt_s + PLAIN_FACTOR * tokens * live.forecast.tpot_s(now)
    if live.health.has_answered:
        return max(bound_s, PLAIN_FACTOR * live.whole_answers.peak)
    return max(bound_s if max_tokens else min(bound_s, STRANGER_MOST_S), STRANGER_S)


def hidden_stream_bound_s(flight: InFlightRequest) -> float:
    """Seconds within which the stream behind a plain answer begins at a deployment of which nothing is known."""
    return max(PROMPT_FACTOR * flight.forecast_ttft_s, STRANGER_S)
