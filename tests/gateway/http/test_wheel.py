"""The wheel of deadlines, fed with instants."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.http.wheel import DeadlineWheel


def _wheel() -> DeadlineWheel[str]:
    return DeadlineWheel(resolution_s=0.5, now=100.0)


def test_an_item_comes_due_once_at_its_time() -> None:
    wheel = _wheel()
    wheel.look_at("a", 102.0)
    assert wheel.due(101.9, limit=10) == []
    assert wheel.due(102.0, limit=10) == ["a"]
    assert wheel.due(103.0, limit=10) == []


def test_an_earlier_check_wins_and_a_later_one_changes_nothing() -> None:
    wheel = _wheel()
    wheel.look_at("a", 110.0)
    wheel.look_at("a", 102.0)
    wheel.look_at("a", 120.0)
    assert wheel.due(102.0, limit=10) == ["a"]
    assert wheel.due(200.0, limit=10) == []


def test_a_discarded_item_never_comes() -> None:
    wheel = _wheel()
    wheel.look_at("a", 101.0)
    wheel.discard("a")
    wheel.discard("unknown")
    assert wheel.due(200.0, limit=10) == []
    assert len(wheel) == 0


def test_a_full_tick_leaves_the_rest_for_the_next() -> None:
    wheel = _wheel()
    for number in range(5):
        wheel.look_at(str(number), 101.0)
    served = [wheel.due(101.0, limit=2) for _ in range(4)]
    assert [len(items) for items in served] == [2, 2, 1, 0]
    assert sorted(item for items in served for item in items) == ["0", "1", "2", "3", "4"]


def test_a_check_in_the_past_is_a_check_at_the_next_tick() -> None:
    wheel = _wheel()
    assert wheel.due(105.0, limit=10) == []
    wheel.look_at("a", 3.0)
    assert wheel.due(105.5, limit=10) == ["a"]


def test_a_long_sleep_costs_no_walk_over_empty_slots() -> None:
    wheel = _wheel()
    assert wheel.due(1e9, limit=10) == []
    wheel.look_at("a", 1e9 + 1)
    assert wheel.due(1e9 + 1.5, limit=10) == ["a"]


@given(
    checks=st.lists(st.tuples(st.sampled_from("abcdef"), st.floats(100.0, 130.0)), max_size=40),
    limit=st.integers(1, 4),
)
def test_every_item_comes_exactly_once_and_never_late(checks: list[tuple[str, float]], limit: int) -> None:
    wheel = _wheel()
    first: dict[str, float] = {}
    for item, by in checks:
        wheel.look_at(item, by)
        first[item] = min(by, first.get(item, by))
    seen: dict[str, float] = {}
    for step in range(100):
        now = 100.0 + step * 0.5
        while items := wheel.due(now, limit=limit):
            for item in items:
                assert item not in seen
                seen[item] = now
    assert seen.keys() == first.keys()
    assert all(first[item] <= seen[item] < first[item] + 1.0 for item in seen)
