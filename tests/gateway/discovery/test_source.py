"""What every source does alike."""

from __future__ import annotations

import pytest

from gateway.discovery.source import LONGEST_PAUSE_S, SourceError, pauses, take_usable, usable
from routing_policies.policy.members import Address
from tests.gateway.discovery.recorded import Recorded


def test_pauses_grow_to_a_bound_and_begin_anew_after_a_success() -> None:
    backoff = pauses()
    assert [backoff.failed() for _ in range(8)] == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, LONGEST_PAUSE_S, LONGEST_PAUSE_S]
    backoff.reset()
    assert backoff.failed() == 0.5


def test_members_are_sorted_and_each_counts_once() -> None:
    assert usable([Address("b", 1), Address("a", 2), Address("b", 1)]) == (Address("a", 2), Address("b", 1))


@pytest.mark.parametrize(("host", "port"), [("a b", 1), ("", 1), ("a/b", 1), ("a@b", 1), ("a", 0), ("a", 65_536)])
def test_an_address_that_no_url_can_hold_is_a_failure(host: str, port: int) -> None:
    with pytest.raises(SourceError):
        usable([Address(host, port)])


async def test_one_unusable_address_is_left_out_and_reported() -> None:
    seen = Recorded()
    take_usable(seen, [Address("b", 1), Address("a b", 1), Address("a", 1)])
    assert await seen.next() == ["a:1", "b:1"]
    assert "'a b:1'" in await seen.failure()


async def test_a_listing_without_any_usable_address_is_a_failure_and_takes_no_member_away() -> None:
    seen = Recorded()
    take_usable(seen, [Address("a b", 1)])
    assert "'a b:1'" in await seen.failure()
    assert seen.events.empty()
