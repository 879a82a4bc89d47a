"""Counts of what was written back to a store that had lost it."""

from __future__ import annotations

from gateway.access.restored import Restored
from tests.gateway.access.test_records import ADMIN, KEY, TOKEN


def test_records_are_counted_by_kind_and_those_that_are_over_once_more() -> None:
    counts = Restored()
    for record in (KEY, KEY, ADMIN, ADMIN.deleted(4.0), TOKEN.deleted(4.0)):
        counts = counts.and_one(record)
    assert counts == Restored(keys=2, admins=2, tokens=1, over=2)


def test_nothing_is_falsy_and_sums_add_each_part() -> None:
    assert not Restored()
    assert not Restored(over=3), "records that are over are part of the other counts"
    assert Restored(tokens=1)
    assert Restored(keys=1, over=1) + Restored(keys=2, admins=3) == Restored(keys=3, admins=3, over=1)
