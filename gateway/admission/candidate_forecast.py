"""CandidateForecast: each candidate's forecast for a request that comes now, and which of them are in time."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from gateway.deployments.flight import TtftForecast
from gateway.deployments.live import LiveDeployment
from gateway.deployments.seq_bound import seqs_within
from gateway.limits.lane_share import CROWDED_PART
from gateway.limits.permit import LONG_PROMPT_TOKENS, AdmissionRequest
from gateway.routing.candidate import LiveCandidate, Seen
from gateway.routing.planned_route import PlannedRoute
from gateway.routing.routing_request import RoutingRequest
from gateway.routing.shortlist import NUM_DRAWN
from routing_policies.estimation.estimators import Price

MAX_FORECASTS: Final = 8
"""Maximum number of candidates that are forecast for one request; with more, the first one rotates."""
ENOUGH_FORECASTS: Final = 4
"""Number of forecasts after which the first candidate in time ends the search."""
RETRY_SHARE: Final = 0.5
"""Share of the remaining time that a client's retry may be forecast to wait."""
UNTRIED_S: Final = 1.0
"""Seconds without a request after which a deployment is tried although its forecast is late, or it would stay so."""
TRIED_RATIO: Final = 10.0
"""Factor of lateness beyond which no such try is made, because it would be hopeless."""


class CandidateForecast(msgspec.Struct, frozen=True, gc=False):
    """One candidate's forecast; seconds from now."""

    option: LiveCandidate
    price: Price
    """Price of the request at this deployment."""
    made: TtftForecast
    """Forecast from the permit to the first token."""
    wait_s: float
    """Seconds of wait for a permit."""
    service_s: float
    """Seconds from the permit to the first byte for the client: the first token of a stream, all of a plain answer."""
    is_in_time: bool
    start_s: float = 0.0
    """Part of the wait until the deployment is ready; 0 unless it is still starting."""

    @property
    def live(self) -> LiveDeployment:
        """Return the candidate's deployment."""
        return self.option.live

    @property
    def total_s(self) -> float:
        """Return the seconds until the first byte."""
        return self.wait_s + self.service_s

    @property
    def first_token_s(self) -> float:
        """Return the seconds until the first token, which of a plain answer comes before the first byte."""
        return self.wait_s + self.made.seconds

    def is_better_than(self, other: CandidateForecast) -> bool:
        """Return whether this candidate is preferable: in time, then sooner."""
        if self.is_in_time is not other.is_in_time:
            return self.is_in_time
        return self.wait_s + self.service_s < other.wait_s + other.service_s


class CandidateForecasts(msgspec.Struct, frozen=True):
    """The candidates of one route for one request."""

    best: CandidateForecast | None
    """The soonest candidate, of those in time if there are any; None when none is fit."""
    too_late: frozenset[str]
    """Ids of the candidates that would be too late."""
    planned: PlannedRoute | None = None
    """Route of `best`, if that is in time."""
    seen: tuple[Seen, ...] = ()
    """Candidates forecast here: the first attempt uses these forecasts."""

    @property
    def is_in_time(self) -> bool:
        """Return whether the best candidate would be in time."""
        return self.best is not None and self.best.is_in_time


_NOBODY: Final[frozenset[str]] = frozenset()


class CandidateForecaster:
    """Forecaster of candidates; its only state is where the last search began."""

    __slots__ = ("_turn",)

    def __init__(self) -> None:
        self._turn = 0

    def look(
        self, now: float, planned: PlannedRoute, routing_request: RoutingRequest, is_stream: bool
    ) -> CandidateForecasts:
        """Forecast the route's fit candidates, in the route's order where the first takes all."""
        few = planned.few(now, routing_request)
        if few is not None:
            found = self._look_at_few(now, planned, few, routing_request, is_stream)
            if found.is_in_time:
                return found
        return self._look_around(now, planned, routing_request, is_stream)

    def coming(
        self, now: float, planned: PlannedRoute, routing_request: RoutingRequest, is_stream: bool
    ) -> CandidateForecast | None:
        """Return the forecast of the first deployment to become ready, of the route or its fallbacks.

        None where none is known to be starting.
        """
        start = planned.next_start(now)
        if start is None:
            return None
        found = next(_outlooks(now, (start.option,), routing_request, is_stream))
        wait_s = start.left_s + found.wait_s
        ratio = lateness(
            now, routing_request.admission_request, wait_s, wait_s + found.made.seconds, wait_s + found.service_s
        )
        return msgspec.structs.replace(found, wait_s=wait_s, is_in_time=ratio <= 1.0, start_s=start.left_s)

    def _look_at_few(
        self,
        now: float,
        planned: PlannedRoute,
        few: list[LiveCandidate],
        routing_request: RoutingRequest,
        is_stream: bool,
    ) -> CandidateForecasts:
        """Forecast the few candidates that the router would weigh, so that it need not forecast them again."""
        best: CandidateForecast | None = None
        late: list[str] = []
        seen: list[Seen] = []
        last_but_one = few[-2] if len(few) > NUM_DRAWN else None
        for found in _outlooks(now, few, routing_request, is_stream):
            option = found.option
            if found.is_in_time:
                seen.append((option, option.view_of(routing_request, found.price, found.wait_s, found.made)))
            else:
                late.append(option.live.id)
            if best is None or found.is_better_than(best):
                best = found
            # A holder of the prefix was better than another: the last one drawn need not be forecast.
            if option is last_but_one and best is not found and best.is_in_time:
                break
        return CandidateForecasts(best, frozenset(late) if late else _NOBODY, planned, tuple(seen))

    def _look_around(
        self, now: float, planned: PlannedRoute, routing_request: RoutingRequest, is_stream: bool
    ) -> CandidateForecasts:
        """Forecast one candidate after the other, up to a bound; of many, the router weighs a few itself."""
        options = planned.options
        num, takes_first = len(options), planned.profile.takes_first
        if num > ENOUGH_FORECASTS and not takes_first:
            self._turn = first = (self._turn + 1) % num
            options = options[first:] + options[:first]
        options = options[:MAX_FORECASTS]
        beyond = options if takes_first else options[ENOUGH_FORECASTS - 1 :]
        best: CandidateForecast | None = None
        late: list[str] = []
        seen: list[Seen] = []
        fit = (option for option in options if option.live.is_ready and option.live.health.is_fit)
        for found in _outlooks(now, fit, routing_request, is_stream):
            if planned.compares_all:
                option = found.option
                seen.append((option, option.view_of(routing_request, found.price, found.wait_s, found.made)))
            if not found.is_in_time:
                late.append(found.option.live.id)
            if best is None or found.is_better_than(best):
                best = found
            if best.is_in_time and found.option in beyond:
                break
        return CandidateForecasts(best, frozenset(late) if late else _NOBODY, planned, tuple(seen))


