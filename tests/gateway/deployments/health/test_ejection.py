"""Ejection by failures, back-off that grows, one trial at a time; and liveness by token progress."""

from __future__ import annotations

import pytest

from gateway.deployments.health.ejection import EjectionRules, EjectionTally, FailureKind, StallRules
from gateway.deployments.health.health import DeploymentHealth


class Progress:
    """A response under way."""

    def __init__(self) -> None:
        self.num_progress = 0
        self.is_paused = False


def rules_of(**rules: float) -> EjectionRules:
    """Ejection rules; `stalled_after` and `stalled_least_s` are those of stalls."""
    stall = {
        key.removeprefix("stalled_"): rules.pop(key) for key in ("stalled_after", "stalled_least_s") if key in rules
    }
    return EjectionRules(stall=StallRules(**stall), **rules)  # type: ignore[arg-type]


class Subject:
    """A deployment's health, and what it stated."""

    def __init__(self, **rules: float) -> None:
        self.notified: list[tuple[FailureKind, float]] = []
        self.tally = EjectionTally()
        self.health = DeploymentHealth(
            rules=rules_of(**{"consecutive_failures": 3, **rules}),
            tally=self.tally,
            on_ejected=lambda kind, seconds: self.notified.append((kind, seconds)),
        )

    def fail(self, now: float, times: int = 1) -> None:
        for _ in range(times):
            self.health.begin(now).failed(now, FailureKind.STATUS)


def test_failures_in_a_row_eject_and_an_answer_between_them_starts_over() -> None:
    subject = Subject()
    subject.fail(1.0, 2)
    subject.health.begin(1.0).succeeded(1.0)
    subject.fail(1.0, 2)
    assert not subject.health.is_ejected(1.0)

    subject.fail(1.0)
    assert subject.health.is_ejected(1.0)
    assert subject.notified == [(FailureKind.STATUS, 2.0)]
    assert subject.tally.num_ejected == 1


def test_a_share_of_failures_ejects_however_they_alternate() -> None:
    subject = Subject(consecutive_failures=1000, min_exchanges=20)
    for _ in range(10):
        subject.fail(1.0)
        assert not subject.health.is_ejected(1.0)
        subject.health.begin(1.0).succeeded(1.0)
    subject.fail(1.0)

    assert subject.health.is_ejected(1.0)


def test_a_share_of_failures_long_ago_does_not_eject() -> None:
    subject = Subject(consecutive_failures=1000, min_exchanges=20)
    for step in range(60):
        subject.fail(step * 5.0)
        subject.health.begin(step * 5.0).succeeded(step * 5.0)

    assert not subject.health.is_ejected(300.0)


def test_after_the_back_off_one_request_tries_it_and_only_one() -> None:
    subject = Subject()
    subject.fail(0.0, 3)
    assert not subject.health.may_probe(1.9)
    assert subject.health.may_probe(2.0)
    probe = subject.health.begin(2.0)

    assert probe.is_probe
    assert subject.health.is_ejected(2.0)
    assert not subject.health.begin(2.0).is_probe
    probe.succeeded(2.5)
    assert subject.health.is_fit
    assert subject.tally.num_ejected == 0


def test_a_failed_trial_ejects_for_twice_as_long_up_to_a_bound() -> None:
    subject = Subject(longest_s=10.0)
    subject.fail(0.0, 3)
    now = 0.0
    for _ in range(5):
        now = subject.health.returns_at()
        subject.fail(now)

    assert [seconds for _, seconds in subject.notified] == [2.0, 4.0, 8.0, 10.0, 10.0, 10.0]


def test_a_trial_whose_client_left_is_silent_and_leaves_room_for_the_next() -> None:
    subject = Subject()
    subject.fail(0.0, 3)
    subject.health.begin(2.0).dropped()

    assert subject.health.may_probe(2.0)
    assert subject.health.begin(2.0).is_probe


def test_requests_from_before_the_ejection_neither_end_nor_lengthen_it() -> None:
    subject = Subject()
    old, older = subject.health.begin(0.0), subject.health.begin(0.0)
    subject.fail(1.0, 3)
    old.succeeded(1.5)
    older.failed(1.5, FailureKind.BROKEN)

    assert subject.health.is_ejected(2.9)
    assert subject.health.returns_at() == 3.0


