"""The bench of `penstock capacity`: what a trial is measured by, how the rate is searched, what the ratio states."""

from __future__ import annotations

import argparse
import json
import math

import pytest

from loadtests.clients.chat_streams import Slo
from loadtests.clients.completions import TokenStream
from loadtests.engine.capacity import Predicted, Round, Trial, card, find_most
from loadtests.harness.processes import ProcessFailed

SLO = Slo(ttft_s=0.5, tpot_s=0.03)
PREDICTED = Predicted(rate_per_s=30.0, bound="tpot", ttft_p95_s=0.2, tpot_s=0.03)


def stream(ttft_s: float, pace_s: float = 0.02, num_tokens: int = 11) -> TokenStream:
    instants = [100.0 + ttft_s + number * pace_s for number in range(num_tokens)]
    return TokenStream(sent_at=100.0, instants=instants, num_tokens=num_tokens, ended_at=instants[-1])


def unanswered() -> TokenStream:
    return TokenStream(sent_at=100.0)


def trial(rate_per_s: float = 10.0, ttft_p95_s: float = 0.1, tpot_s: float = 0.01) -> Trial:
    return Trial(rate_per_s=rate_per_s, ttft_p95_s=ttft_p95_s, tpot_s=tpot_s, num_requests=100)


def test_first_tokens_count_from_when_a_request_was_due_and_paces_by_token() -> None:
    found = Trial.of(10.0, [stream(number / 100, pace_s=0.01 if number % 2 else 0.03) for number in range(101)])
    assert found.ttft_p95_s == pytest.approx(0.95)
    assert found.tpot_s == pytest.approx((50 * 0.01 + 51 * 0.03) / 101)
    assert found.num_requests == 101


def test_a_twentieth_without_a_first_token_is_the_most_that_a_p95_stands() -> None:
    assert Trial.of(10.0, [stream(0.1)] * 95 + [unanswered()] * 5).ttft_p95_s == pytest.approx(0.1)
    assert Trial.of(10.0, [stream(0.1)] * 94 + [unanswered()] * 6).ttft_p95_s == math.inf
    nobody = Trial.of(10.0, [unanswered()] * 3)
    assert (nobody.ttft_p95_s, nobody.tpot_s) == (math.inf, math.inf)


def test_both_targets_have_to_hold() -> None:
    assert trial().keeps(SLO)
    assert not trial(ttft_p95_s=0.51).keeps(SLO)
    assert not trial(tpot_s=0.031).keeps(SLO)


@pytest.mark.parametrize("true_rate", [3.0, 29.0, 30.5, 100.0])
async def test_the_rate_is_found_from_a_start_that_is_far_off(true_rate: float) -> None:
    tried = []

    async def holds(rate_per_s: float) -> bool:
        tried.append(rate_per_s)
        return rate_per_s <= true_rate

    found = await find_most(holds, 30.0, 0.05)
    assert true_rate / 1.05 <= found <= true_rate
    assert tried[0] == 30.0
    assert len(tried) < 15


async def test_a_rate_that_nothing_bounds_is_no_result() -> None:
    async def always(rate_per_s: float) -> bool:
        return True

    with pytest.raises(ProcessFailed, match="no limit"):
        await find_most(always, 30.0, 0.05)


def test_a_prediction_is_what_the_command_states_of_one_replica_at_its_most() -> None:
    state = {"requests_per_s": 12.5, "ttft_p95_s": 0.4, "step_s": 0.02, "busy_ratio": 0.8}
    document = {"plan": {"bound": "ttft", "per_replica": state, "at_peak": {"requests_per_s": 1.0}}}
    assert Predicted.read(json.dumps(document)) == Predicted(rate_per_s=12.5, bound="ttft", ttft_p95_s=0.4, tpot_s=0.02)


def test_ratios_are_taken_within_a_round_and_the_worst_is_the_furthest_from_one() -> None:
    repeats = [
        Round(predicted=PREDICTED, measured_per_s=measured, trials=(trial(measured),))
        for measured in (20.0, 30.0, 60.0)
    ]
    options = argparse.Namespace(
        prompt_tokens=200, output_tokens=60, ttft_p95_ms=500.0, tpot_ms=30.0, threads=1, seconds=12.0, requests=60
    )
    results = card(options, repeats).results
    assert results["predicted_over_measured"] == pytest.approx(1.0)
    assert results["worst_ratio"] == pytest.approx(0.5)
    assert (results["predicted_per_s"], results["measured_per_s"], results["bound"]) == (30.0, 30.0, "tpot")
