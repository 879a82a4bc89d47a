"""A mapping that stays small and is shared fairly."""

import pytest

from gateway.util.fair_bounded_dict import FairRecent


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
