"""Sources that come and go with the policies, and what is reported of them."""

from __future__ import annotations

import asyncio

from gateway.discovery.discovery import Discovery
from gateway.discovery.followed_source import FollowedSource
from gateway.discovery.source import Listing, SourceError
from gateway.util.doubling_pauses import FIRST_PAUSE_S
from loadtests.simulation.virtual_loop import run_virtual
from routing_policies.loading import load_policy
from routing_policies.policy.deployment import MemberSourceKey
from routing_policies.policy.document import Policy
from routing_policies.policy.members import Address

A, B = Address("a", 1), Address("b", 1)
ONE: MemberSourceKey = ("list", "one", None)
TWO: MemberSourceKey = ("list", "two", None)


def policy(*names: str, slow_start_s: int = 30, **sources: str) -> Policy:
    """Groups with lists of their own names, and `sources`: groups with lists of other names."""
    lists = {**{name: name for name in names}, **sources}
    lines = [
        f"  - {{id: {group}, model: m, discover: {{list: {name}, slow_start_s: {slow_start_s}}}}}"
        for group, name in lists.items()
    ]
    lines.append("  - {id: fixed, model: m, url: 'http://fixed'}")
    return load_policy("\n".join(["schema_version: 1", "deployments:", *lines, ""]), source="test")


class Held:
    """A source whose listing the test has in its hands."""

    def __init__(self) -> None:
        self.listing: Listing | None = None
        self.is_followed = False

    async def follow(self, listing: Listing) -> None:
        self.listing, self.is_followed = listing, True
        try:
            await asyncio.Event().wait()
        finally:
            self.is_followed = False


class World:
    """A Discovery over held sources."""

    def __init__(self) -> None:
        self.opened: dict[MemberSourceKey, Held] = {}
        self.num_changes = 0
        self.reads: list[tuple[MemberSourceKey, bool]] = []
        self.crashes: list[BaseException] = []
        self.discovery = Discovery(
            self.open, lambda: 0.0, on_change=self.changed, watcher=self.looked, on_crash=self.crashes.append
        )

    def open(self, key: MemberSourceKey) -> Held:
        if key[1] == "forbidden":
            raise SourceError("not here")
        assert key not in self.opened or not self.opened[key].is_followed
        self.opened[key] = Crashing() if key[1] == "crashing" else Held()
        return self.opened[key]

    @property
    def members(self) -> dict[MemberSourceKey, tuple[Address, ...]]:
        return {key: source.members for key, source in self.discovery.sources.items()}

    def changed(self) -> None:
        self.num_changes += 1

    def looked(self, key: MemberSourceKey, source: FollowedSource, *, is_listed: bool) -> None:
        self.reads.append((key, is_listed))

    def take(self, key: MemberSourceKey, *members: Address) -> None:
        listing = self.opened[key].listing
        assert listing is not None
        listing.take(members)


class Crashing(Held):
    """A source with a bug."""

    async def follow(self, listing: Listing) -> None:
        listing.take([A])
        raise ZeroDivisionError


async def turn() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


async def test_several_changes_in_one_turn_are_reported_once() -> None:
    world = World()
    world.discovery.follow([policy("one", "two")])
    await turn()
    world.take(ONE, A)
    world.take(TWO, A, B)
    await turn()
    assert (world.num_changes, world.members) == (1, {ONE: (A,), TWO: (A, B)})
    world.take(ONE, A)
    await turn()
    assert world.num_changes == 1
    await world.discovery.aclose()


async def test_a_new_policy_keeps_the_sources_that_it_names() -> None:
    world = World()
    world.discovery.follow([policy("one"), policy("one", "two")])
    await turn()
    first = world.opened[ONE]
    world.take(ONE, A)
    world.discovery.follow([policy("one", slow_start_s=0)])
    await turn()
    assert (first.is_followed, world.opened[TWO].is_followed) == (True, False)
    assert world.members == {ONE: (A,)}
    await world.discovery.aclose()
    assert not first.is_followed


