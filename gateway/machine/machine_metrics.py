"""MachineMetrics: the workers' metrics, added to those of the control process.

Counts are added as far as they grew since the last report, so those of a worker that died stay counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from gateway.machine.reports import FamilyValues, Labels, Observations, WorkerReport
from gateway.telemetry.instruments import Counter, Histogram, MetricFamily
from gateway.telemetry.metrics import GatewayMetrics

Combine = Callable[[Iterable[float]], float]

GAUGES: Final[Mapping[str, Combine]] = {
    "penstock_cache_index_entries": max,
    "penstock_cache_index_waiting": sum,
    "penstock_event_loop_lag_seconds": max,
    "penstock_policy_reload_success": min,
    "penstock_store_up": min,
    "penstock_ttft_forecast_error_ratio": max,
}
"""Gauges of each process for itself, and how they combine; all others the control process reads for the machine."""


class _Life:
    """The last report of one life of a worker."""

    def __init__(self) -> None:
        self.counters: dict[tuple[str, Labels], float] = {}
        self.histograms: dict[tuple[str, Labels], Observations] = {}


class MachineMetrics:
    """Adds reports to the families of the control process."""

    def __init__(self, metrics: GatewayMetrics) -> None:
        instruments = metrics.instruments
        self._counters = {family.name: family for family in instruments.counters}
        self._histograms = {family.name: family for family in instruments.histograms}
        self._gauges = {family.name: family for family in instruments.gauges}
        self._lives: dict[int, tuple[str, _Life]] = {}
        self._last: dict[int, FamilyValues] = {}

    def take(self, column: int, report: WorkerReport) -> None:
        """Add what a worker counted since its last report."""
        life_name, life = self._lives.get(column, ("", _Life()))
        if life_name != report.life:
            life = _Life()
        self._lives[column] = (report.life, life)
        self._last[column] = report.values
        for name, children in report.values.counters.items():
            self._count(self._counters.get(name), name, children, life)
        for name, observed in report.values.histograms.items():
            self._observe(self._histograms.get(name), name, observed, life)

    def drop(self, column: int) -> None:
        """Forget the gauges of a worker that does not report."""
        self._last.pop(column, None)

    def set_gauges(self) -> None:
        """Combine the workers' gauges with those that the control process has set for itself."""
        for name, combine in GAUGES.items():
            family = self._gauges[name]
            found: dict[Labels, list[float]] = {labels: [gauge.value] for labels, gauge in family.children()}
            for values in self._last.values():
                for labels, value in values.gauges.get(name, ()):
                    found.setdefault(labels, []).append(value)
            for labels, several in found.items():
                family.labels(*labels).set(combine(several))

    def _count(
        self,
        family: MetricFamily[Counter] | None,
        name: str,
        children: Iterable[tuple[Labels, float]],
        life: _Life,
    ) -> None:
        if family is None:  # of another version of this program
            return
        for labels, value in children:
            before = life.counters.get((name, labels), 0.0)
            life.counters[name, labels] = value
            family.labels(*labels).inc(max(value - before, 0.0))

    def _observe(
        self,
        family: MetricFamily[Histogram] | None,
        name: str,
        children: Iterable[tuple[Labels, Observations]],
        life: _Life,
    ) -> None:
        if family is None:
            return
        for labels, (counts, total) in children:
            histogram = family.labels(*labels)
            if len(counts) != len(histogram.counts):  # of another version of this program
                continue
            before, total_before = life.histograms.get((name, labels), ([0] * len(counts), 0.0))
            life.histograms[name, labels] = (counts, total)
            histogram.counts = [
                sum_so_far + now - then for sum_so_far, now, then in zip(histogram.counts, counts, before, strict=True)
            ]
            histogram.total += total - total_before
