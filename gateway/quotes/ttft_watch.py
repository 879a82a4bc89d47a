"""TtftWatch: one request's forecast and measured time to first token, for the bounds that quotes state."""

from __future__ import annotations

from typing import Final

import msgspec

from gateway.deployments.live import LiveDeployment
from gateway.limits.permit import LONG_PROMPT_TOKENS, AdmissionRequest
from gateway.quotes.reserved_permit import PermitReservation
from gateway.telemetry.records.record import QuoteResult
from routing_policies.estimation.coverage import TtftBounds, ttft_bound_of
from routing_policies.estimation.estimators import Price

_NOTHING: Final[tuple[tuple[int, float], ...]] = ()


class QuotedBound(msgspec.Struct, frozen=True, kw_only=True):
    """The bound that a quote stated; seconds from the receipt of the request."""

    bound_s: float
    coverage: float
    forecast_s: float
    """Forecast time to first token when the bound was quoted."""


class TtftWatch:
    """Watch of one request from its dispatch to its first token; times are monotonic seconds and are passed in.

    A request that redeems a quote has `quoted`; all others are watched because their times calibrate the bounds.
    """

    __slots__ = (
        "_bounds",
        "_coverage",
        "_forecast_s",
        "_limits",
        "_received_at",
        "_was_sent",
        "quoted",
        "reserved",
        "ttft_s",
    )

    def __init__(self, received_at: float, coverage: float) -> None:
        """Watch a request; `coverage` is the one that the policy states by default."""
        self._received_at = received_at
        self._coverage = coverage
        self._bounds: TtftBounds | None = None
        self._forecast_s = 0.0
        self._limits = _NOTHING
        self._was_sent = False
        self.quoted: QuotedBound | None = None
        """Bound that the request's quote stated; None without a quote."""
        self.reserved: PermitReservation | None = None
        """Permit to return when the request ends without using it."""
        self.ttft_s: float | None = None
        """Seconds from receipt to the first token; None before it."""

    def begin(self, now: float, live: LiveDeployment, price: Price, admission_request: AdmissionRequest) -> None:
        """Note the first dispatch, with the forecast of what is still to come."""
        self._was_sent = True
        if self.quoted is None:
            bounds = self._bounds = ttft_bounds_of(live, self._coverage)
            left_s, _ = forecast_at(now, live, price, admission_request)
            self._forecast_s = now - self._received_at + left_s
            self._limits = bounds.limits()

    def redeem(self, quoted: QuotedBound, bounds: TtftBounds | None) -> None:
        """Hold the request to a quoted bound; `bounds` are those of its deployment, None once that left the policy."""
        self.quoted, self._bounds = quoted, bounds

    def first_token(self, now: float) -> None:
        """Note the first token, and learn from it; later calls do nothing."""
        if self.ttft_s is None:
            self.ttft_s = now - self._received_at
            self._learn(self.ttft_s)

    def end(self, now: float, *, is_excused: bool) -> QuoteResult:
        """Return the end of the quoted bound, once the request is over.

        Args:
            now: Monotonic seconds.
            is_excused: True if the gateway did not fail the client: it left, or its request was refused as wrong.
                Without a first token the bound is then missed only if it had passed.
        """
        waited_s = now - self._received_at
        if self.ttft_s is None and is_excused and self._is_late(waited_s):
            self.first_token(now)  # the earliest instant at which it could have come
        if self.quoted is None:
            return "unknown"
        if self.ttft_s is not None:
            return "met" if self.ttft_s <= self.quoted.bound_s else "missed"
        if is_excused:
            return "unknown"
        self._learn(max(waited_s, self.quoted.bound_s * _BEYOND))
        return "missed"

    def _is_late(self, waited_s: float) -> bool:
        """Return whether the bound has passed."""
        if self.quoted is not None:
            return waited_s > self.quoted.bound_s
        return bool(self._limits) and waited_s > ttft_bound_of(self._forecast_s, self._limits[0][1])

    def _learn(self, ttft_s: float) -> None:
        if self._bounds is None or not self._was_sent:  # an answer from the cache says nothing of a deployment
            return
        if self.quoted is None:
            self._bounds.observe(self._forecast_s, ttft_s, self._limits)
        else:
            self._bounds.observe_quoted(self.quoted.forecast_s, ttft_s, self.quoted.coverage, self.quoted.bound_s)


_BEYOND: Final = 1.000_001
"""Factor by which a first token that never came is at least later than its bound."""


def ttft_bounds_of(live: LiveDeployment, coverage: float) -> TtftBounds:
    """Return a deployment's bounds, created on first use."""
    if live.ttft_bounds is None:
        live.ttft_bounds = TtftBounds(coverage)
    return live.ttft_bounds


def forecast_at(
    now: float, live: LiveDeployment, price: Price, admission_request: AdmissionRequest
) -> tuple[float, float]:
    """Return the forecast seconds from now to the first token, and the part of them in the queue for a permit."""
    made = live.forecast.look(now, price.uncached_tokens, admission_request.lane.engine_lane)
    whole_s = made.seconds + max(price.output_tokens - 1, 0) * made.tpot_s
    is_long = admission_request.is_long or price.uncached_tokens > LONG_PROMPT_TOKENS
    wait_s, _ = live.limiter.expected_wait(now, admission_request, whole_s, is_long)
    return wait_s + made.seconds, wait_s
