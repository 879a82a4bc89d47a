"""Counters, gauges and histograms that cost a fraction of a microsecond, exported in Prometheus' text format.

prometheus_client takes a lock and walks every bucket at each observation. Here one event loop writes, and a scrape on
the same loop reads, so an observation is one bisection and two additions. prometheus_client renders the output.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Generic, Protocol, TypeVar

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector, CollectorRegistry

SECONDS_BUCKETS: tuple[float, ...] = (
    *(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1),
    *(0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0),
)
"""Upper bounds of the histogram buckets in seconds, 0.1 ms to 120 s."""

_BOUNDS = [*(repr(bound) for bound in SECONDS_BUCKETS), "+Inf"]


class Counter:
    """A number that only grows."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0.0

    def inc(self, amount: float = 1.0) -> None:
        """Add `amount` ≥ 0."""
        self.value += amount


class Gauge:
    """A number that is set."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0.0

    def set(self, value: float) -> None:
        """Set the current value."""
        self.value = value


class Histogram:
    """Seconds, counted into SECONDS_BUCKETS."""

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * (len(SECONDS_BUCKETS) + 1)
        self.total = 0.0

    def observe(self, seconds: float) -> None:
        """Count one observation."""
        self.counts[bisect_left(SECONDS_BUCKETS, seconds)] += 1
        self.total += seconds


class _Child(Protocol):
    def __init__(self) -> None: ...


C = TypeVar("C", bound=_Child)


class MetricFamily(Generic[C]):
    """All children of one metric name; label values come in the order of the label names."""

    __slots__ = ("_children", "_make", "help", "label_names", "name")

    def __init__(self, make: type[C], name: str, help_text: str, label_names: Sequence[str] = ()) -> None:
        self._make = make
        self._children: dict[tuple[str, ...], C] = {}
        self.name = name
        self.help = help_text
        self.label_names = tuple(label_names)

    def labels(self, *values: str) -> C:
        """Return the child for these label values, made on first use; keep it where it is used often."""
        child = self._children.get(values)
        if child is None:
            if len(values) != len(self.label_names):
                raise ValueError(f"{self.name}: expected values for {self.label_names}, got {values}")
            child = self._children[values] = self._make()
        return child

    def clear(self) -> None:
        """Remove all children; for gauges that each scrape sets anew."""
        self._children.clear()

    def children(self) -> Iterator[tuple[tuple[str, ...], C]]:
        """Yield label values and child, in the order of first use."""
        return iter(tuple(self._children.items()))


class Instruments(Collector):
    """Metric families of one process; hooks given to `before_scrape` set gauges from live state first."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        """Prefix of every name."""
        self.counters: list[MetricFamily[Counter]] = []
        self.gauges: list[MetricFamily[Gauge]] = []
        self.histograms: list[MetricFamily[Histogram]] = []
        self._before_scrape: list[Callable[[], None]] = []
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)

    def counter(self, name: str, help_text: str, labels: Sequence[str] = ()) -> MetricFamily[Counter]:
        """Add a counter family; `name` has no prefix and ends in `_total`."""
        return _keep(self.counters, MetricFamily(Counter, self.prefix + name, help_text, labels))

    def gauge(self, name: str, help_text: str, labels: Sequence[str] = ()) -> MetricFamily[Gauge]:
        """Add a gauge family; `name` has no prefix."""
        return _keep(self.gauges, MetricFamily(Gauge, self.prefix + name, help_text, labels))

    def histogram(self, name: str, help_text: str, labels: Sequence[str] = ()) -> MetricFamily[Histogram]:
        """Add a histogram family in seconds; `name` has no prefix."""
        return _keep(self.histograms, MetricFamily(Histogram, self.prefix + name, help_text, labels))

    def before_scrape(self, hook: Callable[[], None]) -> None:
        """Run `hook` at the start of every read-out."""
        self._before_scrape.append(hook)

    def refresh(self) -> None:
        """Set gauges from live state."""
        for hook in self._before_scrape:
            hook()

    def render(self) -> bytes:
        """Return all metrics in Prometheus' text format (version 0.0.4)."""
        self.refresh()
        return generate_latest(self._registry)

    def collect(self) -> Iterable[Metric]:
        """Yield the families as prometheus_client's metrics."""
        for counters in self.counters:
            counted = CounterMetricFamily(counters.name, counters.help, labels=counters.label_names)
            for values, counter in counters.children():
                counted.add_metric(values, counter.value)
            yield counted
        for gauges in self.gauges:
            gauged = GaugeMetricFamily(gauges.name, gauges.help, labels=gauges.label_names)
            for values, gauge in gauges.children():
                gauged.add_metric(values, gauge.value)
            yield gauged
        for histograms in self.histograms:
            family = HistogramMetricFamily(histograms.name, histograms.help, labels=histograms.label_names)
            for values, histogram in histograms.children():
                family.add_metric(values, _cumulative(histogram.counts), histogram.total)
            yield family


F = TypeVar("F")


def _keep(families: list[F], family: F) -> F:
    families.append(family)
    return family


def _cumulative(counts: Sequence[int]) -> list[tuple[str, float]]:
    running = 0
    buckets = []
    for bound, count in zip(_BOUNDS, counts, strict=True):
        running += count
        buckets.append((bound, float(running)))
    return buckets
