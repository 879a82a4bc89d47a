"""The check that pauses are within their bounds."""

from __future__ import annotations

import pytest

from tests.faults.resume_bound import PauseBound, percentile
from tests.faults.resume_stack import Pause


def bound(*pauses: Pause, is_at_once: bool = False) -> dict[str, object]:
    found = PauseBound(prefill_s=[0.001])
    found.add("cut", pauses, [0.01, 0.02], is_at_once=is_at_once)
    return found.report()


def test_a_pause_may_take_as_long_as_a_fresh_request_and_the_prefill_of_its_tokens() -> None:
    assert bound(Pause(0.119, 100))["is_held"]
    assert not bound(Pause(0.121, 100))["is_held"]
    assert not bound(Pause(0.119, 98))["is_held"]


def test_streams_that_move_together_are_prefilled_together() -> None:
    pauses = (Pause(0.119, 50), Pause(0.119, 50))
    assert bound(*pauses, is_at_once=True)["is_held"]
    assert not bound(*pauses)["is_held"]


def test_one_pause_in_a_hundred_may_be_longer() -> None:
    pauses = [Pause(0.01, 1)] * 99
    assert bound(*pauses, Pause(9, 1))["is_held"]
    assert not bound(*pauses[1:], Pause(9, 1), Pause(9, 1))["is_held"]


@pytest.mark.parametrize(("percent", "value"), [(50, 2), (99, 3), (0, 1)])
def test_a_percentile_is_a_value_of_the_list(percent: int, value: int) -> None:
    assert percentile([3, 1, 2], percent) == value
