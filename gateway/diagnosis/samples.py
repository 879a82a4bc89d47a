"""Samples: the metrics of one process at one instant, from its memory or from its `/metrics`."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Final, Self

from gateway.telemetry.instruments import SECONDS_BUCKETS, Counter, Gauge, Instruments, MetricFamily
from gateway.telemetry.window import Totals

Labels = Mapping[str, str]

_LINE: Final = re.compile(r"([a-z_]+)(?:\{(.*)\})? (\S+)")
_LABEL: Final = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True, slots=True)
class Distribution:
    """Content of a histogram; without `counts` only its mean is available."""

    count: float = 0.0
    total: float = 0.0
    counts: tuple[float, ...] = ()
    """Observations in each bucket of SECONDS_BUCKETS and beyond the last; not cumulative."""

    @property
    def mean(self) -> float:
        """Mean in seconds; 0 without observations."""
        return self.total / self.count if self.count > 0 else 0.0

    def quantile(self, share: float) -> float:
        """Return the bound of the bucket that holds this quantile, in seconds; the mean without buckets."""
        if not self.counts or self.count <= 0:
            return self.mean
        position = bisect_left(list(accumulate(self.counts)), share * self.count)
        return SECONDS_BUCKETS[min(position, len(SECONDS_BUCKETS) - 1)]

    def __add__(self, other: Distribution) -> Distribution:
        counts = _joined(self.counts, other.counts, 1.0)
        return Distribution(self.count + other.count, self.total + other.total, counts)

    def __sub__(self, before: Distribution) -> Distribution:
        """Return the observations since `before`; all of them where the process restarted in between."""
        if before.count > self.count:
            return self
        counts = _joined(self.counts, before.counts, -1.0)
        return Distribution(self.count - before.count, max(0.0, self.total - before.total), counts)


def _joined(left: tuple[float, ...], right: tuple[float, ...], sign: float) -> tuple[float, ...]:
    if len(left) != len(right):
        return left or right
    return tuple(max(0.0, mine + sign * theirs) for mine, theirs in zip(left, right, strict=True))


@dataclass(frozen=True, slots=True)
class Samples:
    """Numbers and distributions by name and labels.

    A counter's name ends in `_total`; a histogram's name has no suffix.
    """

    numbers: Mapping[str, tuple[tuple[Labels, float], ...]] = field(default_factory=dict)
    distributions: Mapping[str, tuple[tuple[Labels, Distribution], ...]] = field(default_factory=dict)

    @classmethod
    def of_instruments(cls, instruments: Instruments) -> Self:
        """Return the metrics of this process."""
        counted: list[MetricFamily[Counter] | MetricFamily[Gauge]] = [*instruments.counters, *instruments.gauges]
        numbers = {
            family.name: tuple(
                (dict(zip(family.label_names, values, strict=True)), child.value) for values, child in family.children()
            )
            for family in counted
        }
        distributions = {
            family.name: tuple(
                (
                    dict(zip(family.label_names, values, strict=True)),
                    Distribution(float(sum(child.counts)), child.total, tuple(map(float, child.counts))),
                )
                for values, child in family.children()
            )
            for family in instruments.histograms
        }
        return cls(numbers, distributions)

    @classmethod
    def of_totals(cls, totals: Totals, instruments: Instruments) -> Self:
        """Take the counters and histograms of a history's totals; `instruments` has the names of their labels."""
        counted, observed = (
            {family.name.removeprefix(instruments.prefix): family for family in families}
            for families in (instruments.counters, instruments.histograms)
        )
        return cls(
            {
                counted[name].name: tuple(
                    (dict(zip(counted[name].label_names, values, strict=True)), value)
                    for values, value in children.items()
                )
                for name, children in totals.counters.items()
            },
            {
                observed[name].name: tuple(
                    (
                        dict(zip(observed[name].label_names, values, strict=True)),
                        Distribution(float(sum(counts)), total, tuple(map(float, counts))),
                    )
                    for values, (counts, total) in children.items()
                )
                for name, children in totals.histograms.items()
            },
        )

    @classmethod
    def of_text(cls, text: str) -> Self:
        """Parse Prometheus' text format; histograms keep only their means, and malformed lines are skipped."""
        numbers: dict[str, list[tuple[Labels, float]]] = {}
        for line in text.splitlines():
            if line.startswith("#") or "_bucket{" in line:
                continue
            found = _LINE.fullmatch(line)
            value = None if found is None else _number(found[3])
            if found is not None and value is not None:
                numbers.setdefault(found[1], []).append((dict(_LABEL.findall(found[2] or "")), value))
        return cls({name: tuple(num_seqs) for name, num_seqs in numbers.items()}, _distributions(numbers))

    def number(self, name: str, **where: str) -> float:
        """Return the sum over all samples that carry these labels."""
        return sum(value for labels, value in self.numbers.get(name, ()) if where.items() <= labels.items())

    def has(self, name: str) -> bool:
        """Return whether the process exports this number."""
        return bool(self.numbers.get(name))

    def distribution(self, name: str, **where: str) -> Distribution:
        """Return the sum of all histograms that carry these labels."""
        num_seqs = self.distributions.get(name, ())
        return _merged(found for labels, found in num_seqs if where.items() <= labels.items())

    def values_of(self, name: str, label: str) -> frozenset[str]:
        """Return all values of a label."""
        num_seqs = (*self.numbers.get(name, ()), *self.distributions.get(name, ()))
        return frozenset(labels[label] for labels, _ in num_seqs if label in labels)


def _merged(distributions: Iterable[Distribution]) -> Distribution:
    merged = Distribution()
    for distribution in distributions:
        merged = merged + distribution
    return merged


def _distributions(
    numbers: Mapping[str, list[tuple[Labels, float]]],
) -> dict[str, tuple[tuple[Labels, Distribution], ...]]:
    names = [name.removesuffix("_sum") for name in numbers if name.endswith("_sum") and name[:-4] + "_count" in numbers]
    found = {}
    for name in names:
        totals = {frozenset(labels.items()): value for labels, value in numbers[f"{name}_sum"]}
        found[name] = tuple(
            (labels, Distribution(count, totals.get(frozenset(labels.items()), 0.0)))
            for labels, count in numbers[f"{name}_count"]
        )
    return found


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
