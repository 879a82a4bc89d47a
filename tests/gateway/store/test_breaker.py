"""The breaker, on a clock of its own."""

from __future__ import annotations

from gateway.store.breaker import FIRST_PAUSE_S, MAX_PAUSE_S, Breaker


def test_one_late_answer_changes_nothing_and_two_in_a_row_do() -> None:
    breaker = Breaker()
    breaker.note_failure(0.0, began_at=0.0, is_sure=False)
    breaker.note_success(0.5)
    breaker.note_failure(1.0, began_at=1.0, is_sure=False)
    assert breaker.is_closed
    breaker.note_failure(1.0, began_at=1.0, is_sure=False)
    assert not breaker.is_closed


def test_a_refused_connection_opens_it_at_once() -> None:
    breaker = Breaker()
    breaker.note_failure(0.0, began_at=0.0, is_sure=True)
    assert not breaker.is_closed
    assert not breaker.is_trial_due(FIRST_PAUSE_S / 2)
    assert breaker.is_trial_due(FIRST_PAUSE_S)


def test_pauses_grow_with_each_failed_trial_up_to_a_bound_and_begin_anew() -> None:
    breaker, now, pauses = Breaker(), 0.0, []
    breaker.note_failure(now, began_at=now, is_sure=True)
    for _ in range(9):
        start = now
        while not breaker.is_trial_due(now):
            now += 0.01
        pauses.append(round(now - start, 1))
        breaker.note_trial(now)
        breaker.note_failure(now, began_at=now, is_sure=False)
    assert pauses[:4] == [0.1, 0.2, 0.4, 0.5]
    assert pauses[-1] == MAX_PAUSE_S
    breaker.note_success(now)
    breaker.note_failure(now, began_at=now, is_sure=True)
    assert breaker.is_trial_due(now + FIRST_PAUSE_S)


def test_failures_of_what_was_under_way_do_not_lengthen_the_pause() -> None:
    breaker = Breaker()
    for _ in range(50):
        breaker.note_failure(0.0, began_at=0.0, is_sure=True)
    assert breaker.is_trial_due(FIRST_PAUSE_S)


def test_a_hint_makes_a_trial_due_now_and_pauses_short_again() -> None:
    breaker = Breaker()
    breaker.note_hint()
    assert breaker.is_closed
    breaker.note_failure(0.0, began_at=0.0, is_sure=True)
    for _ in range(5):
        breaker.note_trial(0.0)
    assert not breaker.is_trial_due(MAX_PAUSE_S / 2)
    breaker.note_hint()
    assert breaker.is_trial_due(0.0)
    breaker.note_trial(0.0)
    assert breaker.is_trial_due(2 * FIRST_PAUSE_S)


def test_what_began_before_the_last_answer_does_not_open_the_breaker() -> None:
    breaker = Breaker()
    breaker.note_success(1.0)
    for _ in range(9):
        breaker.note_failure(2.0, began_at=0.9, is_sure=True)
    assert breaker.is_closed
    breaker.note_failure(2.0, began_at=1.0, is_sure=True)
    assert not breaker.is_closed
