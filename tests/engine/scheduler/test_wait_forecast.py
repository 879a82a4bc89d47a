"""Waits from backlogs, rates and pace, by hand."""

from __future__ import annotations

import pytest

from engine.protocol import Lane
from engine.scheduler.arrivals import ArrivalRate, Arrivals
from engine.scheduler.lanes import LANES
from engine.scheduler.wait_forecast import Backlog, SequenceReleases, ServiceRate, forecast_wait_s, sequence_ends

NONE = Backlog(num_running=0, num_waiting=0, num_prompt_tokens=0, num_started_tokens=0, num_output_tokens=0)
PACE = ServiceRate(decode_step_s=0.01, num_step_tokens=100, num_patient_tokens=50, prompt_token_s=1e-4)
FREE = SequenceReleases(num_free=8, end_steps=(), steps_per_end=0.0)
IDLE = dict.fromkeys(LANES, ArrivalRate(sequences_per_s=0.0, prompt_tokens_per_s=0.0))


def backlog(num_tokens: int, num_waiting: int = 1, num_started: int = 0) -> Backlog:
    return Backlog(
        num_running=1,
        num_waiting=num_waiting,
        num_prompt_tokens=num_tokens,
        num_started_tokens=num_started,
        num_output_tokens=10,
    )


def wait(
    lane: Lane, lanes: dict[Lane, Backlog], releases: SequenceReleases = FREE, rates: dict[Lane, ArrivalRate] = IDLE
) -> float:
    return forecast_wait_s(lane, dict.fromkeys(LANES, NONE) | lanes, rates, PACE, releases)


def test_an_idle_core_makes_nobody_wait() -> None:
    assert wait("interactive", {}) == 0.0


def test_beside_decoding_rows_it_waits_for_the_step_that_runs() -> None:
    assert wait("interactive", {"interactive": backlog(0, num_waiting=0)}) == pytest.approx(0.01)


def test_prompt_tokens_ahead_fill_steps_and_lengthen_them() -> None:
    assert wait("interactive", {"interactive": backlog(250)}) == pytest.approx(3 * 0.01 + 250 * 1e-4)


def test_other_lanes_count_as_far_as_their_weights_let_them_through() -> None:
    lanes: dict[Lane, Backlog] = {"interactive": backlog(800), "batch": backlog(1000)}
    assert wait("interactive", lanes) == pytest.approx(9 * 0.01 + 900 * 1e-4)


def test_short_rows_cost_the_steps_until_enough_of_them_end() -> None:
    releases = SequenceReleases(num_free=1, end_steps=(5.0, 9.0), steps_per_end=4.0)
    lanes: dict[Lane, Backlog] = {"interactive": backlog(0, num_waiting=2)}
    assert [releases.steps_until_free(count) for count in range(5)] == [0.0, 5.0, 9.0, 13.0, 17.0]
    assert wait("interactive", lanes, releases) == pytest.approx(9 * 0.01)


def test_steps_that_pass_for_want_of_a_row_are_filled_with_the_prompts_that_have_one() -> None:
    releases = SequenceReleases(num_free=0, end_steps=(5.0,), steps_per_end=4.0)
    lanes: dict[Lane, Backlog] = {"interactive": backlog(0, num_waiting=0), "long": backlog(10_000, num_started=200)}
    assert wait("interactive", lanes, releases) == pytest.approx(5 * 0.01 + 200 * 1e-4)


def test_what_arrives_meanwhile_in_weightier_lanes_goes_first() -> None:
    rates = IDLE | {"interactive": ArrivalRate(sequences_per_s=10.0, prompt_tokens_per_s=1000.0)}
    lanes: dict[Lane, Backlog] = {"batch": backlog(1000)}
    assert wait("interactive", lanes, rates=rates) < wait("batch", lanes) < wait("batch", lanes, rates=rates)


def test_ends_follow_each_other_one_by_one() -> None:
    ends, interval = sequence_ends([5, 2, 9], 10.0, 5)
    assert ends == [2.0, 5.0, 9.0, 12.0, 15.0]
    assert interval == pytest.approx(10 / 3)
    assert sequence_ends([], 10.0, 5) == ([], 0.0)


def test_rates_rise_with_arrivals_and_fade_without() -> None:
    arrivals = Arrivals(window_s=10.0)
    for index in range(100):
        arrivals.observe("batch", 50, 0.5 * index)
    rate = arrivals.rates(50.0)["batch"]
    assert rate.sequences_per_s == pytest.approx(2.0, rel=0.05)
    assert rate.prompt_tokens_per_s == pytest.approx(100.0, rel=0.05)
    assert arrivals.rates(80.0)["batch"].sequences_per_s < 0.2
    assert arrivals.rates(80.0)["interactive"].sequences_per_s == 0.0
