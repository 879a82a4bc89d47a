"""Ten times what the engine can do, in virtual time: admitted requests are answered in time, others refused at once."""

from __future__ import annotations

import pytest

from loadtests.clients.chat_streams import Slo
from loadtests.engines.modelled_engine import EngineShape
from loadtests.harness.measures import percentile
from loadtests.overload.overload import STEPS
from loadtests.simulation.simulated_overload import outcomes

SLO = Slo(ttft_s=0.5, tpot_s=0.03)
CAPACITY_PER_S = 58.0
STEP_S = 5.0


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_overload_is_met_with_refusals_at_once_and_answers_in_time(seed: int) -> None:
    steps = outcomes(EngineShape(), SLO, CAPACITY_PER_S, STEP_S, seed)
    at_capacity = steps[1].num_good
    for factor, step in list(zip(STEPS, steps, strict=True))[2:5]:
        summary = f"{factor} x: {step.summary(STEP_S)}"
        assert step.num_good >= 0.95 * at_capacity, summary
        assert percentile(step.refused_s, 0.99) <= 0.005, summary
        assert percentile(step.ttft_s, 0.99) <= 1.2 * SLO.ttft_s, summary
        assert step.num_failed == 0, summary
        assert max(step.ttft_s) <= 3 * SLO.ttft_s, f"nobody is let in and then forgotten; {summary}"
