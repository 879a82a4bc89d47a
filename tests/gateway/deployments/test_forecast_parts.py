"""The one function that puts a forecast together states what its parts state, put together plainly."""

from __future__ import annotations

import random

import pytest

from gateway.deployments.flight import InFlightRequest
from gateway.deployments.forecast import (
    DEFAULT_LANE,
    ENGINE_LANES,
    LONG_LANE,
    DeploymentForecast,
)
from gateway.deployments.load_report import LaneReport, LoadReport
from gateway.limits.permit import LONG_PROMPT_TOKENS
from gateway.telemetry.records.record import Usage
from gateway.upstreams.http1.pulse import Pulse
from routing_policies.estimation.estimators import Price
from routing_policies.estimation.latency import blended


def overdue(flight: InFlightRequest | None, now: float) -> float:
    """By how many times its forecast a stream without a first token is late."""
    if flight is None or not flight.is_stream:
        return 0.0
    return (now - flight.sent_at) / max(flight.forecast_ttft_s, 1e-4)


def next_up(forecast: DeploymentForecast, lane: str) -> InFlightRequest | None:
    """Of those in the lane without a first token, the oldest that nobody has overtaken."""
    queue = forecast._outstanding._queues.get(lane)
    return None if queue is None else queue.next_up()


def own_features(forecast: DeploymentForecast, pulse: Pulse, now: float, tokens: int, lane: str) -> list[float]:
    """Feature by feature, as the head of `forecast.py` lists them."""
    outstanding, model = forecast._outstanding, forecast._by_outstanding[lane]
    ahead, others, _, _ = outstanding.look(now, lane)
    num_seqs = outstanding.num_seqs
    in_step_s = model.terms[2] * min(ahead + others, 1024) if outstanding.num_pending else 0.0
    step_left_s = 0.0
    if num_seqs or outstanding.num_pending:
        step_s = forecast._tpot.plain_s(num_seqs or 1) + in_step_s
        gone_s = max(now - pulse.at, 0.0)
        step_left_s = (step_s - gone_s if gone_s <= step_s else step_s / 2) - in_step_s
    return [
        1.0,
        num_seqs,
        tokens,
        ahead,
        others,
        (tokens + ahead) * num_seqs,
        (tokens + ahead) if num_seqs or outstanding.num_pending else 0.0,
        1.0 if others else 0.0,
        max(num_seqs + outstanding.num_pending + 1.0 - outstanding.most_seqs, 0.0),
        step_left_s,
    ]


def plain_ttft_s(
    forecast: DeploymentForecast, pulse: Pulse, now: float, tokens: int, lane: str, report: LoadReport | None
) -> float:
    """By our counts, blended with what the engine stated, and no sooner than who is next and late."""
    features = own_features(forecast, pulse, now, tokens, lane)
    model = forecast._by_outstanding[lane]
    seconds = model.predict_s(now, features)
    if report is not None and (found := report.lanes[lane]).prefill_tokens_per_s:
        wait_s = max(forecast._lane_free_at[lane] - now, 0.0)
        reported = [1.0, features[1], wait_s, tokens / found.prefill_tokens_per_s, features[-1]]
        other = forecast._by_report[lane]
        seconds = blended((seconds, model.error), (other.predict_s(now, reported), other.error))
    late = overdue(next_up(forecast, lane), now)
    return seconds * late if late > 2.0 else seconds


def some_report(rng: random.Random) -> LoadReport:
    lanes = {
        lane: LaneReport(forecast_wait_s=rng.random() / 5, prefill_tokens_per_s=rng.choice([0.0, 4e3, 2e4]))
        for lane in ENGINE_LANES
    }
    return LoadReport(num_running=rng.randrange(30), max_num_batched_tokens=1024, lanes=lanes)


@pytest.mark.parametrize("seed", range(12))
def test_a_forecast_is_what_its_parts_make_of_it_in_any_state(seed: int) -> None:
    rng, pulse = random.Random(seed), Pulse()
    forecast = DeploymentForecast(pulse)
    now, flights = 0.0, list[InFlightRequest]()
    report: LoadReport | None = None
    reported_at = 0.0
    num_late = 0
    for _ in range(400):
        now += rng.choice([0.0, 0.001, 0.01, 0.05, 0.3])
        what = rng.random()
        if what < 0.45:
            tokens = rng.choice([20, 300, 1000, 3000])
            price = Price(tokens, rng.randrange(1, tokens), rng.randrange(1, 200))
            lane = rng.choice(ENGINE_LANES)
            flights.append(forecast.note_sent(now, price, lane=lane, is_stream=rng.random() < 0.8))
        elif what < 0.7 and flights:
            if (flight := rng.choice(flights)).is_stream:  # a plain answer shows no first token
                flight.first_token(now)
        elif what < 0.9 and flights:
            flights.pop(rng.randrange(len(flights))).ended(now, rng.choice([None, Usage(100, rng.randrange(1, 50))]))
        elif what < 0.97:
            report, reported_at = some_report(rng), now
            forecast.note_report(now, report)
        pulse.at = now - rng.random() / 50
        lane, tokens = rng.choice([*ENGINE_LANES, "interactive"]), rng.choice([1, 200, LONG_PROMPT_TOKENS, 2500])
        stands_in = LONG_LANE if lane == DEFAULT_LANE and tokens > LONG_PROMPT_TOKENS else lane
        notified = report if report is not None and now - reported_at <= 0.5 else None
        forecast._last = None  # whatever was requested last has aged
        assert forecast.ttft_s(now, tokens, lane) == pytest.approx(
            plain_ttft_s(forecast, pulse, now, tokens, stands_in, notified), rel=1e-12
        )
        worst = max(overdue(next_up(forecast, lane), now) for lane in ENGINE_LANES)
        assert forecast.look(now, tokens, lane).tpot_s == forecast.tpot_s(now)
        wary = max(worst, forecast._peak.value(now, floor=1.0))
        assert forecast.look(now, 1).caution == (pytest.approx(wary) if wary > 2.0 else 1.0)
        num_late += wary > 2.0
    assert num_late > 10, "states in which somebody is late are among them"


def test_a_long_prompt_is_read_beside_the_answers_to_those_that_are_still_waiting() -> None:
    forecast = DeploymentForecast(Pulse())
    idle_s = forecast.ttft_s(0.0, 4000, LONG_LANE)
    beside_s = 1e-5
    forecast._by_outstanding[LONG_LANE].terms[6] = beside_s  # type: ignore[index]
    assert forecast.look(1.0, 4000, LONG_LANE).seconds == pytest.approx(idle_s)
    price = Price(prompt_tokens=10, uncached_tokens=10, output_tokens=40)
    forecast.note_sent(2.0, price)
    assert forecast.look(2.0, 4000, LONG_LANE).seconds >= idle_s + 4000 * beside_s
