"""Heads of lanes that do not fit, and how often others may pass them."""

from __future__ import annotations

from engine.scheduler.head_of_line import HeadOfLineBlocking
from tests.engine.step.sequences import sequence

HEAD = sequence([1], seq_id=1, lane="long")
SHORT = sequence([1], seq_id=2, lane="interactive")
BATCH = sequence([1], seq_id=3, lane="batch")


def blocked(max_passed: int = 3) -> HeadOfLineBlocking:
    found = HeadOfLineBlocking(max_passed)
    found.note(HEAD, num_frees=7)
    return found


def test_a_head_is_tried_again_only_after_blocks_became_free() -> None:
    heads = blocked()
    assert heads.is_still_blocked(HEAD, num_frees=7)
    assert not heads.is_still_blocked(HEAD, num_frees=8)
    heads.note(HEAD, num_frees=8)
    assert heads.is_still_blocked(HEAD, num_frees=8)
    assert not heads.is_still_blocked(sequence([1], seq_id=9, lane="long"), num_frees=8)


def test_a_head_that_was_passed_too_often_holds_all_others_back() -> None:
    heads = blocked(max_passed=2)
    heads.started(SHORT)
    assert heads.overdue() is None
    heads.started(SHORT)
    assert heads.overdue() == "long"


def test_lanes_behind_a_head_do_not_pass_it() -> None:
    heads = blocked(max_passed=1)
    heads.started(BATCH)
    assert heads.overdue() is None


def test_another_attempt_does_not_forget_how_often_it_was_passed() -> None:
    heads = blocked(max_passed=2)
    heads.started(SHORT)
    heads.note(HEAD, num_frees=9)
    heads.started(SHORT)
    assert heads.overdue() == "long"


def test_a_head_that_started_or_ended_holds_nobody_back() -> None:
    for leave in (HeadOfLineBlocking.started, HeadOfLineBlocking.forget):
        heads = blocked(max_passed=1)
        heads.started(SHORT)
        leave(heads, HEAD)
        assert heads.overdue() is None
        assert not heads.is_still_blocked(HEAD, num_frees=7)


def test_another_sequence_of_the_lane_does_not_take_the_head_away() -> None:
    heads = blocked(max_passed=1)
    heads.forget(sequence([1], seq_id=9, lane="long"))
    heads.started(SHORT)
    assert heads.overdue() == "long"
