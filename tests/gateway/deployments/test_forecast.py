"""Forecasts of a deployment, against a modelled engine in virtual time."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from gateway.deployments.forecast import REPORT_FRESH_S, DeploymentForecast
from gateway.deployments.load_report import LaneReport, LoadReport, parse_event
from gateway.telemetry.records.record import Usage
from gateway.upstreams.http1.pulse import Pulse
from loadtests.engines.modelled_engine import EngineShape
from routing_policies.estimation.estimators import Price
from tests.gateway.routing.fleet import Fleet, mixed_offers

PRICE = Price(1000, 1000, 100)


def steady(name: str, now: float) -> float:
    return 1.0


def drifting(name: str, now: float) -> float:
    """Up to twice as slow and back, every three minutes."""
    return 1.5 + 0.5 * math.sin(now / 30)


def jumping(name: str, now: float) -> float:
    return 1.0 if now % 100 < 50 else 2.0


def errors(pairs: list[tuple[float, float]]) -> tuple[float, float]:
    """Median and 90th percentile of the relative error, the first two hundred left out."""
    found = sorted(abs(forecast - measured) / measured for forecast, measured in pairs[200:])
    return found[len(found) // 2], found[int(len(found) * 0.9)]


ONE_LANE = EngineShape(long_prompt_tokens=0, long_step_ratio=0.0)
"""A server in which all prompts stand in one queue."""


@pytest.mark.parametrize("shape", [EngineShape(), ONE_LANE])
@pytest.mark.parametrize("reports", [True, False])
@pytest.mark.parametrize("slowdown", [steady, drifting])
@pytest.mark.parametrize(("rate", "seconds"), [(4, 250), (8, 200)])
def test_first_tokens_are_forecast_within_15_percent_for_half_and_35_for_nine_in_ten(
    rate: float, seconds: float, slowdown: Callable[[str, float], float], reports: bool, shape: EngineShape
) -> None:
    fleet = Fleet(reports=reports, slowdown=slowdown, shape=shape, price_noise=0.03).run(
        mixed_offers(rate, seconds, prompt=500)
    )
    median, p90 = errors([(one.forecast_s, one.measured_s) for one in fleet.answered])
    assert median <= 0.15
    assert p90 <= 0.35


@pytest.mark.parametrize("reports", [True, False])
def test_a_speed_that_halves_and_doubles_at_once_is_followed(reports: bool) -> None:
    fleet = Fleet(reports=reports, slowdown=jumping).run(mixed_offers(10, 200, prompt=500))
    median, p90 = errors([(one.forecast_s, one.measured_s) for one in fleet.answered])
    assert median <= 0.15
    assert p90 <= 0.45


def test_what_is_left_of_the_step_under_way_is_part_of_the_forecast() -> None:
    pulse = Pulse()
    forecast = DeploymentForecast(pulse)
    forecast.note_sent(0.0, PRICE).first_token(0.1)
    pulse.at = 10.0
    early = forecast.ttft_s(10.0, 100)
    late = forecast.ttft_s(10.0 + 0.9 * forecast.tpot_s(10.0, 1), 100)
    unknown = forecast.ttft_s(20.0, 100)
    assert late < unknown < early, "after a while without a sound the half is expected"
    assert DeploymentForecast(pulse).ttft_s(20.0, 100) < early, "nothing runs there, and nothing is waited for"


def test_plain_answers_teach_it_too() -> None:
    fleet = Fleet(is_stream=False, reports=False).run(mixed_offers(6, 120))
    median, p90 = errors(fleet.totals)
    assert median <= 0.15
    assert p90 <= 0.35


def busy(wait_s: float) -> LoadReport:
    return LoadReport(num_running=5, lanes={"interactive": LaneReport(wait_s, 10_000.0)})


def test_a_reported_queue_is_believed_while_it_is_fresh() -> None:
    forecast = DeploymentForecast()
    alone = forecast.ttft_s(0.0, 1000)
    forecast.note_report(0.0, busy(5.0))

    assert forecast.ttft_s(0.0, 1000) > 2.0
    assert forecast.ttft_s(0.4, 1000) < forecast.ttft_s(0.0, 1000), "the queue gets shorter meanwhile"
    assert forecast.age_s(0.4) == 0.4
    assert forecast.ttft_s(REPORT_FRESH_S + 0.1, 1000) == pytest.approx(alone)


def test_what_is_sent_after_a_report_stands_in_the_queue_as_well() -> None:
    forecast = DeploymentForecast()
    forecast.note_report(0.0, busy(0.0))
    before = forecast.ttft_s(0.0, 100)
    for _ in range(5):
        forecast.note_sent(0.0, Price(10_000, 10_000, 10))
    assert forecast.ttft_s(0.0, 100) > before + 1.0


def test_a_lane_is_forecast_by_its_own_queue() -> None:
    forecast = DeploymentForecast()
    lanes = {"interactive": LaneReport(0.0, 10_000.0), "batch": LaneReport(9.0, 10_000.0)}
    forecast.note_report(0.0, LoadReport(lanes=lanes))
    assert forecast.ttft_s(0.0, 100, "batch") > 10 * forecast.ttft_s(0.0, 100, "interactive")


def test_who_keeps_somebody_waiting_far_longer_than_forecast_is_distrusted_at_once() -> None:
    forecast = DeploymentForecast()
    flight = forecast.note_sent(0.0, PRICE)
    assert forecast.look(flight.forecast_ttft_s, 1).caution == 1.0
    late = 10 * flight.forecast_ttft_s
    assert forecast.look(late, 1).caution == pytest.approx(10.0)
    flight.first_token(late)
    assert forecast.look(late + 0.1, 1).caution > 5.0, "and a while longer"
    assert forecast.look(late + 60.0, 1).caution == 1.0


def test_a_request_that_was_given_up_before_its_first_token_counts_against_it() -> None:
    forecast = DeploymentForecast()
    flight = forecast.note_sent(0.0, PRICE)
    flight.ended(20 * flight.forecast_ttft_s, None)
    assert forecast.look(20 * flight.forecast_ttft_s, 1).caution > 10.0


def test_a_request_that_others_overtook_does_not_count_when_it_is_given_up() -> None:
    """A machine that hung for a moment answers later requests long before the first one meets its timeout."""
    forecast = DeploymentForecast()
    old = forecast.note_sent(0.0, PRICE)
    later = forecast.note_sent(3.0, PRICE)
    later.first_token(3.0 + later.forecast_ttft_s)
    old.ended(30.0, None)
    assert forecast.look(30.0, 1).caution == 1.0


def test_a_first_token_that_is_only_assumed_overtakes_nobody() -> None:
    forecast = DeploymentForecast()
    stream = forecast.note_sent(0.0, PRICE)
    forecast.note_sent(0.1, PRICE, is_stream=False)
    forecast.look(10.0, 1)  # long after the plain answer's first token was forecast
    stream.ended(20.0, None)
    assert forecast.look(20.0, 1).caution > 10.0


def test_the_end_of_a_flight_counts_once_whenever_it_comes() -> None:
    forecast = DeploymentForecast()
    flight = forecast.note_sent(0.0, PRICE)
    flight.first_token(0.1)
    flight.first_token(0.2)
    assert (forecast.num_pending, forecast.num_seqs(0.2), flight.measured_ttft_s) == (0, 1, 0.1)
    flight.ended(1.0, Usage(1000, 10))
    flight.ended(2.0, None)
    assert forecast.num_seqs(2.0) == 0


def test_a_client_that_reads_slowly_teaches_nothing_about_the_pace() -> None:
    held, free = DeploymentForecast(), DeploymentForecast()
    for forecast in (held, free):
        for number in range(20):
            flight = forecast.note_sent(float(number), PRICE)
            flight.first_token(number + 0.05)
            flight.is_held_up = forecast is held
            flight.ended(number + 60.0, Usage(1000, 11))
    assert held.tpot_s(80.0) < 0.1 < free.tpot_s(80.0)


def test_a_cache_that_holds_less_than_expected_is_trusted_less() -> None:
    forecast = DeploymentForecast()
    for number in range(60):
        flight = forecast.note_sent(float(number), Price(1000, 200, 100))
        flight.first_token(number + 0.05)
        flight.ended(number + 0.5, Usage(1000, 11, 0))
    assert forecast.cache_trust < 0.1


def test_the_whole_takes_the_first_token_and_a_pace_for_the_rest() -> None:
    forecast = DeploymentForecast()
    whole = forecast.total_s(0.0, Price(100, 100, 101))
    assert whole == pytest.approx(forecast.ttft_s(0.0, 100) + 100 * forecast.tpot_s(0.0))


def test_an_engine_that_starts_reports_it() -> None:
    forecast = DeploymentForecast()
    report = parse_event(b'{"state": "warming", "ready": false, "lanes": {}, "step_time": null, "other": 1}')
    assert report is not None
    forecast.note_report(0.0, report)
    assert forecast.is_warming
    forecast.note_no_report()
    assert not forecast.is_warming


def test_a_server_without_a_feed_is_known_by_the_header_of_its_answers() -> None:
    forecast = DeploymentForecast()
    forecast.note_load_header(0.0, b"TEXT named_metrics.num_requests_running=9")
    assert forecast.num_seqs(0.1) == 9
    forecast.note_load_header(0.1, b"TEXT named_metrics.num_requests_running=1")
    assert forecast.num_seqs(0.2) == 9, "ten times a second is enough"
    assert forecast.num_seqs(5.0) == 0


def test_requests_that_are_sent_together_are_learned_from_like_those_that_are_sent_alone() -> None:
    forecast = DeploymentForecast()
    for burst in range(10):
        flights = [forecast.note_sent(burst * 0.2, PRICE) for _ in range(32)]
        assert all(flight.sample is not None for flight in flights)


def test_of_thousands_of_plain_answers_a_second_a_few_are_learned_from_and_all_are_counted() -> None:
    forecast = DeploymentForecast()
    flights = [forecast.note_sent(number * 0.0005, PRICE, is_stream=False) for number in range(1000)]

    sampled = [flight for flight in flights[200:] if flight.sample is not None]
    assert 80 <= len(sampled) <= 120  # of 800, once what was saved up is used
    assert forecast.num_seqs(0.5) + forecast.num_pending == 1000
    for flight in flights:
        flight.ended(1.0, Usage(1000, 10))
        flight.ended(2.0, None)
    assert (forecast.num_seqs(3.0), forecast.num_pending) == (0, 0)
    forecast._outstanding.check_integrity()


def test_a_conversation_is_worth_its_cached_prefix_on_a_machine_of_slow_prompts() -> None:
    """4 ms a token, as small models take on a CPU: eighty times the prior."""
    forecast, now = DeploymentForecast(), 100.0
    for number in range(24):
        tokens = 20 + 30 * (number % 5)
        flight = forecast.note_sent(now, Price(prompt_tokens=tokens, uncached_tokens=tokens, output_tokens=4))
        now += 0.1 + 0.004 * tokens
        flight.first_token(now)
        flight.ended(now, None)
        now += 6.0
    assert forecast.ttft_s(now, 300) - forecast.ttft_s(now, 60) > 0.25, "0.96 in truth, 0.01 by the prior"
