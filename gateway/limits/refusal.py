"""Refusals of a limiter, with reason, retry time and queue depth of the lane."""

from __future__ import annotations

import math

from gateway.errors import Shed, ShedReason
from gateway.limits.lane import LiveLane
from gateway.limits.permit import AdmissionRequest


def queue_full(lane: LiveLane, now: float) -> Shed:
    """Return the refusal for a full queue."""
    return _refused(
        ShedReason.QUEUE_FULL,
        lane,
        now,
        message=f"The queue of lane '{lane.id}' is full. Try again after the time in Retry-After.",
        hint="The same request at a later time, or in another lane.",
    )


def tenant_share(lane: LiveLane, now: float) -> Shed:
    """Return the refusal for a queue with room only for tenants with shorter backlogs."""
    return _refused(
        ShedReason.TENANT_SHARE,
        lane,
        now,
        message=f"Your requests hold more than a fair share of lane '{lane.id}'. Try again when fewer of them wait.",
        hint="The same request when fewer of your own requests wait.",
    )


def out_of_time(admission_request: AdmissionRequest, now: float) -> Shed:
    """Return the refusal for a request that has waited until it would be too late."""
    lane = admission_request.lane
    by_target = (
        math.inf if admission_request.ttft_by is None else (admission_request.ttft_by - admission_request.first_token_s)
    )
    if (
        admission_request.deadline_at is not None
        and admission_request.deadline_at - admission_request.service_s <= by_target
    ):
        return _refused(
            ShedReason.DEADLINE,
            lane,
            now,
            message="The client's own timeout passed while the request waited: "
            + timed(
                now, admission_request, admission_request.deadline_at, admission_request.service_s, "the first byte"
            ),
            hint="A longer client timeout, or the same request at a later time.",
        )
    return _refused(
        ShedReason.SLO_UNREACHABLE,
        lane,
        now,
        message="The first token can no longer come within the latency target: "
        + first_token_late(now, admission_request, admission_request.first_token_s),
        hint="A longer latency target, or the same request at a later time.",
    )


def first_token_late(now: float, admission_request: AdmissionRequest, first_token_s: float) -> str:
    """Return the sentences of a refusal with the target, the time already spent and the forecast."""
    return timed(now, admission_request, admission_request.ttft_by, first_token_s, "the first token")


def timed(now: float, admission_request: AdmissionRequest, by: float | None, needed_s: float, what: str) -> str:
    """Return how much of the time up to `by` is spent, and how long `what` is forecast to take from now on."""
    spent_s = max(now - admission_request.arrived_at, 0.0)
    limit = "no limit is" if by is None else f"{_ms(max(by - admission_request.arrived_at, 0.0))} ms are"
    return (
        f"{limit} allowed, {_ms(spent_s)} ms are spent, and {what} is forecast in {_ms(needed_s)} ms more. "
        "Nothing was started."
    )


def _ms(seconds: float) -> int:
    return round(seconds * 1000)


def still_starting(lane: LiveLane, route: str, start_s: float) -> Shed:
    """Return the refusal for a route whose deployments will be ready too late for this request."""
    message = f"No deployment of route '{route}' is ready; one is starting, for about {start_s:.1f} s more."
    return Shed(
        ShedReason.OVERLOAD,
        lane=lane.id,
        message=f"{message} Nothing was started.",
        hint=f"The same request in about {math.ceil(start_s)} s, or one with a longer timeout or latency target.",
        retry_after_s=start_s,
        queue_depth=lane.total_waiting,
        predicted_wait_s=start_s,
    )


def _refused(reason: ShedReason, lane: LiveLane, now: float, *, message: str, hint: str) -> Shed:
    wait_s = lane.predicted_wait_s(now)
    return Shed(
        reason,
        lane=lane.id,
        message=message,
        hint=hint,
        retry_after_s=wait_s,
        queue_depth=lane.total_waiting,
        predicted_wait_s=wait_s,
    )
