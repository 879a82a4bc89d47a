"""Plans: what a replica can take, what ends it, and how the answer moves with what is called."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest

from gateway.capacity.engine import EngineFigures, StepTerms
from gateway.capacity.plan import (
    CapacityPlan,
    Demand,
    Hardware,
    Impossible,
    Targets,
    plan_capacity,
    steady_state,
    work_s,
)
from tests.gateway.capacity.step_loop import mean_tpot_s, run_steps, ttft_p95_s

STEPS = StepTerms(fixed_s=0.01, row_s=0.0001, prefill_token_s=0.00002)
ENGINE = EngineFigures(steps=STEPS, max_num_seqs=64, step_tokens=2048, kv_tokens=200_000)
DEMAND = Demand(requests_per_s=20.0, prompt_tokens=1000, output_tokens=100)
TARGETS = Targets(ttft_p95_s=1.0, tpot_s=0.05)


def planned(
    demand: Demand = DEMAND, targets: Targets = TARGETS, engine: EngineFigures = ENGINE, **more: Any
) -> CapacityPlan:
    return plan_capacity(demand, targets, engine, Hardware(), **more)


def changed(value: Any, **fields: Any) -> Any:
    return msgspec.structs.replace(value, **fields)


def test_the_steady_state_follows_from_work_and_littles_law() -> None:
    state = steady_state(10.0, DEMAND, ENGINE)
    assert work_s(DEMAND, ENGINE) == pytest.approx(100 * 0.0001 + 1000 * 0.00002)
    assert state.busy_ratio == pytest.approx(0.3)
    assert state.step_s == pytest.approx(0.01 / 0.7)
    assert state.num_seqs == pytest.approx(10.0 * 100 * state.step_s)
    # The step it predicts is the one that its own rows and prompts make.
    made = 0.01 + state.num_seqs * 0.0001 + 10.0 * state.step_s * 1000 * 0.00002
    assert made == pytest.approx(state.step_s)


def test_more_than_it_can_do_waits_for_ever() -> None:
    assert steady_state(1000.0, DEMAND, ENGINE).ttft_p95_s == math.inf


def test_a_replica_is_full_when_its_first_bound_is_met_and_not_before() -> None:
    found = planned()
    assert found.bound == "num_seqs"
    assert found.per_replica.num_seqs == pytest.approx(64.0, rel=1e-6)
    paced = Targets(ttft_p95_s=1.0, tpot_s=0.03)
    assert planned(targets=paced, engine=changed(ENGINE, max_num_seqs=1000)).bound == "tpot"


@pytest.mark.parametrize(
    ("bound", "fields", "targets"),
    [
        ("num_seqs", {"max_num_seqs": 4}, TARGETS),
        ("kv_memory", {"kv_tokens": 5000}, TARGETS),
        ("tpot", {"max_num_seqs": 10_000}, Targets(tpot_s=0.012)),
        ("ttft", {"max_num_seqs": 10_000}, Targets(ttft_p95_s=0.06)),
        ("time", {"max_num_seqs": 10**9, "kv_tokens": 10**12, "step_tokens": 10**9}, Targets()),
    ],
)
def test_every_bound_can_be_the_one_that_binds(bound: str, fields: dict[str, int], targets: Targets) -> None:
    assert planned(targets=targets, engine=changed(ENGINE, **fields)).bound == bound


def test_the_plan_keeps_its_headroom_and_its_targets_at_the_peak() -> None:
    for rate in (1.0, 20.0, 333.0, 5000.0):
        found = planned(changed(DEMAND, requests_per_s=rate))
        assert found.headroom_ratio >= 0.3 - 1e-9
        assert found.at_peak.ttft_p95_s <= 1.0
        assert found.at_peak.step_s <= 0.05
        one_less = found.replicas - 1
        assert one_less == 0 or rate / one_less > found.per_replica.requests_per_s * 0.7


def test_a_first_token_takes_no_less_than_its_prompts_own_work() -> None:
    long = changed(DEMAND, prompt_tokens=16_000)
    idle = steady_state(0.0, long, ENGINE)
    assert idle.ttft_p95_s >= 16_000 * STEPS.prefill_token_s + 8 * STEPS.fixed_s
    with pytest.raises(Impossible, match="ttft"):
        planned(long, targets=Targets(ttft_p95_s=0.3))


SLOW = changed(ENGINE, steps=StepTerms(fixed_s=0.004, row_s=0.0003, prefill_token_s=0.0001), step_tokens=512)
QUICK = changed(ENGINE, steps=StepTerms(fixed_s=0.012, row_s=0.00005, prefill_token_s=0.00001))


@pytest.mark.parametrize(
    ("engine", "prompt", "output", "targets", "bound"),
    [
        (SLOW, 200, 60, Targets(ttft_p95_s=0.5, tpot_s=0.03), "tpot"),
        (SLOW, 1000, 100, Targets(ttft_p95_s=2.0, tpot_s=0.08), "ttft"),
        (SLOW, 2000, 20, Targets(ttft_p95_s=0.5, tpot_s=0.03), "ttft"),
        (QUICK, 2000, 20, Targets(ttft_p95_s=0.5, tpot_s=0.03), "ttft"),
        (QUICK, 1000, 100, Targets(ttft_p95_s=0.2, tpot_s=0.02), "tpot"),
    ],
    ids=["chat", "long prompts", "longer than a step's budget", "the same on a card", "a card's pace"],
)
def test_a_step_loop_keeps_the_targets_at_four_fifths_of_the_planned_rate_and_not_at_five_quarters(
    engine: EngineFigures, prompt: int, output: int, targets: Targets, bound: str
) -> None:
    demand = Demand(requests_per_s=1.0, prompt_tokens=prompt, output_tokens=output)
    found = planned(demand, targets, engine)
    assert found.bound == bound
    ttft_s, tpot_s = targets.ttft_p95_s, targets.tpot_s
    assert ttft_s is not None
    assert tpot_s is not None

    def keeps(share: float) -> bool:
        served = run_steps(share * found.per_replica.requests_per_s, demand, engine, num=600, seed=1)
        return ttft_p95_s(served) <= ttft_s and mean_tpot_s(served) <= tpot_s

    assert keeps(0.8)
    assert not keeps(1.25)


def test_caches_save_replicas() -> None:
    busy = changed(DEMAND, requests_per_s=500.0)
    assert planned(changed(busy, cache_hit_ratio=0.5)).replicas < planned(busy).replicas
    long = changed(busy, prompt_tokens=8000)
    assert planned(changed(long, prefix_hit_ratio=0.9)).replicas < planned(long).replicas


def test_hours_and_memory_are_those_of_all_replicas() -> None:
    found = plan_capacity(
        changed(DEMAND, requests_per_s=200.0, mean_ratio=0.25),
        TARGETS,
        ENGINE,
        Hardware(units=2.0, kv_bytes_per_token=1000.0),
    )
    assert found.units == 2.0 * found.replicas
    assert found.unit_hours_per_day == 48.0 * found.replicas
    assert found.unit_hours_per_day_scaled == 48.0 * math.ceil(found.replicas / 4)
    assert found.kv_bytes_at_peak == pytest.approx(1000.0 * found.kv_tokens_at_peak)
    assert found.kv_tokens_at_peak == pytest.approx(found.replicas * found.at_peak.kv_tokens)


def test_a_target_that_an_idle_replica_breaks_is_reported_to_be_impossible() -> None:
    with pytest.raises(Impossible, match="tpot"):
        planned(targets=Targets(tpot_s=0.005))
    with pytest.raises(Impossible, match="ttft"):
        planned(
            changed(DEMAND, prompt_tokens=100_000),
            targets=Targets(ttft_p95_s=0.1),
            engine=changed(ENGINE, kv_tokens=10**6),
        )
    with pytest.raises(Impossible, match="kv_memory"):
        planned(engine=changed(ENGINE, kv_tokens=500))
