"""StartProgress: when a deployment that is not ready yet is forecast to be."""

from __future__ import annotations

import json

import pytest

from gateway.deployments.starting import FIRST_START_S, FRESH_S, LEAST_S, StartProgress, StartReport, parse_start

SILENT = StartReport()


def reported(state: str = "starting", **phases: float) -> StartReport:
    """What an engine answers to `/readyz`."""
    done = [{"name": name, "seconds": seconds} for name, seconds in phases.items()]
    return parse_start(json.dumps({"ready": False, "state": state, "phases": done, "core": {"x": 1}}).encode())


def one_start(starting: StartProgress, began_at: float, seconds: float, **phases: float) -> None:
    starting.note_waiting(began_at, reported())
    starting.note_ready(began_at + seconds, reported("ready", **phases))


@pytest.mark.parametrize("body", [b"", b"{}", b"ok", b"\xff", b'{"state": 1}', b'{"phases": [{"name": "x"}]}', b"[]"])
def test_who_is_silent_of_a_start_is_not_starting(body: bytes) -> None:
    starting = StartProgress()
    starting.note_waiting(0.0, parse_start(body))
    assert starting.left_s(0.0) is None


@pytest.mark.parametrize(
    ("state", "is_coming"),
    [("starting", True), ("warming", True), ("down", True), ("draining", False), ("stopped", False), ("ready", False)],
)
def test_only_some_states_end_in_readiness_by_themselves(state: str, is_coming: bool) -> None:
    starting = StartProgress()
    starting.note_waiting(0.0, reported(state))
    assert (starting.left_s(0.0) is not None) == is_coming


def test_a_first_start_is_given_a_while_and_then_as_long_again_as_it_is_late() -> None:
    starting = StartProgress()
    for second in range(31):
        starting.note_waiting(float(second), reported())
    assert starting.left_s(30.0) == 30.0 - FIRST_START_S
    starting.note_waiting(31.0, reported())
    assert starting.left_s(31.0) == 31.0 - FIRST_START_S


def test_what_was_done_before_the_first_view_counts() -> None:
    starting = StartProgress()
    starting.note_waiting(100.0, reported(imports=2.0, weights=3.0))
    assert starting.left_s(100.0) == FIRST_START_S - 5.0


def test_the_next_start_is_like_the_last() -> None:
    starting = StartProgress()
    one_start(starting, 0.0, 40.0)
    starting.note_waiting(100.0, reported())
    assert starting.left_s(100.0) == 40.0
    assert starting.left_s(101.5) == 38.5


def test_phases_report_more_than_the_time_that_passed() -> None:
    starting = StartProgress()
    one_start(starting, 0.0, 8.0, imports=2.0, weights=3.0, warm_up=2.0, recovery=8.0)
    starting.note_waiting(100.0, reported())
    starting.note_waiting(104.0, reported())
    starting.note_waiting(106.0, reported(imports=6.0))  # slower than the last time
    assert starting.left_s(106.0) == 5.0, "weights and warm-up are still to come; a phase that spans all is no phase"
    assert starting.left_s(107.0) == 4.0
    starting.note_waiting(109.0, reported(imports=6.0, weights=3.0))
    assert starting.left_s(109.0) == 2.0


def test_nothing_is_forecast_more_exactly_than_readiness_is_requested() -> None:
    starting = StartProgress()
    one_start(starting, 0.0, 5.0)
    starting.note_waiting(10.0, reported())
    starting.note_waiting(14.9, reported())
    assert starting.left_s(14.9) == LEAST_S


def test_a_start_counts_until_its_process_report_or_silence_ends_it() -> None:
    starting = StartProgress()
    starting.note_waiting(0.0, reported())
    starting.note_gone()
    assert starting.left_s(0.0) is None
    starting.note_waiting(1.0, reported())
    starting.note_waiting(2.0, reported("stopped"))
    assert starting.left_s(2.0) is None
    starting.note_waiting(3.0, reported())
    assert starting.left_s(3.0 + FRESH_S) is not None
    assert starting.left_s(3.1 + FRESH_S) is None


def test_a_deployment_that_was_never_down_teaches_nothing() -> None:
    starting = StartProgress()
    starting.note_ready(5.0, SILENT)
    starting.note_waiting(10.0, reported())
    assert starting.left_s(10.0) == FIRST_START_S
