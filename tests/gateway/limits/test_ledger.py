"""The permits of a deployment by lane: who may start, who is next, and how long the others wait."""

from __future__ import annotations

import pytest

from gateway.limits.lane import LaneRules, LiveLane
from gateway.limits.ledger import Ledger
from gateway.limits.limit import StaticLimit
from gateway.limits.permit import AdmissionRequest


def lane(name: str = "chat", weight: float = 1.0, ttft_slo_s: float | None = None) -> LiveLane:
    return LiveLane(name, rules=LaneRules(weight=weight, ttft_slo_s=ttft_slo_s))


def ledger(limit: int = 2) -> Ledger:
    return Ledger(StaticLimit(limit), start=None, is_adaptive=False)


def admission_request(lane: LiveLane, tenant: str = "t") -> AdmissionRequest:
    return AdmissionRequest(lane, tenant, 1)


def take(tally: Ledger, lane: LiveLane, num: int = 1, tenant: str = "t") -> None:
    share = tally.share_of(lane)
    for _ in range(num):
        assert tally.may_start(share, tenant, False, 0.0)
        tally.open(share, admission_request(lane, tenant), False, 0.0)


def test_no_more_start_than_the_limit_and_one_more_for_each_that_returns() -> None:
    tally, chat = ledger(2), lane()
    take(tally, chat, 2)
    share = tally.share_of(chat)
    assert not tally.may_start(share, "t", False, 0.0)
    tally.close(share, admission_request(chat), 1)
    assert tally.may_start(share, "t", False, 0.0)
    tally.check_integrity()


def test_rows_bound_the_permits_and_their_loss_lifts_the_bound() -> None:
    tally = ledger(8)
    assert tally.bound_seqs(3)
    assert (tally.cap, tally.limit) == (3, 3)
    assert not tally.bound_seqs(3)
    assert tally.bound_seqs(None)
    assert tally.cap == 8
    tally.bound_seqs(100)
    assert tally.cap == 8, "never above the policy's own limit"


def test_a_pause_before_the_first_permit_is_no_stall() -> None:
    tally, chat = ledger(1), lane()
    share = tally.share_of(chat)
    tally.open(share, admission_request(chat), False, 1000.0)
    assert tally.wait_s(1001.0, admission_request(chat), 2.0) == pytest.approx(2.0)
    stalled_s = tally.wait_s(1100.0, admission_request(chat), 2.0)
    assert stalled_s is not None
    assert stalled_s > 10.0


def test_a_new_limit_counts_at_once() -> None:
    tally, chat = ledger(8), lane()
    take(tally, chat, 4)
    tally.set_limit(StaticLimit(4), start=None, is_adaptive=False)
    assert not tally.may_start(tally.share_of(chat), "t", False, 0.0)
    assert tally.in_flight == 4, "what is under way goes on"


def test_waits_are_forecast_from_returns_and_are_unknown_without_any() -> None:
    tally, chat = ledger(1), lane()
    assert tally.wait_s(0.0, admission_request(chat)) == 0.0
    take(tally, chat)
    assert tally.wait_s(0.0, admission_request(chat)) is None
    assert tally.wait_s(0.0, admission_request(chat), hold_s=2.0) == pytest.approx(2.0)
    tally.note_held(tally.share_of(chat), 0.0, held_s=4.0, tokens=1)
    assert tally.wait_s(0.0, admission_request(chat), hold_s=2.0) == pytest.approx(4.0), "what was measured counts"


def test_a_deployment_that_stopped_returning_permits_is_forecast_slower_and_slower() -> None:
    tally, chat = ledger(1), lane()
    take(tally, chat)
    tally.note_held(tally.share_of(chat), 0.0, held_s=1.0, tokens=1)
    waits = [tally.wait_s(now, admission_request(chat)) or 0.0 for now in (0.0, 2.0, 30.0, 300.0)]
    assert waits[0] == waits[1] == pytest.approx(1.0)
    assert waits[1] < waits[2] < waits[3]


def test_more_lanes_than_fit_are_forgotten_when_nothing_of_them_is_under_way() -> None:
    tally, busy = ledger(2), lane("busy")
    take(tally, busy)
    for number in range(200):
        tally.share_of(lane(f"gone-{number}"))
    assert len(tally.shares) <= 64
    assert tally.share_of(busy).in_flight == 1
    tally.check_integrity()


def test_a_larger_step_is_reported_and_an_equal_one_is_not() -> None:
    tally = ledger()
    tally.share_of(lane(ttft_slo_s=0.5))
    assert not tally.set_room(1000)
    assert tally.set_room(2000)
    assert not tally.set_room(2000)
    assert not tally.set_room(500)
    assert tally.set_room(None)