async def test_a_group_keeps_its_members_until_its_new_source_lists_its_own() -> None:
    world = World()
    world.discovery.follow([policy("one")])
    await turn()
    world.take(ONE, A)
    changed = policy(one="two")
    assert world.discovery.members_for([changed]) == {TWO: (A,)}, "a snapshot is built before its sources are followed"
    assert world.members == {ONE: (A,)}
    world.discovery.follow([changed])
    await turn()
    assert (world.members, world.opened[ONE].is_followed, world.num_changes) == ({TWO: (A,)}, False, 1)
    source = world.discovery.sources[TWO]
    assert (source.has_reported, source.age_s()) == (False, None)
    world.take(TWO, B)
    await turn()
    assert (world.members, world.num_changes) == ({TWO: (B,)}, 2)
    world.discovery.follow([policy(one="three")])
    await turn()
    world.take(("list", "three", None))
    await turn()
    assert (world.members, world.num_changes) == ({("list", "three", None): ()}, 3), "an empty listing is a listing"
    await world.discovery.aclose()


async def test_a_canary_with_another_source_begins_with_the_members_of_the_policy_in_force() -> None:
    world = World()
    world.discovery.follow([policy("one")])
    await turn()
    world.take(ONE, A)
    world.discovery.follow([policy("one"), policy(one="two")])
    await turn()
    assert world.members == {ONE: (A,), TWO: (A,)}
    world.take(ONE, A, B)
    assert world.discovery.members_for([policy(one="four")]) == {("list", "four", None): (A, B)}
    await world.discovery.aclose()


async def test_groups_that_begin_to_share_a_source_do_not_get_each_others_members() -> None:
    world = World()
    world.discovery.follow([policy("one", "two")])
    await turn()
    world.take(ONE, A)
    world.take(TWO, B)
    shared: MemberSourceKey = ("list", "three", None)
    assert world.discovery.members_for([policy(one="three", two="three")]) == {shared: ()}
    assert world.discovery.members_for([policy(one="three", new="three")]) == {shared: ()}
    world.discovery.follow([policy(one="three")])
    assert world.discovery.members_for([policy(one="four", other="five")]) == {
        ("list", "four", None): (A,),
        ("list", "five", None): (),
    }
    await world.discovery.aclose()


async def test_a_source_that_cannot_be_opened_is_a_failure_and_no_crash() -> None:
    world = World()
    world.discovery.follow([policy("forbidden")])
    await turn()
    assert world.discovery.sources["list", "forbidden", None].error == "not here"
    assert world.reads == [(("list", "forbidden", None), False)]
    await world.discovery.aclose()


async def test_a_source_that_crashes_keeps_its_members_and_is_reported() -> None:
    world = World()
    world.discovery.follow([policy("crashing")])
    await turn()
    found = world.discovery.sources["list", "crashing", None]
    assert (found.members, [type(error) for error in world.crashes]) == ((A,), [ZeroDivisionError])
    assert found.error is not None
    await world.discovery.aclose()


async def test_a_start_waits_for_the_first_listings_and_no_longer_than_its_limit() -> None:
    world = World()
    world.discovery.follow([policy("one", "two")])
    await turn()
    settled = asyncio.create_task(world.discovery.settle(5.0))
    world.take(ONE, A)
    await turn()
    assert not settled.done()
    world.take(TWO)
    await asyncio.wait_for(settled, 2.0)
    assert world.num_changes == 1
    world.discovery.follow([policy("one", "three")])
    await asyncio.wait_for(world.discovery.settle(0.01), 2.0)
    await world.discovery.aclose()


async def test_a_source_that_crashed_is_followed_again_with_the_next_policy_and_keeps_its_members() -> None:
    world, crashing = World(), ("list", "crashing", None)
    world.discovery.follow([policy("crashing")])
    await turn()
    first = world.opened[crashing]
    world.discovery.follow([policy("crashing", slow_start_s=0)])
    assert world.members == {crashing: (A,)}
    await turn()
    assert world.opened[crashing] is not first
    assert (len(world.crashes), world.num_changes) == (2, 1)
    await world.discovery.aclose()


def test_a_source_that_crashed_is_followed_again_after_a_pause_and_keeps_its_members() -> None:
    async def course() -> None:
        world, crashing = World(), ("list", "crashing", None)
        world.discovery.follow([policy("crashing")])
        await asyncio.sleep(4 * FIRST_PAUSE_S)
        assert len(world.crashes) == 3
        assert world.members == {crashing: (A,)}
        await world.discovery.aclose()

    run_virtual(course())
