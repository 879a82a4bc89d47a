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


def claim(lane: LiveLane, tenant: str = "t") -> AdmissionRequest:
    return AdmissionRequest(lane, tenant, 1)


def take(books: Ledger, lane: LiveLane, num: int = 1, tenant: str = "t") -> None:
    share = books.share_of(lane)
    for _ in range(num):
        assert books.may_start(share, tenant, False, 0.0)
        books.open(share, claim(lane, tenant), False, 0.0)


def test_no_more_start_than_the_limit_and_one_more_for_each_that_returns() -> None:
    books, chat = ledger(2), lane()
    take(books, chat, 2)
    share = books.share_of(chat)
    assert not books.may_start(share, "t", False, 0.0)
    books.close(share, claim(chat), 1)
    assert books.may_start(share, "t", False, 0.0)
    books.check_integrity()


def test_rows_bound_the_permits_and_their_loss_lifts_the_bound() -> None:
    books = ledger(8)
    assert books.bound_seqs(3)
    assert (books.cap, books.limit) == (3, 3)
    assert not books.bound_seqs(3)
    assert books.bound_seqs(None)
    assert books.cap == 8
    books.bound_seqs(100)
    assert books.cap == 8, "never above the policy's own limit"


def test_a_new_limit_counts_at_once() -> None:
    books, chat = ledger(8), lane()
    take(books, chat, 4)
    books.set_limit(StaticLimit(4), start=None, is_adaptive=False)
    assert not books.may_start(books.share_of(chat), "t", False, 0.0)
    assert books.in_flight == 4, "what is under way goes on"


def test_waits_are_forecast_from_returns_and_are_unknown_without_any() -> None:
    books, chat = ledger(1), lane()
    assert books.wait_s(0.0, claim(chat)) == 0.0
    take(books, chat)
    assert books.wait_s(0.0, claim(chat)) is None
    assert books.wait_s(0.0, claim(chat), hold_s=2.0) == pytest.approx(2.0)
    books.note_held(books.share_of(chat), 0.0, held_s=4.0, tokens=1)
    assert books.wait_s(0.0, claim(chat), hold_s=2.0) == pytest.approx(4.0), "what was measured counts"


def test_a_deployment_that_stopped_returning_permits_is_forecast_slower_and_slower() -> None:
    books, chat = ledger(1), lane()
    take(books, chat)
    books.note_held(books.share_of(chat), 0.0, held_s=1.0, tokens=1)
    waits = [books.wait_s(now, claim(chat)) or 0.0 for now in (0.0, 2.0, 30.0, 300.0)]
    assert waits[0] == waits[1] == pytest.approx(1.0)
    assert waits[1] < waits[2] < waits[3]


def test_more_lanes_than_fit_are_forgotten_when_nothing_of_them_is_under_way() -> None:
    books, busy = ledger(2), lane("busy")
    take(books, busy)
    for number in range(200):
        books.share_of(lane(f"gone-{number}"))
    assert len(books.shares) <= 64
    assert books.share_of(busy).in_flight == 1
    books.check_integrity()


def test_a_larger_step_is_told_and_an_equal_one_is_not() -> None:
    books = ledger()
    books.share_of(lane(ttft_slo_s=0.5))
    assert not books.set_room(1000)
    assert books.set_room(2000)
    assert not books.set_room(2000)
    assert not books.set_room(500)
    assert books.set_room(None)
