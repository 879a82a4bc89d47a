"""One lane's part of a deployment: its permits by tenant, and what it learns from first tokens and waits."""

from __future__ import annotations

import pytest

from gateway.limits.adaptive_limit import AdaptiveLimit
from gateway.limits.lane import LaneRules, LiveLane
from gateway.limits.lane_share import (
    CROWDED_PART,
    MIN_CAUTION,
    SHARED_S,
    HoldTimes,
    LaneShare,
    Overrun,
)
from gateway.limits.permit import AdmissionRequest

LANE = LiveLane("interactive", rules=LaneRules(ttft_slo_s=0.5))


def admission_request(tenant: str = "a", tokens: int = 10, **times: float) -> AdmissionRequest:
    return AdmissionRequest(LANE, tenant, tokens, **times)  # type: ignore[arg-type]


def share(limit: AdaptiveLimit | None = None) -> LaneShare:
    return LaneShare(LANE, limit)


def test_permits_are_counted_by_tenant_and_all_come_back() -> None:
    own, claims = share(), [admission_request("a"), admission_request("a"), admission_request("b", 30)]
    for one in claims:
        own.open(one, False, 0.0)
    assert (own.in_flight, own.tokens, own.by_tenant) == (3, 50, {"a": 2, "b": 1})
    for one in claims:
        own.close(one, one.tokens)
    assert (own.in_flight, own.tokens, own.by_tenant) == (0, 0, {})
    own.check_integrity()


def test_a_permit_cannot_come_back_twice() -> None:
    own, one = share(), admission_request()
    own.open(one, False, 0.0)
    own.open(admission_request(), False, 0.0)
    own.close(one, 10)
    own.close(one, 10)
    with pytest.raises((AssertionError, KeyError)):
        own.close(one, 10)


def test_a_tenant_is_sparse_below_a_fair_part_and_crowds_only_a_shared_lane() -> None:
    own = share()
    for tenant in ("a", "a", "a", "b"):
        own.open(admission_request(tenant), False, 0.0)
    assert not own.is_sparse("a")
    assert own.is_sparse("b")
    assert own.is_sparse("newcomer")
    assert own.is_crowding("a", 1.0)
    assert not own.is_crowding("b", 1.0)
    assert own.part_of_time("a", 1.0) == CROWDED_PART
    assert own.part_of_time("a", SHARED_S) == 1.0, "nobody shared it lately"


def test_alone_a_tenant_crowds_nobody() -> None:
    own = share()
    for _ in range(5):
        own.open(admission_request("a"), False, 0.0)
    assert not own.is_crowding("a", 1.0)


def test_a_limit_always_lets_one_request_through_and_keeps_room_for_sparse_tenants() -> None:
    own = share(AdaptiveLimit(start=4))
    assert own.has_room
    for tenant in ("a", "a", "b", "a"):
        own.open(admission_request(tenant), False, 0.0)
    assert not own.has_room
    assert not own.has_room_for("a")


def test_a_missed_target_makes_forecasts_longer_once_for_a_group_and_hits_shorten_them() -> None:
    overrun = Overrun()
    for arrived_at in (0.0, 0.5, 0.9):
        overrun.note(1.0, admission_request(ttft_by=0.9, arrived_at=arrived_at))
    assert overrun.ratio == pytest.approx(1.15), "they were admitted before the first miss was seen"
    overrun.note(2.0, admission_request(ttft_by=1.9, arrived_at=1.5))
    assert overrun.ratio == pytest.approx(1.30)
    before = overrun.ratio
    overrun.note(2.0, admission_request(ttft_by=9.0, arrived_at=1.8))
    assert 1.0 < overrun.ratio < before
    overrun.note(500.0, admission_request(ttft_by=900.0, arrived_at=499.0))
    assert overrun.ratio == 1.0, "what went wrong long ago has passed"
    overrun.note(500.0, admission_request())
    assert overrun.ratio == 1.0


def test_caution_grows_with_each_late_request_up_to_a_bound_and_fades() -> None:
    own = share()
    assert own.caution == MIN_CAUTION
    for _ in range(100):
        own.note_late(0.0)
    worst = own.caution
    assert MIN_CAUTION < worst < 10.0
    own.note_granted(1.0)
    assert own.caution < worst
    own.note_granted(1e6)
    assert own.caution == MIN_CAUTION


def test_hold_times_follow_the_last_dozens() -> None:
    holds = HoldTimes()
    assert not holds.is_known
    holds.note(1.0, 100)
    assert (holds.is_known, holds.mean_s, holds.mean_tokens) == (True, 1.0, 100.0)
    for _ in range(300):
        holds.note(3.0, 10)
    assert holds.mean_s == pytest.approx(3.0, rel=0.01)
    assert holds.mean_tokens == pytest.approx(10.0, rel=0.1)
