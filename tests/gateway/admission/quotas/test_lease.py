"""A lease of units: drawn ahead of need, given back when they are scarce, and counted when the store is lost."""

from __future__ import annotations

from gateway.admission.quotas.lease import LAZY_S, NOW_BUCKET, RENEW_AFTER_S, QuotaLease, Unit
from gateway.store.meter import BUCKET_S, Draw, Grant, Meter, Period, draw_units

MIDDAY = 1_750_000_000.0
LIMIT = 100


class Store:
    """One meter of a store, and the clock of a process beside it."""

    def __init__(self, limit: int = LIMIT) -> None:
        self.counts: dict[int, int] = {}
        self.lease = QuotaLease(Meter("tokens_per_min", Period.MINUTE, limit), Unit.TOKEN, "allow")
        self.now = 0.0

    def exchange(self, first: int, waiting: int | None = None, *, ahead: bool = False) -> Grant:
        draw = self.lease.draw(first, first if waiting is None else waiting, self.now, ahead=ahead)
        grant = draw_units(self.counts, draw, MIDDAY + self.now, 1)
        self.lease.take(draw, grant, self.now, self.now)
        return grant

    @property
    def used(self) -> int:
        return sum(self.counts.values())


def test_a_lease_never_drawn_has_nothing() -> None:
    lease = Store().lease
    assert (lease.left, lease.has_news(0.0, 0.0), lease.knows_dry(1, 0.0)) == (0, False, False)


def test_what_was_granted_is_left_until_its_time_is_over() -> None:
    store = Store()
    store.exchange(10, ahead=True)
    assert store.lease.left >= 10
    assert 0.0 < store.lease.until <= 2 * BUCKET_S
    assert store.used == store.lease.left


def test_units_of_a_lease_that_is_over_go_back_with_the_next_draw() -> None:
    store = Store()
    store.exchange(10)
    store.now = store.lease.until
    assert store.lease.has_news(store.now, store.now), "other processes may need them"
    store.exchange(0)
    assert (store.used, store.lease.left) == (0, 0)


def test_few_unused_units_far_from_the_limit_need_no_call_of_their_own() -> None:
    store = Store(limit=100_000)
    store.exchange(10)
    requested_at, store.now = store.now, store.lease.until
    assert not store.lease.has_news(store.now, requested_at)
    assert store.lease.has_news(requested_at + LAZY_S, requested_at)


def test_a_dry_answer_is_trusted_for_a_moment_and_only_for_such_a_need() -> None:
    store = Store()
    store.exchange(LIMIT)
    store.lease.left = 0  # all of it in use
    store.exchange(5)
    assert store.lease.knows_dry(5, store.now)
    assert store.lease.knows_dry(9, store.now)
    assert not store.lease.knows_dry(4, store.now)
    assert not store.lease.knows_dry(5, store.now + RENEW_AFTER_S)
    assert store.lease.free_at is not None
    assert store.lease.free_at > store.now


def test_a_need_above_the_limit_is_never_free() -> None:
    store = Store()
    store.exchange(LIMIT + 1)
    assert store.lease.free_at is None


def test_units_of_an_earlier_lease_are_owed_to_its_bucket() -> None:
    store = Store()
    store.exchange(10)
    bucket = store.lease.bucket
    store.now = store.lease.until
    store.exchange(10)
    store.lease.give_back(bucket, 4)
    assert store.lease.owed == {bucket: 4}
    store.lease.give_back(bucket, -3)
    assert store.lease.owed[NOW_BUCKET] == -3, "what was used beyond the estimate counts now"


def test_a_report_that_the_store_may_have_is_not_made_twice() -> None:
    lease = Store().lease
    draw = Draw(lease.meter, returns=((7, 5), (8, -2)))
    lease.unconfirmed(draw, may_be_known=True)
    assert lease.owed == {8: -2}, "use is told again, a return is not"
    lease.unconfirmed(draw, may_be_known=False)
    assert lease.owed == {7: 5, 8: -4}


def test_alone_it_draws_no_more_than_its_share_and_owes_the_use() -> None:
    store = Store()
    draw = store.lease.draw(10, 10, 0.0, ahead=False)
    store.lease.draw_alone(draw, 15, 0.0, MIDDAY)
    assert store.lease.left == 10
    store.lease.left = 0
    store.lease.draw_alone(store.lease.draw(10, 10, 0.0, ahead=False), 15, 0.0, MIDDAY)
    assert store.lease.left == 0, "five are left of the share"


def test_alone_one_request_above_the_share_is_let_through_when_nothing_else_is_under_way() -> None:
    store = Store()
    store.lease.draw_alone(store.lease.draw(40, 40, 0.0, ahead=False), 15, 0.0, MIDDAY)
    assert store.lease.left == 40
