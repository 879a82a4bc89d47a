"""The schedule of a training."""

from __future__ import annotations

import pytest

from engine.training.data.generator import MIXES
from engine.training.plan import TrainingPlan


def test_a_plan_can_request_lower_rates() -> None:
    plan = TrainingPlan(model="tiny", steps=100, warmup_steps=10, rate_ratio=0.3)
    assert plan.lr_factor(50, 0.0) == pytest.approx(0.3)


@pytest.mark.parametrize(
    ("step", "elapsed_s", "factor"),
    [(0, 0.0, 0.1), (9, 0.0, 1.0), (50, 0.0, 1.0), (85, 0.0, 0.5), (10, 3060.0, 0.5), (100, 0.0, 0.0)],
)
def test_the_learning_rate_warms_up_holds_and_declines(step: int, elapsed_s: float, factor: float) -> None:
    plan = TrainingPlan(model="tiny", steps=100, hours=1.0, warmup_steps=10, decay_ratio=0.3)
    assert plan.lr_factor(step, elapsed_s) == pytest.approx(factor)


def test_a_plan_is_done_after_its_steps_or_its_hours() -> None:
    plan = TrainingPlan(model="tiny", steps=10, hours=0.5)
    assert not plan.is_done(9, 1799.0)
    assert plan.is_done(10, 0.0)
    assert plan.is_done(0, 1800.0)


def test_phases_follow_one_another_and_the_models_own_mix_is_last() -> None:
    plan = TrainingPlan(model="small", phases=(("warmup", 2), ("shared", 5)))
    found = [plan.mix_at(step) for step in (0, 1, 2, 4, 5, 99)]
    assert found == [MIXES[name] for name in ("warmup", "warmup", "shared", "shared", "small", "small")]
