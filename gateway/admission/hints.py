"""Refusals for time: the reason, and a request that would be admitted, from the same forecasts."""

from __future__ import annotations

import math
from typing import Final

from gateway.access.api_keys import Caller
from gateway.admission.candidate_forecast import CandidateForecast, lateness
from gateway.errors import Shed, ShedReason
from gateway.limits.lane import LiveLane
from gateway.limits.permit import AdmissionRequest
from gateway.limits.refusal import first_token_late, timed
from gateway.routing.routing_request import RoutingRequest
from gateway.routing.snapshot import PolicySnapshot

_MIN_WORTHWHILE_TOKENS: Final = 16
_BISECTIONS: Final = 12


def refusal_of(
    now: float, routing_request: RoutingRequest, best: CandidateForecast, *, is_stream: bool, elsewhere: LiveLane | None
) -> Shed:
    """Return the refusal of a request for which even `best` is too late; `elsewhere` is a lane that would take it."""
    admission_request = routing_request.admission_request
    if misses_deadline(now, admission_request, best):
        return _deadline(now, routing_request, best, is_stream=is_stream)
    limiter = best.live.limiter
    if limiter.is_crowding(now, admission_request) and _would_be_in_time(
        now, admission_request, limiter.wait_s(now, admission_request, is_newcomer=True), best
    ):
        return _shed(
            ShedReason.TENANT_SHARE,
            admission_request,
            best,
            excess_s=best.first_token_s - _left_s(now, admission_request),
            message="Your own requests that wait leave no time for this one within the latency target: "
            + first_token_late(now, admission_request, best.first_token_s),
            hint="The same request when fewer of your own requests wait.",
        )
    return _shed(
        ShedReason.SLO_UNREACHABLE,
        admission_request,
        best,
        excess_s=best.first_token_s - _left_s(now, admission_request),
        message=f"Too late for the latency target: {first_token_late(now, admission_request, best.first_token_s)}",
        hint=_target_hint(now, routing_request, best, elsewhere),
    )


def misses_deadline(now: float, admission_request: AdmissionRequest, best: CandidateForecast) -> bool:
    """Return whether the client would have left before its first byte."""
    return admission_request.deadline_at is not None and best.total_s > admission_request.deadline_at - now


def lane_elsewhere(
    now: float,
    snapshot: PolicySnapshot,
    caller: Caller | None,
    routing_request: RoutingRequest,
    best: CandidateForecast,
) -> LiveLane | None:
    """Return a lane that this caller may use and that would have taken the request in time; None if there is none."""
    admission_request = routing_request.admission_request
    for lane in snapshot.lanes.values():
        is_allowed = caller is None or caller.lanes is None or lane.id in caller.lanes
        if lane is admission_request.lane or lane.rules.is_longer or not is_allowed or lane.is_full:
            continue
        slo_s = lane.rules.ttft_slo_s
        there = AdmissionRequest(
            lane,
            admission_request.tenant,
            admission_request.tokens,
            admission_request.deadline_at,
            None,
            admission_request.is_retry,
            admission_request.arrived_at,
        )
        wait_s = best.live.limiter.wait_s(now, there, best.service_s)
        within_s = math.inf if slo_s is None else admission_request.arrived_at + slo_s - now
        patience_s = math.inf if admission_request.deadline_at is None else admission_request.deadline_at - now
        if wait_s + best.made.seconds <= within_s and wait_s + best.service_s <= patience_s:
            return lane
    return None


def _deadline(now: float, routing_request: RoutingRequest, best: CandidateForecast, *, is_stream: bool) -> Shed:
    admission_request = routing_request.admission_request
    needed_s = math.ceil(now - admission_request.arrived_at + best.total_s)
    hint = f"A client timeout of {needed_s} s or more."
    shorter = None if is_stream else _tokens_in_time(now, routing_request, best)
    if shorter is not None:
        hint += f" Or max_tokens of {shorter} or fewer."
    assert admission_request.deadline_at is not None
    return _shed(
        ShedReason.DEADLINE,
        admission_request,
        best,
        excess_s=best.total_s - (admission_request.deadline_at - now),
        message="The answer is forecast to come after the client's own timeout: "
        + timed(now, admission_request, admission_request.deadline_at, best.total_s, "the first byte"),
        hint=hint,
    )


