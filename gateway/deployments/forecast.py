"""DeploymentForecast: what a deployment will take for a request sent now, from its own report and our own clock."""

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
"""A report comes ten times a second; one that is older says less than our own books."""

# By our books: a constant, rows, uncached tokens, tokens ahead in the lane and in other lanes, own work times rows, own
# work where anybody decodes or will by then, whether other lanes have work, requests beyond the most rows ever seen,
# what is left of the step under way. By the report: a constant, rows, seconds until the lane's backlog is done, seconds
# of the own prefill, what is left of the step.
_OWN_PRIOR: Final = (0.02, 0.0003, 5e-5, 5e-5, 2e-5, 1e-6, 1e-6, 0.001, 0.001, 0.5)
_OWN_SCALES: Final = (1.0, 16.0, 1000.0, 1000.0, 1000.0, 16_000.0, 1000.0, 1.0, 4.0, 0.01)
_REPORTED_PRIOR: Final = (0.003, 0.0001, 1.0, 1.0, 0.5)
_REPORTED_SCALES: Final = (1.0, 16.0, 0.1, 0.1, 0.01)
_OVERDUE_RATIO: Final = 2.0
"""Waiting so many times the forecast is no noise any more."""
_PEAK_DECAY_S: Final = 3.0
"""How long one very late token makes routing wary."""
_FIRST_TRUST: Final = 0.8
_LEAST_TRUST: Final = 0.05
_TRUST_STEP: Final = 0.1
SAMPLE_GAP_S: Final = 0.004
"""Learning from each of thousands of requests a second would cost more than it teaches: one in so long is learned from.
Nothing that becomes of a request has a say in whether it is."""
SAMPLE_BURST: Final = 64.0
"""What was not used of that is saved up to so many, so that requests which are sent together, as when a step of the
engine sets several permits free, are learned from like those that are sent alone: they wait for each other."""
_OWN_PROMPT: Final = 2
_STEP_TOKENS: Final = 1024
_SAME_S: Final = 0.001
"""For so long a forecast holds for whatever is like it, while nothing was sent there and nothing came."""


