"""A mapping that stays small and is shared fairly."""

import pytest

from gateway.util.fair_bounded_dict import FairRecent, OwnerShares


def test_one_owner_has_it_all_until_another_comes() -> None:
    recent: FairRecent[int, str] = FairRecent(10)
    for number in range(20):
        recent.put(number, "x", "a")
    assert [number for number in range(20) if recent.get(number)] == list(range(10, 20))


@pytest.mark.parametrize("num_flooded", [10, 1000])
def test_a_flood_forgets_its_own(num_flooded: int) -> None:
    recent: FairRecent[str, int] = FairRecent(10)
    for number in range(3):
        recent.put(f"calm{number}", number, "calm")
    for number in range(num_flooded):
        recent.put(f"flood{number}", number, "flood")
    assert [recent.get(f"calm{number}") for number in range(3)] == [0, 1, 2]
    assert len(recent) == 10


def test_what_is_put_again_is_new_and_may_change_hands() -> None:
    recent: FairRecent[str, int] = FairRecent(2)
    recent.put("a", 1, "one")
    recent.put("b", 2, "one")
    recent.put("a", 3, "one")
    recent.put("c", 4, "one")
    assert (recent.get("a"), recent.get("b"), recent.get("c")) == (3, None, 4)
    recent.put("a", 5, "two")
    assert (recent.pop("a"), recent.get("a"), recent.pop("a"), len(recent)) == (5, None, None, 1)


def test_what_is_evicted_is_returned_and_counts_no_more() -> None:
    recent: FairRecent[str, int] = FairRecent(2)
    assert not recent.put("a", 1, "one")
    recent.put("b", 2, "two")
    assert list(recent.put("c", 3, "two")) == [("b", 2)]
    assert ("b" in recent, "a" in recent, sorted(recent.values())) == (False, True, [1, 3])
    assert sorted(recent.oldest_of_each()) == [("a", 1), ("c", 3)]


@pytest.mark.parametrize("num_owners", [1, 3, 40, 2000])
def test_many_owners_share_evenly_under_a_flood(num_owners: int) -> None:
    shares: OwnerShares[int, None] = OwnerShares(1000)
    for number in range(20_000):
        owner = f"o{number % num_owners}" if number % 2 else "flood"
        shares.part(owner)[number] = None
        shares.settle(owner, 1)
    sizes = {owner: len(part) for owner, part in shares}
    assert sum(sizes.values()) == len(shares) == 1000
    calm = [size for owner, size in sizes.items() if owner != "flood"]
    assert sizes["flood"] <= max([*calm, 1]) + 1, "the flood has no more than the others"
    assert all(sizes.values())
