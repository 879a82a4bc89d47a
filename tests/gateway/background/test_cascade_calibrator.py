"""Thresholds of cascades follow the labels that count, and an admin's restart leaves the earlier ones out."""

from __future__ import annotations

import asyncio
import random

import msgspec

from gateway.background.cascade_calibrator import STEP, CalibrationRestart, CascadeCalibrator
from gateway.background.task_group import BackgroundTasks
from gateway.telemetry.metrics import GatewayMetrics
from routing_policies.quality.thresholds import CascadeThreshold, CascadeThresholds
from routing_policies.quality.training.label import Label, Source
from tests.routing_policies.quality.labels import PAIR, labels


class World:
    """A calibrator of one pair with a stated quality of 0.8."""

    def __init__(self) -> None:
        self.failures: list[BaseException] = []
        self.changes: list[CascadeThreshold] = []
        self.thresholds = CascadeThresholds()
        self.thresholds.want(PAIR, 0.8)
        self.calibrator = CascadeCalibrator(
            self.thresholds,
            metrics=GatewayMetrics(),
            tasks=BackgroundTasks(lambda _, error: self.failures.append(error)),
            wall=lambda: 5000.0,
        )
        self.calibrator.on_change = lambda pair, min_quality, threshold: self.changes.append(threshold)

    @property
    def confidence(self) -> float:
        return self.thresholds.confidence(PAIR, 0.8)

    async def take(self, given: list[Label]) -> None:
        for number, label in enumerate(given):
            self.calibrator.take(f"{label.at:09.0f}.{number}", label)
        while self.calibrator._tasks.num_running:
            await next(iter(self.calibrator._tasks._tasks))
        assert self.failures == []


def confident(seed: int, num: int, *, at: float = 1000.0, source: Source = "shadow") -> list[Label]:
    """Answers that are good from a confidence of 0.4 on."""
    rng = random.Random(seed)
    found = []
    for label in labels(seed, num, at=at, source=source):
        confidence = rng.random()
        lost = float(rng.random() > (0.95 if confidence > 0.4 else 0.1))
        found.append(msgspec.structs.replace(label, confidence=confidence, lost=lost))
    return found


async def test_labels_with_a_confidence_move_the_threshold_and_are_counted() -> None:
    world = World()
    assert world.confidence == 0.8
    await world.take(confident(1, 500))
    assert 0.2 < world.confidence < 0.5
    assert world.changes[-1].state == "proven"
    ((pair, min_quality, found),) = world.calibrator.in_force()
    assert (pair, min_quality, found.since) == (PAIR, 0.8, 5000.0)
    assert found.num_labels >= 500 - STEP
    gauge = world.calibrator._metrics.cascade_threshold.labels(*PAIR, "0.8")
    assert gauge.value == world.confidence


async def test_feedback_and_labels_of_other_decisions_do_not_count() -> None:
    world = World()
    await world.take(confident(1, 300, source="feedback"))
    await world.take(labels(1, 300))
    assert (world.confidence, world.changes) == (0.8, [])


async def test_after_a_restart_only_later_labels_count() -> None:
    world = World()
    await world.take(confident(1, 400))
    assert world.confidence < 0.5
    world.calibrator.restart(CalibrationRestart(weak=PAIR[0], strong=PAIR[1], at=2000.0))
    assert world.confidence == 0.8
    assert world.changes[-1].state == "default"
    assert world.calibrator.restarted_at(PAIR) == 2000.0
    await world.take(confident(2, 50, at=2001.0))
    assert world.confidence == 0.8, "too few"
    await world.take(confident(3, 400, at=3000.0))
    assert world.confidence < 0.5


async def test_a_restart_holds_against_thresholds_computed_before_it() -> None:
    world = World()
    for number, label in enumerate(confident(1, 400)):
        world.calibrator.take(f"{label.at:09.0f}.{number}", label)
    await asyncio.sleep(0)  # a thread computes now
    world.calibrator.restart(CalibrationRestart(weak=PAIR[0], strong=PAIR[1], at=2000.0))
    await world.take([])
    assert world.confidence == 0.8
    assert {threshold.state for threshold in world.changes} <= {"default"}


async def test_a_dropped_label_counts_no_more() -> None:
    world = World()
    given = confident(1, 400)
    await world.take(given)
    for number, label in enumerate(given):
        world.calibrator.drop(f"{label.at:09.0f}.{number}")
    await world.take(confident(2, STEP, at=9000.0))
    assert world.confidence == 0.8
