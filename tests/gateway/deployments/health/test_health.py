"""Health of a deployment: silence while it holds requests, and signs of life."""

from __future__ import annotations

from gateway.deployments.health.ejection import FailureKind
from gateway.deployments.health.health import MAX_PUSHBACK_S
from tests.gateway.deployments.health.test_ejection import Progress, Subject


def test_a_new_process_starts_with_a_clean_record() -> None:
    subject = Subject()
    subject.fail(0.0, 3)
    subject.health.note_pushback(0.0, 20.0)
    of_the_old_one = [subject.health.begin(0.5) for _ in range(3)]
    subject.health.reset(1.0)
    for each in of_the_old_one:
        each.failed(1.5, FailureKind.BROKEN)

    assert subject.health.is_fit
    assert not subject.health.pushback_s(1.0)


def test_a_request_to_be_left_alone_is_stored_and_bounded() -> None:
    subject = Subject()
    subject.health.note_pushback(0.0, 5.0)
    subject.health.note_pushback(0.0, 2.0)
    assert subject.health.pushback_s(1.0) == 4.0
    assert not subject.health.is_fit
    assert subject.health.pushback_s(5.0) == 0.0
    assert subject.health.is_fit
    subject.health.note_pushback(5.0, 1.0)
    subject.health.sweep(6.0)  # nobody has called since
    assert subject.health.is_fit
    subject.health.note_pushback(5.0, 86_400.0)
    assert subject.health.pushback_s(5.0) == MAX_PUSHBACK_S


def test_silence_while_it_holds_requests_is_a_stall() -> None:
    subject = Subject(stalled_after=4.0, stalled_least_s=1.0)
    attempt_watch = subject.health.begin(0.0)
    attempt_watch.response, moved = Progress(), []
    attempt_watch.on_stalled = lambda: moved.append(True)
    attempt_watch.expect(0.5)
    subject.health.sweep(2.0)
    assert subject.health.is_fit

    subject.health.sweep(2.25)
    assert subject.notified == [(FailureKind.STALLED, 2.0)]
    assert moved == [True]
    subject.health.sweep(3.0)
    assert (len(subject.notified), len(moved)) == (1, 2), "ejected once; who could not leave is told again"
    attempt_watch.dropped()
    subject.health.check_integrity()


def test_a_token_for_anybody_is_a_sign_of_life_for_all() -> None:
    subject = Subject(stalled_least_s=1.0)
    waiting, decoding = subject.health.begin(0.0), subject.health.begin(0.0)
    waiting.response, response = Progress(), Progress()
    decoding.response = response
    waiting.expect(0.1)
    for step in range(1, 20):
        response.num_progress += 1
        subject.health.sweep(step * 0.5)
    assert subject.health.is_fit

    subject.health.sweep(10.6)
    assert subject.health.is_ejected(10.6)


def test_a_slow_client_is_not_the_deployments_silence() -> None:
    subject = Subject(stalled_least_s=1.0)
    attempt_watch, response = subject.health.begin(0.0), Progress()
    attempt_watch.response = response
    attempt_watch.expect(0.1)
    response.is_paused = True
    subject.health.sweep(5.0)

    assert subject.health.is_fit


def test_where_nothing_is_expected_nothing_is_late() -> None:
    subject = Subject()
    subject.health.begin(0.0).response = Progress()
    subject.health.sweep(1000.0)

    assert subject.health.is_fit
