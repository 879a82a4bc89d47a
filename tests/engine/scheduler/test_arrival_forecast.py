"""What is forecast at arrival is about what happens: a machine with known step times, in virtual time."""

from __future__ import annotations

from random import Random
from statistics import median

import pytest

from engine.protocol import Lane
from tests.engine.core.modelled_engine import ModelledEngine, Request, Wait, conversation


def served(per_second: float, seconds: float = 40.0) -> list[Wait]:
    """Waits of those that came and started while others stored coming, the first seconds left out."""
    waits = ModelledEngine().run(conversation(Random(1), per_second=per_second, seconds=seconds))
    return [wait for wait in waits if wait.at > 5.0 and wait.at + wait.real_s < seconds - 5.0]


def of_lane(waits: list[Wait], lane: Lane) -> list[Wait]:
    return [wait for wait in waits if wait.lane == lane]


def p90(values: list[float]) -> float:
    return sorted(values)[int(0.9 * len(values))]


def test_a_core_with_rows_to_spare_forecasts_short_waits_to_a_few_steps() -> None:
    waits = of_lane(served(per_second=14.0), "interactive")
    errors = [abs(wait.forecast_s - wait.real_s) for wait in waits]
    assert len(waits) > 250
    assert median(errors) < 0.010
    assert p90(errors) < 0.030


@pytest.mark.parametrize(("lane", "worst_median", "worst_p90"), [("interactive", 0.15, 0.35), ("long", 0.35, 0.5)])
def test_a_queue_that_grows_is_forecast_within_a_third(lane: Lane, worst_median: float, worst_p90: float) -> None:
    waits = [wait for wait in of_lane(served(per_second=32.0), lane) if wait.real_s > 0.25]
    errors = [abs(wait.forecast_s - wait.real_s) / wait.real_s for wait in waits]
    assert len(waits) > 10
    assert median(errors) < worst_median
    assert p90(errors) < worst_p90


def test_prompts_that_share_a_beginning_are_not_counted_whole() -> None:
    """100 of 2,000 tokens at once: whole they would be 25 s of work, and are 2."""
    shared = list(range(100, 2100))
    burst = [Request(at=0.0, prompt=[*shared, 3000 + index], num_output_tokens=5) for index in range(100)]
    engine = ModelledEngine(max_num_seqs=64)
    waits = engine.run(burst)
    assert engine.num_prompt_tokens < 1.1 * len(shared) + 100 * 16
    last = max(waits, key=lambda wait: wait.real_s)
    assert max(wait.forecast_s for wait in waits) < 2.0 * last.real_s
    assert last.real_s < 3.0


def test_an_aborted_first_of_many_does_not_break_the_forecasts_of_those_behind() -> None:
    engine = ModelledEngine()
    shared = list(range(100, 2100))
    requests = [
        Request(at=0.0, prompt=[*shared, 3000 + index], num_output_tokens=3, deadline_s=1e-6 if index == 0 else None)
        for index in range(3)
    ]
    waits = engine.run(requests)
    assert len(waits) == 2
    assert len(engine.errors) == 1
    engine.scheduler.check_integrity()
