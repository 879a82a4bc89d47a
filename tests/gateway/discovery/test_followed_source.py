"""The last members of a source, which no failure changes."""

from __future__ import annotations

from gateway.discovery.followed_source import FollowedSource
from routing_policies.policy.members import Address

A, B = Address("a", 1), Address("b", 1)


def test_a_failure_keeps_the_members_and_is_reported() -> None:
    now, changes, reads = [10.0], [0], list[bool]()
    source = FollowedSource(lambda: now[0], lambda: changes.append(1), reads.append)
    assert (source.has_reported, source.age_s()) == (False, None)
    source.take([A, B])
    now[0] = 12.0
    source.fail("down")
    assert (source.members, source.error, source.age_s()) == ((A, B), "down", 2.0)
    source.take([A, B])
    assert (source.error, source.age_s(), reads) == (None, 0.0, [True, False, True])
    assert len(changes) == 2, "an equal listing is no change"
    source.take([])
    assert source.members == ()