class DeploymentForecast:
    """The live model of one deployment. Instants are monotonic seconds and are passed in.

    Two models of the time to the first token learn side by side: one from the engine's own report, where it publishes
    one, and one from nothing but our own requests, which serves every other server and takes over when a report is old.
    """

    __slots__ = (
        "_books",
        "_by_books",
        "_by_report",
        "_lane_free_at",
        "_last",
        "_peak",
        "_pulse",
        "_report",
        "_report_at",
        "_sample_room",
        "_sampled",
        "_sent_at",
        "_tpot",
        "cache_trust",
        "error",
    )

    def __init__(self, pulse: Pulse | None = None) -> None:
        """`pulse`: of the connections there; None: nothing is heard of its steps."""
        self._pulse = pulse or Pulse()
        self._books = OutstandingRequests()
        own, reported = SpeedGain(), SpeedGain()
        self._by_books = {lane: TtftModel(_OWN_PRIOR, _OWN_SCALES, gain=own) for lane in ENGINE_LANES}
        self._by_report = {lane: TtftModel(_REPORTED_PRIOR, _REPORTED_SCALES, gain=reported) for lane in ENGINE_LANES}
        self._tpot = TpotModel()
        self._peak = PeakEwma(decay_s=_PEAK_DECAY_S, value=1.0)
        """Of measured times over forecast ones."""
        self._report: LoadReport | None = None
        self._report_at = -math.inf
        self._lane_free_at: dict[str, float] = {}
        """When the engine will have worked off a lane's backlog, by its report and what was sent since."""
        self._last: TtftForecast | None = None
        """The last forecast that was made; None once something changed that it rests on."""
        self._sent_at = -math.inf
        self._sample_room = 0.0
        self._sampled: TtftForecast | None = None
        """The forecast of the last request in the sample."""
        self.cache_trust = _FIRST_TRUST
        """Of the prompt tokens that were taken for cached there, the share that was, where the server says so."""
        self.error = ForecastError()
        """Of the times to the first token that were forecast here."""

    # What is asked.

    def look(self, now: float, uncached_tokens: int, lane: str = DEFAULT_LANE) -> TtftForecast:
        """All that is forecast for a request that is sent now; the wait for a permit of this gateway is not in it. The
        gate, the router and whoever sends ask for the same within microseconds: it is worked out once."""
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
        """Seconds from sending to the first token."""
        return self.look(now, uncached_tokens, lane).seconds

    def tpot_s(self, now: float, rows: int | None = None) -> float:
        """Seconds per output token beside `rows` rows, by default those that run and this one."""
        if rows is None:
            rows = self.num_rows(now) + 1
        return self._tpot.predict_s(now, rows)

    def total_s(self, now: float, price: Price, lane: str = DEFAULT_LANE) -> float:
        """Seconds from sending to the last token."""
        return self.ttft_s(now, price.uncached_tokens, lane) + max(price.output_tokens - 1, 0) * self.tpot_s(now)

    def engine_wait_s(self, now: float, lane: str = DEFAULT_LANE) -> float:
        """Of `ttft_s`, what is spent behind others."""
        return max(self.ttft_s(now, 0, lane) - self._idle_ttft_s(now, _lane_of(0, lane)), 0.0)

    def num_rows(self, now: float) -> int:
        """Answers that are being generated there, by whoever asked."""
        report = self._fresh_report(now)
        return self._books.rows if report is None else max(report.num_running, self._books.rows)

    def step_tokens(self, now: float) -> int | None:
        """Prompt tokens that fit into one step beside the rows that run; None when the engine does not say."""
        report = self._fresh_report(now)
        if report is None or report.step_token_budget <= 0:
            return None
        return max(report.step_token_budget - report.num_running, 1)

    @property
    def is_warming(self) -> bool:
        """The engine says that it is still starting: capacity to come."""
        return self._report is not None and self._report.is_warming

    def report(self, now: float) -> LoadReport | None:
        """What the engine said of itself just now, None where it says nothing."""
        return self._fresh_report(now)

    @property
    def num_pending(self) -> int:
        """Our requests there that have no first token yet."""
        return self._books.num_pending

    def age_s(self, now: float) -> float:
        """Seconds since the last report, infinite when there never was one."""
        return now - self._report_at

    # What is told.

    def note_sent(
        self, now: float, price: Price, *, lane: str = DEFAULT_LANE, is_stream: bool = True
    ) -> InFlightRequest:
        """A request goes out."""
        uncached, books, made = price.uncached_tokens, self._books, self._sampled
        room = self._sample_room + (now - self._sent_at) / SAMPLE_GAP_S
        if room > SAMPLE_BURST:
            room = SAMPLE_BURST
        is_sample = room >= 1.0
        self._sample_room, self._sent_at = room - is_sample, now
        if is_sample or is_stream:
            lane = _lane_of(uncached, lane)
        if is_sample or made is None:
            made = self._sampled = self.look(now, uncached, lane)
        elif is_stream and (made.lane != lane or not made.is_like(uncached, books.num_pending)):
            made = self.look(now, uncached, lane)
        flight = InFlightRequest(
            self, now, price, made.seconds, made if is_sample else None, books.rows, lane, is_stream
        )
        if is_sample or is_stream:
            books.send(flight, now)
        else:
            books.send_unseen()
        self._last = None
        if now - self._report_at <= REPORT_FRESH_S and self._report is not None:
            self._note_sent_to_lane(self._report, now, uncached, _lane_of(uncached, lane))
        return flight

    @property
    def max_num_rows(self) -> int:
        """Most rows a step of the engine can have, as it last said; 0: it never did."""
        return 0 if self._report is None else self._report.max_num_rows

    def note_report(self, now: float, report: LoadReport) -> None:
        """The engine said how busy it is."""
        self._report = report
        self._report_at = now
        self._lane_free_at = {name: now + lane.forecast_wait_s for name, lane in report.lanes.items()}
        self._last = None

    def note_load_header(self, now: float, value: bytes) -> None:
        """What an answer's `endpoint-load-metrics` said; a feed says more and is preferred."""
        if self._fresh_report(now) is not None:
            return
        metrics = parse_orca(value)
        if metrics is not None:
            running, waiting = metrics.get("num_requests_running", 0.0), metrics.get("num_requests_waiting", 0.0)
            self.note_report(now, LoadReport(num_running=int(running), num_waiting=int(waiting)))

    def note_no_report(self) -> None:
        """The feed broke off: what it said last is not true any more."""
        self._report = None
        self._report_at = -math.inf
        self._last = None

    def _note_sent_to_lane(self, report: LoadReport, now: float, uncached_tokens: int, lane: str) -> None:
        lane, found = _reported_lane(report, lane)
        if found is None or found.prefill_tokens_per_s <= 0.0:
            return
        free_at = max(self._lane_free_at.get(lane, now), now)
        self._lane_free_at[lane] = free_at + uncached_tokens / found.prefill_tokens_per_s

    # What flights tell.

    def note_first_token(self, flight: InFlightRequest, now: float) -> None:
        """For the flight itself: text came."""
        made = flight.sample
        if made is None and not flight.is_stream:
            return
        self._books.begin_answer(flight, now)
        self._last = None
        if made is None:
            return
        flight.num_rows = self.num_rows(now)
        seconds = now - flight.sent_at
        self.error.observe(flight.forecast_ttft_s, seconds)
        self._peak.observe(now, seconds / max(flight.forecast_ttft_s, TINY_S))
        self._learn_ttft(now, flight.lane, made, seconds)

    def note_end(self, flight: InFlightRequest, now: float, usage: Usage | None) -> None:
        """For the flight itself: it is over."""
        made = flight.sample
        if made is None and not flight.is_stream:
            self._books.end_unseen()
        elif usage is not None and made is not None:
            rows = (flight.num_rows + self.num_rows(now)) / 2
            self._books.end(flight, now)
            self._learn_from_usage(flight, made, now, usage, rows)
        else:
            self._books.end(flight, now)
            if usage is None and flight.first_token_at is None and flight.is_stream:
                waited = (now - flight.sent_at) / max(flight.forecast_ttft_s, TINY_S)
                if waited > 1.0:  # it would have taken at least that long
                    self._peak.observe(now, waited)
        self._last = None

    def unqueued_ttft_s(self, flight: InFlightRequest) -> float:
        """For the flight itself: what its first token takes with nothing ahead of it, at the usual speed."""
        rows, uncached = float(flight.rows_before), float(flight.price.uncached_tokens)
        base_s, row_s, own_s, _, _, product_s, beside_s, _, _, step_part = self._by_books[flight.lane].terms
        seconds = base_s + row_s * rows + own_s * uncached
        if not rows:
            return seconds
        step_left_s = self._tpot.plain_s(rows) / 2
        return seconds + product_s * (uncached * rows) + beside_s * uncached + step_part * step_left_s

    def _learn_from_usage(
        self, flight: InFlightRequest, made: TtftForecast, now: float, usage: Usage, rows: float
    ) -> None:
        price, num_gaps = flight.price, usage.completion_tokens - 1
        believed = price.prompt_tokens - price.uncached_tokens
        if usage.cached_tokens is not None and believed > 0:
            self._learn_trust(believed, usage.cached_tokens)
        if flight.first_token_at is not None:
            if num_gaps > 0 and not flight.is_held_up:
                self._tpot.observe(now, rows, (now - flight.first_token_at) / num_gaps)
        elif not flight.is_stream:
            self._learn_from_total(flight, made, now, num_gaps)

    def _learn_from_total(self, flight: InFlightRequest, made: TtftForecast, now: float, num_gaps: int) -> None:
        """A plain answer shows only the whole: what it took is divided as it would have been forecast."""
        rows = flight.rows_before + 1.0
        decode_s = num_gaps * self._tpot.predict_s(now, rows)
        ratio = (now - flight.sent_at) / max(flight.forecast_ttft_s + decode_s, TINY_S)
        self._learn_ttft(now, flight.lane, made, ratio * flight.forecast_ttft_s)
        if num_gaps > 0:
            self._tpot.observe(now, rows, ratio * decode_s / num_gaps)

    def _learn_ttft(self, now: float, lane: str, made: TtftForecast, seconds: float) -> None:
        self._by_books[lane].observe(now, made.by_books, seconds)
        if made.by_report is not None:
            self._by_report[lane].observe(now, made.by_report, seconds)

    def _learn_trust(self, believed: int, cached: int) -> None:
        """`believed` has the trust in it already."""
        held = min(self.cache_trust * cached / believed, 1.0)
        self.cache_trust = max(self.cache_trust + _TRUST_STEP * (held - self.cache_trust), _LEAST_TRUST)

    # How it is worked out.

    def _make(self, now: float, uncached_tokens: int, lane: str) -> TtftForecast:
        # One function without helpers: it runs for every candidate that is looked at for a request, and is the larger
        # part of what a decision costs.
        books, own_model, tpot = self._books, self._by_books[lane], self._tpot
        first_s, each_s = tpot.terms
        ahead, others, late_ratio, latest_ratio = books.look(now, lane)  # first: it may find that answers have begun
        num_rows, num_pending = books.rows, books.num_pending
        rows, num_running = float(num_rows), num_rows
        step_left_s = 0.0
        if num_rows or num_pending:
            # Of the engine's step under way, which whatever is heard of any answer shows the beginning of; less the
            # time for the prompts in it, which are counted apart.
            in_step_s = 0.0
            if num_pending:
                unread = ahead + others
                in_step_s = own_model.terms[_OWN_PROMPT] * (unread if unread < _STEP_TOKENS else _STEP_TOKENS)
            step_s = first_s + each_s * (num_rows or 1) + in_step_s
            gone_s = now - self._pulse.at
            if gone_s < 0.0:  # an event loop may read its clock a moment later than we ours
                gone_s = 0.0
            step_left_s = (step_s - gone_s if gone_s <= step_s else step_s / 2) - in_step_s
        # The sum over `by_books`, without the parts that are 0.
        base_s, row_s, own_s, ahead_s, other_s, product_s, beside_s, rivals_s, beyond_s, step_part = own_model.terms
        seconds = base_s + row_s * rows + own_s * uncached_tokens + ahead_s * ahead
        if others:
            seconds += other_s * others
        if num_rows or num_pending:
            work = uncached_tokens + ahead
            seconds = seconds + product_s * (work * rows) + beside_s * work
        if others:
            seconds += rivals_s
        beyond = rows + num_pending + 1.0 - books.most_rows
        if beyond > 0.0:
            seconds += beyond_s * beyond
        else:
            beyond = 0.0
        seconds = (seconds + step_part * step_left_s) * own_model.gain.value(now)
        reported = None
        report = self._report
        if report is not None and now - self._report_at <= REPORT_FRESH_S:
            if report.num_running > num_rows:
                num_running = report.num_running
            name, found = _reported_lane(report, lane)
            if found is not None and found.prefill_tokens_per_s > 0.0:
                wait_s = max(self._lane_free_at.get(name, now) - now, 0.0)
                reported = (1.0, rows, wait_s, uncached_tokens / found.prefill_tokens_per_s, step_left_s)
                model = self._by_report[lane]
                seconds = blended((seconds, own_model.error), (model.predict_s(now, reported), model.error))
        if late_ratio > _OVERDUE_RATIO:  # who is next in the lane waits far longer than was forecast: this one will too
            seconds *= late_ratio
        if self._peak.peak > _OVERDUE_RATIO:
            peak = self._peak.value(now, 1.0)
            latest_ratio = peak if peak > latest_ratio else latest_ratio
        return TtftForecast(
            now,
            lane,
            uncached_tokens,
            num_pending,
            seconds,
            rows,
            ahead,
            others,
            beyond,
            step_left_s,
            reported,
            (first_s + each_s * (num_running + 1)) * tpot.gain.value(now),
            latest_ratio if latest_ratio > _OVERDUE_RATIO else 1.0,
        )

    def _idle_ttft_s(self, now: float, lane: str) -> float:
        return self._by_books[lane].predict_s(now, _IDLE)

    def _fresh_report(self, now: float) -> LoadReport | None:
        return self._report if now - self._report_at <= REPORT_FRESH_S else None


_IDLE: Final = (1.0, *[0.0] * (len(_OWN_PRIOR) - 1))


def _lane_of(uncached_tokens: int, lane: str) -> str:
    """The engine's lane of a request that was sent in one of ours."""
    if lane == DEFAULT_LANE and uncached_tokens > LONG_PROMPT_TOKENS:
        return LONG_LANE
    return lane if lane in ENGINE_LANES else DEFAULT_LANE


def _reported_lane(report: LoadReport, lane: str) -> tuple[str, LaneReport | None]:
    """What is said of the lane; of an engine with fewer lanes, what is said of its first."""
    lanes = report.lanes
    name = lane if lane in lanes else DEFAULT_LANE
    return name, lanes.get(name)
