"""DeploymentForecast: latencies of a request sent now, from the deployment's load report and its requests in flight."""

from __future__ import annotations

import math
from typing import Final

from gateway.deployments.flight import InFlightRequest, TtftForecast
from gateway.deployments.load_report import LaneReport, LoadReport, parse_orca
from gateway.deployments.outstanding import TINY_S, OutstandingRequests
from gateway.limits.permit import LONG_PROMPT_TOKENS
from gateway.telemetry.records.record import Usage
from gateway.upstreams.http1.pulse import Pulse
from routing_policies.estimation.estimators import ForecastError, PeakEwma, Price
from routing_policies.estimation.latency import SpeedGain, TpotModel, TtftModel, blended

DEFAULT_LANE: Final = "interactive"
LONG_LANE: Final = "long"
ENGINE_LANES: Final = (DEFAULT_LANE, LONG_LANE, "batch")
REPORT_FRESH_S: Final = 0.5
"""Age in seconds beyond which a load report is worth less than our own counts; reports come ten times a second."""

# Features from our own counts: a constant, rows, uncached tokens, tokens ahead in the lane and in other lanes, own work
# times rows, own work while sequences decode or are pending, 1 if other lanes have work, requests beyond the most rows
# ever seen, seconds left of the step under way. Features from the report: a constant, rows, seconds until the lane's
# backlog is done, seconds of the own prefill, seconds left of the step.
_OWN_PRIOR: Final = (0.02, 0.0003, 5e-5, 5e-5, 2e-5, 1e-6, 1e-6, 0.001, 0.001, 0.5)
_OWN_SCALES: Final = (1.0, 16.0, 1000.0, 1000.0, 1000.0, 16_000.0, 1000.0, 1.0, 4.0, 0.01)
_REPORTED_PRIOR: Final = (0.003, 0.0001, 1.0, 1.0, 0.5)
_REPORTED_SCALES: Final = (1.0, 16.0, 0.1, 0.1, 0.01)
_OVERDUE_RATIO: Final = 2.0
"""Multiple of the forecast beyond which a wait is no noise."""
_PEAK_DECAY_S: Final = 3.0
"""Seconds for which one very late first token makes routing cautious."""
_FIRST_TRUST: Final = 0.8
_LEAST_TRUST: Final = 0.05
_TRUST_STEP: Final = 0.1
SAMPLE_GAP_S: Final = 0.004
"""Seconds between two samples; learning from thousands of requests a second would cost more than it yields.

Samples are drawn at dispatch, so outcomes cannot bias them.
"""
SAMPLE_BURST: Final = 64.0
"""Number of unused samples that accumulate.

Requests sent together wait for each other, as when one step of the engine frees several permits. A burst keeps them in
the sample beside those sent alone.
"""
_OWN_PROMPT: Final = 2
_STEP_TOKENS: Final = 1024
_SAME_S: Final = 0.001
"""Seconds for which a forecast serves similar requests, while nothing was sent or received there."""