def _tokens_in_time(now: float, routing_request: RoutingRequest, best: CandidateForecast) -> int | None:
    """Return the longest plain answer that would be whole before the deadline."""
    assert routing_request.admission_request.deadline_at is not None
    forecast = best.live.forecast
    ttft_s = forecast.ttft_s(
        now, routing_request.price.uncached_tokens, routing_request.admission_request.lane.engine_lane
    )
    left_s = routing_request.admission_request.deadline_at - now - best.wait_s - ttft_s
    num_tokens = int(left_s / max(forecast.tpot_s(now), 1e-6)) if left_s > 0.0 else 0
    return num_tokens if _MIN_WORTHWHILE_TOKENS <= num_tokens < routing_request.price.output_tokens else None


def _target_hint(
    now: float, routing_request: RoutingRequest, best: CandidateForecast, elsewhere: LiveLane | None
) -> str:
    admission_request, rules = routing_request.admission_request, routing_request.admission_request.lane.rules
    needed_s = now - admission_request.arrived_at + best.first_token_s
    lane_by = math.inf if rules.ttft_slo_s is None else admission_request.arrived_at + rules.ttft_slo_s
    # Only a client that set less time than its lane's can set more.
    if (
        admission_request.ttft_by is not None
        and admission_request.ttft_by < lane_by
        and admission_request.arrived_at + needed_s <= lane_by
    ):
        return f"A latency target of {_ms(needed_s)} ms or more (x-slo-ttft-ms)."
    if elsewhere is not None:
        return f"The same request in lane '{elsewhere.id}' (x-penstock-priority: {elsewhere.id})."
    if best.wait_s > 0.0 and best.made.seconds <= _left_s(now, admission_request):
        excess_s = best.first_token_s - _left_s(now, admission_request)
        return f"The same request in about {max(math.ceil(excess_s), 1)} s."
    shorter = _prompt_in_time(now, routing_request, best)
    if shorter is not None:
        return f"A prompt of about {shorter} tokens or fewer."
    return "The same request at a later time."


def _prompt_in_time(now: float, routing_request: RoutingRequest, best: CandidateForecast) -> int | None:
    """Return the longest prompt whose first token would be in time."""
    forecast, lane = best.live.forecast, routing_request.admission_request.lane.engine_lane
    left_s = _left_s(now, routing_request.admission_request) - best.wait_s
    fits, misses = 0, routing_request.price.uncached_tokens
    for _ in range(_BISECTIONS):
        middle = (fits + misses) // 2
        if forecast.ttft_s(now, middle, lane) <= left_s:
            fits = middle
        else:
            misses = middle
    return fits if fits >= _MIN_WORTHWHILE_TOKENS else None


def _would_be_in_time(now: float, admission_request: AdmissionRequest, wait_s: float, best: CandidateForecast) -> bool:
    ttft_s, first_byte_s = wait_s + best.made.seconds, wait_s + best.service_s
    return lateness(now, admission_request, wait_s, ttft_s, first_byte_s) <= 1.0


def _left_s(now: float, admission_request: AdmissionRequest) -> float:
    return math.inf if admission_request.ttft_by is None else admission_request.ttft_by - now


def _ms(seconds: float) -> int:
    return math.ceil(seconds * 1000)


def _shed(
    reason: ShedReason,
    admission_request: AdmissionRequest,
    best: CandidateForecast,
    *,
    excess_s: float,
    message: str,
    hint: str,
) -> Shed:
    return Shed(
        reason,
        lane=admission_request.lane.id,
        message=message,
        hint=hint,
        retry_after_s=excess_s if math.isfinite(excess_s) else best.wait_s,
        queue_depth=admission_request.lane.total_waiting,
        predicted_wait_s=best.wait_s,
    )