def test_requests_from_before_the_return_do_not_eject_again() -> None:
    """Streams of a frozen machine end by their timeouts long after another machine serves at its address."""
    subject = Subject()
    old = [subject.health.begin(0.0) for _ in range(9)]
    subject.fail(1.0, 3)
    subject.health.begin(3.0).succeeded(3.1)
    for each in old:
        each.failed(4.0, FailureKind.TIMEOUT)
    assert subject.health.is_fit

    subject.fail(4.0, 3)
    assert subject.health.is_ejected(4.0)


def test_a_request_from_before_the_return_counts_again_once_it_moves() -> None:
    subject = Subject()
    old = [subject.health.begin(0.0) for _ in range(3)]
    response = Progress()
    for each in old:
        each.response = response
    subject.fail(1.0, 3)
    subject.health.begin(3.0).succeeded(3.1)
    response.num_progress += 1
    for each in old:
        each.failed(4.0, FailureKind.BROKEN)

    assert subject.health.is_ejected(4.0)


def test_what_came_before_the_return_is_no_movement_after_it() -> None:
    subject = Subject()
    old, response = subject.health.begin(0.0), Progress()
    old.response = response
    subject.fail(1.0, 3)
    response.num_progress += 1  # seen by no sweep
    subject.health.begin(3.0).succeeded(3.1)
    subject.health.sweep(3.5)
    subject.fail(3.6, 2)
    old.failed(4.0, FailureKind.BROKEN)

    assert subject.health.is_fit


def test_silence_from_before_the_return_does_not_eject_again() -> None:
    subject = Subject(stalled_after=1.0, stalled_least_s=1.0)
    old = [subject.health.begin(0.0) for _ in range(4)]
    response = Progress()
    response.num_progress = 1
    for each in old:
        each.response = response
        each.expect(1.0)
    subject.health.sweep(0.5)
    subject.health.sweep(2.5)
    assert subject.health.is_ejected(2.5)
    subject.health.reset(3.0)
    for step in range(20):
        subject.health.sweep(3.0 + step)
        assert subject.health.is_usual
        assert not subject.health.is_suspect(3.0 + step)

    subject.health.begin(30.0).expect(1.0)
    subject.health.sweep(32.0)
    assert subject.health.is_ejected(32.0)


def test_a_trial_from_before_the_return_neither_blocks_nor_lengthens_the_next_ejection() -> None:
    subject = Subject()
    subject.fail(0.0, 3)
    old = subject.health.begin(2.0)
    assert old.is_probe
    subject.health.reset(3.0)
    subject.fail(10.0, 3)
    returns_at = subject.health.returns_at()
    assert subject.health.may_probe(returns_at)
    old.failed(11.0, FailureKind.TIMEOUT)

    assert subject.health.returns_at() == returns_at
    assert subject.health.begin(returns_at).is_probe


def test_a_success_in_spite_of_the_ejection_ends_it() -> None:
    subject = Subject()
    subject.fail(1.0, 3)
    subject.health.begin(1.1).succeeded(1.2)  # all were ejected, so it was called all the same

    assert subject.health.is_fit


def test_a_long_good_time_makes_the_next_back_off_short_again() -> None:
    subject = Subject(forget_s=60.0)
    subject.fail(0.0, 3)
    subject.health.begin(2.0).succeeded(2.0)
    subject.fail(30.0, 3)
    assert subject.notified[-1][1] == 4.0
    subject.health.begin(34.0).succeeded(34.0)
    subject.fail(100.0, 3)
    assert subject.notified[-1][1] == 2.0


@pytest.mark.parametrize(
    "rules",
    [
        {"consecutive_failures": 0},
        {"min_exchanges": 0},
        {"failure_ratio": 0.0},
        {"failure_ratio": 1.5},
        {"first_s": 0.0},
        {"first_s": 90.0},
        {"window_s": 0.0},
        {"forget_s": 0.0},
        {"stalled_after": 0.5},
        {"stalled_least_s": 0.0},
    ],
)
def test_rules_that_make_no_sense_are_refused(rules: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="expected"):
        rules_of(**rules)