class DeploymentForecast:
    """Live model of one deployment; instants are monotonic seconds and are passed in.

    Two TTFT models learn side by side. One uses the engine's load report, where it publishes one. The other uses only
    our own requests; it serves all other servers, and takes over when a report is old.
    """

    __slots__ = (
        "_by_outstanding",
        "_by_report",
        "_lane_free_at",
        "_last",
        "_outstanding",
        "_peak",
        "_pulse",
        "_report",
        "_report_at",
        "_report_until",
        "_sample_room",
        "_sampled",
        "_sent_at",
        "_tpot",
        "cache_trust",
        "error",
    )

    def __init__(self, pulse: Pulse | None = None) -> None:
        """Create a model with prior terms; `pulse` is that of the deployment's connections, None without one."""
        self._pulse = pulse or Pulse()
        self._outstanding = OutstandingRequests()
        own, reported = SpeedGain(), SpeedGain()
        self._by_outstanding = {lane: TtftModel(_OWN_PRIOR, _OWN_SCALES, gain=own) for lane in ENGINE_LANES}
        self._by_report = {lane: TtftModel(_REPORTED_PRIOR, _REPORTED_SCALES, gain=reported) for lane in ENGINE_LANES}
        self._tpot = TpotModel()
        self._peak = PeakEwma(decay_s=_PEAK_DECAY_S, value=1.0)
        """Peak of measured over forecast TTFT."""
        self._report: LoadReport | None = None
        self._report_at = -math.inf
        self._report_until = -math.inf
        """Instant beyond which the report is worth less than our own counts."""
        self._lane_free_at: dict[str, float] = {}
        """Instants at which the engine finishes each lane's backlog, by its report and the requests sent since."""
        self._last: TtftForecast | None = None
        """Last forecast; None once an input has changed."""
        self._sent_at = -math.inf
        self._sample_room = 0.0
        self._sampled: TtftForecast | None = None
        """Forecast of the last request in the sample."""
        self.cache_trust = _FIRST_TRUST
        """Share of the prompt tokens assumed to be cached that were, where the server reports it."""
        self.error = ForecastError()
        """Error of the TTFT forecasts of this deployment."""

    # Forecasts.

    def look(self, now: float, uncached_tokens: int, lane: str = DEFAULT_LANE) -> TtftForecast:
        """Return the forecast for a request sent now, without the wait for a permit of this gateway.

        Admission, routing and forwarding need the same forecast within microseconds, so it is computed once.
        """
        if uncached_tokens > LONG_PROMPT_TOKENS or lane not in ENGINE_LANES:
            lane = _lane_of(uncached_tokens, lane)
        made = self._last
        if (
            made is None
            or made.uncached_tokens != uncached_tokens
            or made.lane != lane
            or not 0 <= now - made.at <= _SAME_S
        ):
            made = self._last = self._make(now, uncached_tokens, lane)
        return made

    def ttft_s(self, now: float, uncached_tokens: int, lane: str = DEFAULT_LANE) -> float:
        """Return the TTFT in seconds from sending."""
        return self.look(now, uncached_tokens, lane).seconds

    def tpot_s(self, now: float, seqs: int | None = None) -> float:
        """Return the seconds per output token beside `seqs` sequences, by default those that run and this one."""
        if seqs is None:
            seqs = self.num_seqs(now) + 1
        return self._tpot.predict_s(now, seqs)

    def total_s(self, now: float, price: Price, lane: str = DEFAULT_LANE) -> float:
        """Return the seconds from sending to the last token."""
        return self.ttft_s(now, price.uncached_tokens, lane) + max(price.output_tokens - 1, 0) * self.tpot_s(now)

    def num_seqs(self, now: float) -> int:
        """Return the number of sequences decoding there, from any client."""
        report = self._fresh_report(now)
        return self._outstanding.num_seqs if report is None else max(report.num_running, self._outstanding.num_seqs)

    def step_tokens(self, now: float) -> int | None:
        """Return the prompt tokens that fit into one step beside running sequences, or None when unknown."""
        report = self._fresh_report(now)
        if report is None or report.max_num_batched_tokens <= 0:
            return None
        return max(report.max_num_batched_tokens - report.num_running, 1)

    @property
    def is_warming(self) -> bool:
        """True if the engine reports that it is still starting."""
        return self._report is not None and self._report.is_warming

    def report(self, now: float) -> LoadReport | None:
        """Return the engine's fresh load report, or None."""
        return self._fresh_report(now)

    @property
    def num_pending(self) -> int:
        """Number of our requests there without a first token."""
        return self._outstanding.num_pending

    def age_s(self, now: float) -> float:
        """Return the seconds since the last load report, infinite without one."""
        return now - self._report_at

    # Events of the deployment.

    def note_sent(
        self, now: float, price: Price, *, lane: str = DEFAULT_LANE, is_stream: bool = True
    ) -> InFlightRequest:
        """Record that a request is sent, and return it."""
        uncached, outstanding, made = price.uncached_tokens, self._outstanding, self._sampled
        room = self._sample_room + (now - self._sent_at) / SAMPLE_GAP_S
        if room > SAMPLE_BURST:
            room = SAMPLE_BURST
        is_sample = room >= 1.0
        self._sample_room, self._sent_at = room - is_sample, now
        if is_sample or is_stream:
            lane = _lane_of(uncached, lane)
        if is_sample or made is None:
            made = self._sampled = self.look(now, uncached, lane)
        elif is_stream and (made.lane != lane or not made.is_like(uncached, outstanding.num_pending)):
            made = self.look(now, uncached, lane)
        flight = InFlightRequest(
            self, now, price, made.seconds, made if is_sample else None, outstanding.num_seqs, lane, is_stream
        )
        if is_sample or is_stream:
            outstanding.send(flight, now)
        else:
            outstanding.send_unseen()
        self._last = None
        if now <= self._report_until and self._report is not None:
            self._note_sent_to_lane(self._report, now, uncached, _lane_of(uncached, lane))
        return flight

    @property
    def max_num_seqs(self) -> int:
        """Largest number of rows in a step, as the engine last reported; 0 without a report."""
        return 0 if self._report is None else self._report.max_num_seqs

    def note_report(self, now: float, report: LoadReport, *, fresh_s: float = REPORT_FRESH_S) -> None:
        """Adopt a load report of the engine, which is current for `fresh_s` seconds."""
        self._report = report
        self._report_at = now
        self._report_until = now + fresh_s
        self._lane_free_at = {name: now + lane.forecast_wait_s for name, lane in report.lanes.items()}
        self._last = None

    def note_load_header(self, now: float, value: bytes) -> None:
        """Adopt a response's `endpoint-load-metrics` header, unless a fresh report of the feed has more detail."""
        if self._fresh_report(now) is not None:
            return
        metrics = parse_orca(value)
        if metrics is not None:
            running, waiting = metrics.get("num_requests_running", 0.0), metrics.get("num_requests_waiting", 0.0)
            self.note_report(now, LoadReport(num_running=int(running), num_waiting=int(waiting)))

    def note_no_report(self) -> None:
        """Discard the last load report, because the feed broke off."""
        self._report = None
        self._report_at = self._report_until = -math.inf
        self._last = None

    def _note_sent_to_lane(self, report: LoadReport, now: float, uncached_tokens: int, lane: str) -> None:
        lane, found = _reported_lane(report, lane)
        if found is None or found.prefill_tokens_per_s <= 0.0:
            return
        free_at = max(self._lane_free_at.get(lane, now), now)
        self._lane_free_at[lane] = free_at + uncached_tokens / found.prefill_tokens_per_s

    # Events of requests in flight.

    def note_first_token(self, flight: InFlightRequest, now: float) -> None:
        """Record a flight's first token and learn from it; called by the flight."""
        made = flight.sample
        if made is None and not flight.is_stream:
            return
        self._outstanding.begin_answer(flight, now)
        self._last = None
        if made is None:
            return
        flight.num_seqs = self.num_seqs(now)
        seconds = now - flight.sent_at
        self.error.observe(flight.forecast_ttft_s, seconds)
        self._peak.observe(now, seconds / max(flight.forecast_ttft_s, TINY_S))
        self._learn_ttft(now, flight.lane, made, seconds)

    def note_reported_token(self, flight: InFlightRequest, now: float) -> None:
        """Learn from the first token of a plain answer, reported at its end; called by the flight."""
        made, seconds = flight.sample, flight.measured_ttft_s
        if made is None or seconds is None:
            return
        flight.num_seqs = flight.seqs_before + 1
        self.error.observe(flight.forecast_ttft_s, seconds)
        self._peak.observe(now, seconds / max(flight.forecast_ttft_s, TINY_S))
        self._learn_ttft(now, flight.lane, made, seconds)

    def note_end(self, flight: InFlightRequest, now: float, usage: Usage | None) -> None:
        """Record a flight's end and learn from it; called by the flight."""
        made = flight.sample
        if made is None and not flight.is_stream:
            self._outstanding.end_unseen()
        elif usage is not None and made is not None:
            seqs = (flight.num_seqs + self.num_seqs(now)) / 2
            self._outstanding.end(flight, now)
            self._learn_from_usage(flight, made, now, usage, seqs)
        else:
            self._outstanding.end(flight, now)
            if usage is None and flight.first_token_at is None and flight.is_stream:
                waited = (now - flight.sent_at) / max(flight.forecast_ttft_s, TINY_S)
                # A lower bound of the TTFT, unless it waited for a reason of its own.
                if waited > 1.0 and not self._outstanding.is_overtaken(flight):
                    self._peak.observe(now, waited)
        self._last = None

    def unqueued_ttft_s(self, flight: InFlightRequest) -> float:
        """Return a flight's TTFT in seconds with no request ahead and at the usual speed."""
        seqs, uncached = float(flight.seqs_before), float(flight.price.uncached_tokens)
        base_s, row_s, own_s, _, _, product_s, beside_s, _, _, step_part = self._by_outstanding[flight.lane].terms
        seconds = base_s + row_s * seqs + own_s * uncached
        if not seqs:
            return seconds
        step_left_s = self._tpot.plain_s(seqs) / 2
        return seconds + product_s * (uncached * seqs) + beside_s * uncached + step_part * step_left_s

    def _learn_from_usage(
        self, flight: InFlightRequest, made: TtftForecast, now: float, usage: Usage, seqs: float
    ) -> None:
        price, num_gaps = flight.price, usage.completion_tokens - 1
        believed = price.prompt_tokens - price.uncached_tokens
        if usage.cached_tokens is not None and believed > 0:
            self._learn_trust(believed, usage.cached_tokens)
        if flight.first_token_at is not None:
            if num_gaps > 0 and not flight.is_held_up:
                self._tpot.observe(now, seqs, (now - flight.first_token_at) / num_gaps)
        elif not flight.is_stream:
            self._learn_from_total(flight, made, now, num_gaps)

    def _learn_from_total(self, flight: InFlightRequest, made: TtftForecast, now: float, num_gaps: int) -> None:
        """Learn from a response that is no stream: divide its duration in the proportion of the forecast."""
        seqs = flight.seqs_before + 1.0
        decode_s = num_gaps * self._tpot.predict_s(now, seqs)
        ratio = (now - flight.sent_at) / max(flight.forecast_ttft_s + decode_s, TINY_S)
        self._learn_ttft(now, flight.lane, made, ratio * flight.forecast_ttft_s)
        if num_gaps > 0:
            self._tpot.observe(now, seqs, ratio * decode_s / num_gaps)

    def _learn_ttft(self, now: float, lane: str, made: TtftForecast, seconds: float) -> None:
        self._by_outstanding[lane].observe(now, made.by_outstanding, seconds)
        if made.by_report is not None:
            self._by_report[lane].observe(now, made.by_report, seconds)

    def _learn_trust(self, believed: int, cached: int) -> None:
        """Update the trust in cached prefixes; the tokens in `believed` already include the current trust."""
        held = min(self.cache_trust * cached / believed, 1.0)
        self.cache_trust = max(self.cache_trust + _TRUST_STEP * (held - self.cache_trust), _LEAST_TRUST)

    # Computation.

    def _make(self, now: float, uncached_tokens: int, lane: str) -> TtftForecast:
        # Almost without helpers: it runs for every candidate, and is the larger part of what a decision costs.
        outstanding, own_model, tpot = self._outstanding, self._by_outstanding[lane], self._tpot
        first_s, each_s = tpot.terms
        # First, because it may assume first tokens.
        ahead, others, late_ratio, latest_ratio = outstanding.look(now, lane)
        num_seqs, num_pending = outstanding.num_seqs, outstanding.num_pending
        seqs, num_running = float(num_seqs), num_seqs
        step_left_s = in_step_s = 0.0
        if num_seqs or num_pending:
            # The time for the prompts in the engine's step is counted apart.
            if num_pending:
                unread = ahead + others
                in_step_s = own_model.terms[_OWN_PROMPT] * (unread if unread < _STEP_TOKENS else _STEP_TOKENS)
            step_left_s = self._left_of(first_s + each_s * (num_seqs or 1) + in_step_s, now) - in_step_s
        # Dot product with `by_outstanding`, without the terms that are 0.
        base_s, row_s, own_s, ahead_s, other_s, product_s, beside_s, rivals_s, beyond_s, step_part = own_model.terms
        seconds = base_s + row_s * seqs + own_s * uncached_tokens + ahead_s * ahead
        if others:
            seconds += other_s * others
        if num_seqs or num_pending:
            work = uncached_tokens + ahead
            seconds = seconds + product_s * (work * seqs) + beside_s * work
        if others:
            seconds += rivals_s
        beyond = seqs + num_pending + 1.0 - outstanding.most_seqs
        if beyond > 0.0:
            seconds += beyond_s * beyond
        else:
            beyond = 0.0
        seconds = (seconds + step_part * step_left_s) * own_model.gain.value(now)
        reported, report = None, self._report
        if report is not None and now <= self._report_until:
            if report.num_running > num_seqs:
                num_running = report.num_running
            name, found = _reported_lane(report, lane)
            if found is not None and found.prefill_tokens_per_s > 0.0:
                wait_s = max(self._lane_free_at.get(name, now) - now, 0.0)
                reported = (1.0, seqs, wait_s, uncached_tokens / found.prefill_tokens_per_s, step_left_s)
                model = self._by_report[lane]
                seconds = blended((seconds, own_model.error), (model.predict_s(now, reported), model.error))
        if late_ratio > _OVERDUE_RATIO:  # the lane's next request waits far longer than forecast, so this one will too
            seconds *= late_ratio
        if self._peak.peak > _OVERDUE_RATIO and (peak := self._peak.value(now, 1.0)) > latest_ratio:
            latest_ratio = peak
        return TtftForecast(
            now,
            lane,
            uncached_tokens,
            num_pending,
            seconds,
            seqs,
            ahead,
            others,
            beyond,
            step_left_s,
            reported,
            (first_s + each_s * (num_running + 1)) * tpot.gain.value(now),
            latest_ratio if latest_ratio > _OVERDUE_RATIO else 1.0,
        )

    def _left_of(self, step_s: float, now: float) -> float:
        """Return the remainder of the engine's step, whose start is the last byte received from there."""
        gone_s = now - self._pulse.at
        if gone_s < 0.0:  # the event loop may have read its clock slightly later
            return step_s
        return step_s - gone_s if gone_s <= step_s else step_s / 2

    def _fresh_report(self, now: float) -> LoadReport | None:
        return self._report if now <= self._report_until else None


def _lane_of(uncached_tokens: int, lane: str) -> str:
    """Return the engine's lane of a request sent in one of the gateway's lanes."""
    if lane == DEFAULT_LANE and uncached_tokens > LONG_PROMPT_TOKENS:
        return LONG_LANE
    return lane if lane in ENGINE_LANES else DEFAULT_LANE


def _reported_lane(report: LoadReport, lane: str) -> tuple[str, LaneReport | None]:
    """Return the report of a lane; for an engine with fewer lanes, that of its default lane."""
    lanes = report.lanes
    name = lane if lane in lanes else DEFAULT_LANE
    return name, lanes.get(name)
