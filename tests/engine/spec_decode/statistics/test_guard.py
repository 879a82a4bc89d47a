"""What speculation may lose in the long run is little, and what it can win is not missed."""

from __future__ import annotations

from engine.spec_decode.statistics.guard import SpeculationGuard


def lost_share(gain: float, num_steps: int = 5000) -> float:
    """Time added to plain steps of one second when every speculative step is worth `gain` of its time."""
    guard = SpeculationGuard()
    added = 0.0
    for _ in range(num_steps):
        if guard.allows():
            guard.observe(worth_s=1.0, spent_s=1.0 / gain)
            added += 1.0 / gain - 1.0
    return added / num_steps


def test_steps_that_lose_are_tried_ever_more_rarely() -> None:
    assert lost_share(0.7) < 0.01


def test_steps_that_gain_are_never_paused() -> None:
    guard = SpeculationGuard()
    for _ in range(200):
        assert guard.allows()
        guard.observe(worth_s=2.0, spent_s=1.0)


def test_one_hiccup_does_not_pause_what_gains() -> None:
    guard = SpeculationGuard()
    for _ in range(20):
        guard.observe(worth_s=2.0, spent_s=1.0)
    guard.observe(worth_s=2.0, spent_s=100.0)
    assert guard.allows()


def test_a_machine_that_is_held_up_again_and_again_does_not_pause_what_gains() -> None:
    guard = SpeculationGuard()
    for number in range(500):
        assert guard.allows()
        guard.observe(worth_s=1.3, spent_s=10.0 if number % 5 == 4 else 1.0)


def test_a_pause_passes_with_steps_that_nobody_asked_about() -> None:
    guard = SpeculationGuard(first_pause=8)
    for _ in range(10):
        if guard.allows():
            guard.observe(worth_s=1.0, spent_s=2.0)
    paused = guard.num_paused
    assert 0 < paused < 8
    guard.pass_steps(paused - 1)
    assert guard.num_paused == 1
    guard.pass_steps(5)
    assert guard.allows()
