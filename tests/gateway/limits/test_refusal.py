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
