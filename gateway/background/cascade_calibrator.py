"""CascadeCalibrator: the thresholds of cascades follow the labels of the small models' answers.

Labels of shadows count: they are drawn when a request is dispatched, whatever its answer will be, and one that was
handed over is compared as one that was not. Feedback does not count, because it names wrong answers alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import msgspec

from gateway.background.task_group import BackgroundTasks
from gateway.telemetry.metrics import GatewayMetrics
from routing_policies.quality.thresholds import AnswerLabel, CascadeThreshold, CascadeThresholds, threshold_of
from routing_policies.quality.training.label import Label, Pair

STEP: Final = 10
"""Number of new labels after which thresholds are computed again."""


class CalibrationRestart(msgspec.Struct, frozen=True, kw_only=True):
    """An admin's order: labels of a pair until now count no more for its cascades."""

    weak: str
    strong: str
    at: float
    """Seconds since 1970."""

    @property
    def pair(self) -> Pair:
        """Return the pair of models."""
        return self.weak, self.strong


class _PairLabels:
    """Labels of one pair with a confidence, by key."""

    __slots__ = ("by_key", "num_new", "restarted_at")

    def __init__(self) -> None:
        self.by_key: dict[str, Label] = {}
        self.num_new = 0
        self.restarted_at = 0.0

    def counted(self) -> list[AnswerLabel]:
        """Return the labels that count."""
        return [
            AnswerLabel(label.confidence, label.lost < 0.5)
            for label in self.by_key.values()
            if label.confidence is not None and label.at > self.restarted_at
        ]


class CascadeCalibrator:
    """Calibrator of one process; threads compute, and the event loop puts in force."""

    def __init__(
        self,
        thresholds: CascadeThresholds,
        *,
        metrics: GatewayMetrics,
        tasks: BackgroundTasks,
        wall: Callable[[], float],
    ) -> None:
        """Create a calibrator without labels; `tasks` must be its own."""
        self._thresholds = thresholds
        self._metrics = metrics
        self._wall = wall
        self._pairs: dict[Pair, _PairLabels] = {}
        self._tasks = tasks
        self._is_running = False
        self.on_change: Callable[[Pair, float, CascadeThreshold], None] = lambda pair, min_quality, threshold: None
        """Callback for a threshold that has changed, with the stated quality."""

    def take(self, key: str, label: Label) -> None:
        """Take a label, if it counts for cascades."""
        if label.confidence is None or label.source == "feedback":
            return
        labels = self._pairs.setdefault(label.pair, _PairLabels())
        labels.num_new += key not in labels.by_key
        labels.by_key[key] = label
        if labels.num_new >= STEP:
            self._begin()

    def drop(self, key: str) -> None:
        """Drop a label that is gone."""
        for labels in self._pairs.values():
            labels.by_key.pop(key, None)

    def restart(self, restart: CalibrationRestart) -> None:
        """Leave earlier labels of a pair out, so that defaults are in force until enough others have come."""
        labels = self._pairs.setdefault(restart.pair, _PairLabels())
        labels.restarted_at = max(labels.restarted_at, restart.at)
        self._adopt(restart.pair, self._computed(labels.counted(), self._thresholds.qualities(restart.pair)))

    def restarted_at(self, pair: Pair) -> float | None:
        """Return the time of a pair's last restart, in seconds since 1970; None without one."""
        labels = self._pairs.get(pair)
        return None if labels is None or not labels.restarted_at else labels.restarted_at

    def in_force(self) -> list[tuple[Pair, float, CascadeThreshold]]:
        """Return all thresholds, with their pairs and stated qualities."""
        return list(self._thresholds)

    async def aclose(self) -> None:
        """Call off what is under way."""
        await self._tasks.cancel()

    def _begin(self) -> None:
        if not self._is_running:
            self._is_running = True
            self._tasks.spawn(self._calibrate(), "calibrate_cascades")

    async def _calibrate(self) -> None:
        try:
            while True:
                due = [pair for pair, labels in self._pairs.items() if labels.num_new >= STEP]
                if not due:
                    return
                for pair in due:
                    labels = self._pairs[pair]
                    labels.num_new, restarted_at = 0, labels.restarted_at
                    counted, qualities = labels.counted(), self._thresholds.qualities(pair)
                    found = await asyncio.to_thread(self._computed, counted, qualities)
                    if labels.restarted_at == restarted_at:  # else a restart has put others in force
                        self._adopt(pair, found)
        finally:
            self._is_running = False

    @staticmethod
    def _computed(labels: list[AnswerLabel], qualities: list[float]) -> dict[float, CascadeThreshold]:
        return {min_quality: threshold_of(labels, min_quality) for min_quality in qualities}

    def _adopt(self, pair: Pair, found: dict[float, CascadeThreshold]) -> None:
        for min_quality, threshold in self._thresholds.update(pair, found, self._wall()):
            self.on_change(pair, min_quality, threshold)
        for known, min_quality, threshold in self._thresholds:
            if known == pair:
                labels = (*pair, f"{min_quality:g}")
                self._metrics.cascade_threshold.labels(*labels).set(threshold.confidence)
                self._metrics.cascade_labels.labels(*labels).set(threshold.num_labels)
