"""Pauses after failures in a row."""

from __future__ import annotations

from gateway.util.doubling_pauses import DoublingPauses


def test_pauses_double_up_to_the_longest_and_begin_anew_after_a_success() -> None:
    pauses = DoublingPauses(0.5, 3.0)
    assert [pauses.failed() for _ in range(5)] == [0.5, 1.0, 2.0, 3.0, 3.0]
    pauses.reset()
    assert pauses.failed() == 0.5
