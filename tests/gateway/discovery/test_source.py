"""What every source does alike."""

from __future__ import annotations

import pytest

from gateway.discovery.source import LONGEST_PAUSE_S, Backoff, SourceError, usable
from routing_policies.policy.members import Address


def test_pauses_grow_to_a_bound_and_begin_anew_after_a_success() -> None:
    backoff = Backoff()
    assert [backoff.failed() for _ in range(8)] == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, LONGEST_PAUSE_S, LONGEST_PAUSE_S]
    backoff.reset()
    assert backoff.failed() == 0.5


def test_members_are_sorted_and_each_counts_once() -> None:
    assert usable([Address("b", 1), Address("a", 2), Address("b", 1)]) == (Address("a", 2), Address("b", 1))


@pytest.mark.parametrize(("host", "port"), [("a b", 1), ("", 1), ("a/b", 1), ("a@b", 1), ("a", 0), ("a", 65_536)])
def test_an_address_that_no_url_can_hold_is_a_failure(host: str, port: int) -> None:
    with pytest.raises(SourceError):
        usable([Address(host, port)])