def _outlooks(
    now: float, options: Iterable[LiveCandidate], routing_request: RoutingRequest, is_stream: bool
) -> Iterator[CandidateForecast]:
    """Yield the forecast of each candidate in turn, computed only on demand."""
    # What is the same for all of them comes first; few helpers, for the rest runs for each forecast.
    admission_request, held_tokens, wanted_tpot_s = (
        routing_request.admission_request,
        routing_request.held_tokens,
        routing_request.tpot_slo_s,
    )
    lane, num_tokens, is_long = admission_request.lane, routing_request.price.output_tokens, admission_request.is_long
    engine_lane, lane_tpot_s = lane.engine_lane, lane.rules.tpot_slo_s
    # Where the lane has a target that is as tight, it bounds the rows instead.
    minds_pace = wanted_tpot_s is not None and (lane_tpot_s is None or wanted_tpot_s < lane_tpot_s)
    holds_seqs = not is_stream or wanted_tpot_s is not None
    num_gaps = num_tokens - 1 if holds_seqs and num_tokens > 1 else 0
    target_s, patience_s = _time_left(now, admission_request)
    if is_stream and patience_s < target_s:  # of a stream the first token is the first byte
        target_s = patience_s
    for option in options:
        live = option.live
        forecast, limiter, bound = live.forecast, live.limiter, live.seq_bound
        price = routing_request.price_at(live.id) if live.id in held_tokens else routing_request.price
        if lane_tpot_s is not None and (now >= bound.due_at or lane_tpot_s < bound.tightest_s):
            due_s = bound.target_due(now, lane_tpot_s)
            if due_s is not None:
                limiter.bound_seqs(seqs_within(forecast, now, due_s))
                limiter.set_room(forecast.step_tokens(now))
        made = forecast.look(now, price.uncached_tokens, engine_lane)
        ttft_s = service_s = made.seconds
        whole_s = ttft_s + num_gaps * made.tpot_s
        reads_long = is_long or (is_stream and price.uncached_tokens > LONG_PROMPT_TOKENS)
        wait_s, overrun = limiter.expected_wait(now, admission_request, whole_s, reads_long)
        ratio = _ratio(wait_s + ttft_s, target_s)
        if not is_stream:
            service_s = whole_s
            ratio = max(ratio, _ratio(wait_s + whole_s, patience_s))
        if admission_request.is_retry and wait_s > 0.0:
            ratio /= RETRY_SHARE
        ratio *= overrun
        if ratio > CROWDED_PART:  # else it would be in time for who crowds the lane as well
            ratio /= limiter.part_of_time(now, admission_request)
        is_in_time = ratio <= 1.0 or (ratio <= TRIED_RATIO and limiter.idle_s(now, lane) >= UNTRIED_S)
        if minds_pace and wanted_tpot_s is not None and made.tpot_s > wanted_tpot_s:
            is_in_time = False
        yield CandidateForecast(option, price, made, wait_s, service_s, is_in_time)


def lateness(
    now: float, admission_request: AdmissionRequest, wait_s: float, ttft_s: float, first_byte_s: float
) -> float:
    """Time needed over time there is, by whichever of the target and the deadline is tighter."""
    target_s, patience_s = _time_left(now, admission_request)
    ratio = max(_ratio(ttft_s, target_s), _ratio(first_byte_s, patience_s))
    return ratio / RETRY_SHARE if admission_request.is_retry and wait_s > 0.0 else ratio


def _time_left(now: float, admission_request: AdmissionRequest) -> tuple[float, float]:
    """Return the seconds until the target and until the deadline; infinite where there is none."""
    target_s = math.inf if admission_request.ttft_by is None else admission_request.ttft_by - now
    return target_s, math.inf if admission_request.deadline_at is None else admission_request.deadline_at - now


def _ratio(needed_s: float, left_s: float) -> float:
    return needed_s / left_s if left_s > 0.0 else math.inf
