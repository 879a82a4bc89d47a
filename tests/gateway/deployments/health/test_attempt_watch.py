"""One watched exchange: it ends once, and knows when a silence is too long for it."""

from __future__ import annotations

import pytest

from gateway.deployments.health.attempt_watch import AttemptWatch
from gateway.deployments.health.ejection import FailureKind
from tests.gateway.deployments.health.test_ejection import Progress, Subject


def watch(**rules: float) -> tuple[Subject, AttemptWatch]:
    subject = Subject(**rules)
    return subject, subject.health.begin(0.0)


def test_the_first_end_counts_and_later_ones_do_nothing() -> None:
    subject, attempt = watch(consecutive_failures=1)
    attempt.succeeded(1.0)
    attempt.failed(1.0, FailureKind.STATUS)
    attempt.dropped()
    assert subject.notified == []
    assert subject.health.num_under_way == 0


def test_a_client_that_leaves_reports_nothing_of_the_deployment() -> None:
    subject, attempt = watch(consecutive_failures=1)
    attempt.dropped()
    attempt.failed(1.0, FailureKind.STATUS)
    assert subject.notified == []
    assert not subject.health.has_answered


def test_a_stream_is_overdue_after_a_multiple_of_what_was_expected() -> None:
    _, attempt = watch(stalled_after=4.0, stalled_least_s=1.0)
    assert not attempt.is_overdue(1e9), "nothing was expected"
    attempt.expect(2.0)
    assert not attempt.is_overdue(8.0)
    assert attempt.is_overdue(8.1)
    attempt.expect(0.01)
    assert not attempt.is_overdue(1.0), "never below the least"


def test_the_bound_of_a_whole_answer_is_worked_out_only_when_it_takes_long() -> None:
    _, attempt = watch(stalled_least_s=1.0)
    requested: list[float] = []

    def bound_s() -> float:
        requested.append(5.0)
        return 5.0

    attempt.expect_whole(bound_s)
    assert not attempt.is_overdue(1.0)
    assert requested == []
    assert not attempt.is_overdue(5.0)
    assert attempt.is_overdue(5.1)
    assert requested == [5.0], "once"


def test_progress_is_seen_once_and_our_own_pause_is_no_silence() -> None:
    _, attempt = watch()
    assert not attempt.has_moved(1.0)
    response = attempt.response = Progress()
    response.num_progress = 3
    assert attempt.has_moved(1.0)
    assert not attempt.has_moved(1.0)
    response.is_paused = True
    assert attempt.has_moved(1.0)


@pytest.mark.parametrize(("num_progress", "is_reported"), [(0, True), (1, False)])
def test_only_an_exchange_without_a_token_moves_on(num_progress: int, is_reported: bool) -> None:
    _, attempt = watch()
    reported: list[bool] = []
    attempt.on_stalled = lambda: reported.append(True)
    response = attempt.response = Progress()
    response.num_progress = num_progress
    attempt.has_moved(1.0)
    attempt.leave()
    assert bool(reported) is is_reported
