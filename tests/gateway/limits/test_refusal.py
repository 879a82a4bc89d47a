"""Refusals of a limiter: the reason, and the message for the client."""

from __future__ import annotations

import math

import pytest

from gateway.errors import Shed, ShedReason
from gateway.limits.lane import LaneRules, LiveLane
from gateway.limits.permit import AdmissionRequest
from gateway.limits.refusal import out_of_time, queue_full, still_starting, tenant_share

LANE = LiveLane("interactive", rules=LaneRules(ttft_slo_s=0.5))


def admission_request(deadline_at: float | None, ttft_by: float | None) -> AdmissionRequest:
    return AdmissionRequest(LANE, "t", 1, deadline_at, ttft_by)


@pytest.mark.parametrize(
    ("deadline_at", "ttft_by", "reason"),
    [
        (5.0, None, ShedReason.DEADLINE),
        (5.0, 9.0, ShedReason.DEADLINE),
        (5.0, 5.0, ShedReason.DEADLINE),
        (9.0, 5.0, ShedReason.SLO_UNREACHABLE),
        (None, 5.0, ShedReason.SLO_UNREACHABLE),
    ],
)
def test_the_limit_that_passed_first_is_the_reason(
    deadline_at: float | None, ttft_by: float | None, reason: ShedReason
) -> None:
    assert out_of_time(admission_request(deadline_at, ttft_by), 10.0).reason is reason


def test_a_full_queue_and_a_greedy_tenant_are_reported_apart_and_name_the_lane() -> None:
    full, greedy = queue_full(LANE, 0.0), tenant_share(LANE, 0.0)
    assert (full.reason, greedy.reason) == (ShedReason.QUEUE_FULL, ShedReason.TENANT_SHARE)
    for refusal in (full, greedy):
        assert "interactive" in refusal.message
        assert refusal.lane == "interactive"


def test_a_route_that_starts_reports_for_how_long() -> None:
    refusal: Shed = still_starting(LANE, "main", 7.2)
    assert (refusal.reason, refusal.retry_after_s) == (ShedReason.OVERLOAD, 7.2)
    assert f"about {math.ceil(7.2)} s" in refusal.degraded.hint
    assert "route 'main'" in refusal.message


def test_a_refusal_for_time_names_the_target_the_time_spent_and_the_forecast() -> None:
    waited = AdmissionRequest(LANE, "t", 1, 19.0, 10.5, arrived_at=10.0, service_s=6.0, first_token_s=0.2)
    late = out_of_time(waited, 10.4)
    assert late.reason is ShedReason.SLO_UNREACHABLE
    assert late.message == (
        "The first token can no longer come within the latency target: 500 ms are allowed, 400 ms are spent, and the "
        "first token is forecast in 200 ms more. Nothing was started."
    )
    impatient = out_of_time(AdmissionRequest(LANE, "t", 1, 12.0, None, arrived_at=10.0, service_s=1.5), 11.0)
    assert impatient.message == (
        "The client's own timeout passed while the request waited: 2000 ms are allowed, 1000 ms are spent, and the "
        "first byte is forecast in 1500 ms more. Nothing was started."
    )


def test_a_plain_answer_may_start_while_its_first_token_is_in_time_and_its_end_within_the_clients_timeout() -> None:
    plain = AdmissionRequest(LANE, "t", 1, None, 10.5, arrived_at=10.0).with_service(6.0, first_token_s=0.2)
    assert plain.start_by == pytest.approx(10.3)
    hurried = AdmissionRequest(LANE, "t", 1, 16.1, 10.5, arrived_at=10.0).with_service(6.0, first_token_s=0.2)
    assert hurried.start_by == pytest.approx(10.1)
