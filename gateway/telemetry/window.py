"""History: what the metrics counted lately, worked out from readings of them that are taken now and then.

Nothing is counted twice: a reading copies the counts that are there, and a window is the difference of two readings.
Readings are taken at instants that all replicas share, so that their windows add up.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from operator import add, sub
from typing import Final

import msgspec

from gateway.telemetry.instruments import SECONDS_BUCKETS, Counter, Histogram, MetricFamily
from gateway.timeline import Clock

STEP_S: Final = 5.0
"""Between two readings."""
COARSE_STEP_S: Final = 60.0
WINDOWS_S: Final = (60, 300, 900, 3600)
_NUM_FINE: Final = int(900 / STEP_S) + 2
_NUM_COARSE: Final = int(3600 / COARSE_STEP_S) + 2

Labels = tuple[str, ...]
Counts = tuple[int, ...]
"""Observations by bucket; the last is beyond all bounds."""
Observed = tuple[Counts, float]
"""Counts and the sum of what was observed, in seconds."""


class Totals(msgspec.Struct, frozen=True, kw_only=True):
    """What was counted in a stretch of time; additive over processes. Children that counted nothing are left out."""

    since: float
    """Seconds since 1970."""
    until: float
    counters: dict[str, dict[Labels, float]]
    histograms: dict[str, dict[Labels, Observed]]

    @property
    def span_s(self) -> float:
        """How long the stretch is."""
        return self.until - self.since

    def total(self, name: str, where: Mapping[int, str] | None = None) -> float:
        """Sum over the children of a counter; `where`: position of a label → its value."""
        children = self.counters.get(name, {}).items()
        return sum(v for labels, v in children if not where or all(labels[i] == w for i, w in where.items()))

    def by(self, name: str, *positions: int) -> dict[Labels, float]:
        """A counter's sums by some of its labels."""
        sums: dict[Labels, float] = {}
        for labels, value in self.counters.get(name, {}).items():
            key = tuple(labels[i] for i in positions)
            sums[key] = sums.get(key, 0.0) + value
        return sums

    def observed(self, name: str, *positions: int) -> dict[Labels, Observed]:
        """A histogram's counts by some of its labels."""
        sums: dict[Labels, Observed] = {}
        for labels, observed in self.histograms.get(name, {}).items():
            key = tuple(labels[i] for i in positions)
            sums[key] = _added(sums[key], observed) if key in sums else observed
        return sums


class _Reading(msgspec.Struct, frozen=True):
    at: float
    counters: dict[str, dict[Labels, float]]
    histograms: dict[str, dict[Labels, Observed]]


class History:
    """Readings of some counters and histograms over the last hour. Everything runs on the event loop."""

    def __init__(
        self,
        counters: Iterable[MetricFamily[Counter]],
        histograms: Iterable[MetricFamily[Histogram]],
        *,
        prefix: str,
        wall: Clock,
    ) -> None:
        """`prefix` is taken off the families' names; `wall` tells seconds since 1970."""
        self._counters = {family.name.removeprefix(prefix): family for family in counters}
        self._histograms = {family.name.removeprefix(prefix): family for family in histograms}
        self._wall = wall
        self._fine: deque[_Reading] = deque(maxlen=_NUM_FINE)
        self._coarse: deque[_Reading] = deque(maxlen=_NUM_COARSE)
        self._steps: dict[tuple[float, float, frozenset[str]], Totals] = {}
        self._first = self._read()
        """As it began: processes count from their start."""

    @property
    def next_in_s(self) -> float:
        """Seconds until the next reading should be taken."""
        return STEP_S - self._wall() % STEP_S

    def take(self) -> None:
        """Take a reading; to be called every STEP_S."""
        reading = self._read()
        if self._fine and not 0.0 < reading.at - self._fine[-1].at < 10 * STEP_S:  # the clock was set
            self._fine.clear()
            self._coarse.clear()
            self._steps.clear()
            self._first = reading
        self._fine.append(reading)
        if not self._coarse or int(reading.at / COARSE_STEP_S) != int(self._coarse[-1].at / COARSE_STEP_S):
            self._coarse.append(reading)

    def totals(self, window_s: float) -> Totals:
        """What was counted in the last `window_s`, or since this process began, up to this moment."""
        now = self._read()
        return _difference(self._at(now.at - window_s), now)

    def series(self, window_s: float, names: frozenset[str]) -> list[Totals]:
        """Of the families named, the same in equal steps, oldest first; the last one is not over yet."""
        step_s = step_of(window_s)
        now = _only(self._read(), names)
        last = now.at - now.at % step_s
        edges = [last - step_s * n for n in range(int(window_s / step_s) - 1, -1, -1)]
        edges = [edge for edge in edges if edge + step_s > self._first.at]
        over = [self._step(begin, begin + step_s, names) for begin in edges[:-1]]
        self._steps = {key: self._steps[key] for key in self._steps if key[0] > now.at - WINDOWS_S[-1] - step_s}
        last_begun = _only(self._at(edges[-1]), names)
        return [step for step in (*over, _difference(last_begun, now)) if step.span_s > 0.0]

    def _step(self, begin: float, end: float, names: frozenset[str]) -> Totals:
        """One that is over: it will not change any more, so it is worked out once."""
        key = begin, end, names
        step = self._steps.get(key)
        if step is None:
            step = _difference(_only(self._at(begin), names), _only(self._at(end), names))
            if self._fine and self._fine[-1].at >= end - 0.5:  # the reading at its end was taken
                self._steps[key] = step
        return step

    def _at(self, instant: float) -> _Reading:
        """The last reading no later than `instant`, the first of all where there is none."""
        for ring in (self._fine, self._coarse):
            index = bisect_right(ring, instant + 0.5, key=lambda reading: reading.at)
            if index:
                return ring[index - 1]
        return self._first

    def _read(self) -> _Reading:
        before = self._fine[-1].histograms if self._fine else {}
        return _Reading(
            self._wall(),
            {name: {k: c.value for k, c in family.children()} for name, family in self._counters.items()},
            {name: _observations(family, before.get(name, {})) for name, family in self._histograms.items()},
        )


def _observations(family: MetricFamily[Histogram], before: Mapping[Labels, Observed]) -> dict[Labels, Observed]:
    """As they are; what did not change since the last reading is kept once."""
    found: dict[Labels, Observed] = {}
    for labels, histogram in family.children():
        known = before.get(labels)
        same = known is not None and known[1] == histogram.total and known[0] == tuple(histogram.counts)
        found[labels] = known if known is not None and same else (tuple(histogram.counts), histogram.total)
    return found


def step_of(window_s: float) -> float:
    """Seconds of one step of a window's series."""
    return max(STEP_S, window_s / 60)


def _only(reading: _Reading, names: frozenset[str]) -> _Reading:
    return _Reading(
        reading.at,
        {name: values for name, values in reading.counters.items() if name in names},
        {name: values for name, values in reading.histograms.items() if name in names},
    )


def merged(parts: Sequence[Totals]) -> Totals:
    """The sum over processes; raises ValueError for none."""
    if len(parts) == 1:
        return parts[0]
    if not parts:
        raise ValueError("parts: expected at least one")
    counters: dict[str, dict[Labels, float]] = {}
    histograms: dict[str, dict[Labels, Observed]] = {}
    for part in parts:
        for name, values in part.counters.items():
            sums = counters.setdefault(name, {})
            for labels, value in values.items():
                sums[labels] = sums.get(labels, 0.0) + value
        for name, observations in part.histograms.items():
            seen = histograms.setdefault(name, {})
            for labels, observed in observations.items():
                seen[labels] = _added(seen[labels], observed) if labels in seen else observed
    since, until = min(part.since for part in parts), max(part.until for part in parts)
    return Totals(since=since, until=until, counters=counters, histograms=histograms)


def quantile_s(counts: Sequence[int], share: float) -> float | None:
    """The quantile by linear interpolation inside its bucket, None without observations; what lies beyond the last
    bound is taken for the last bound."""
    wanted = share * sum(counts)
    if not wanted:
        return None
    running = 0
    for index, count in enumerate(counts):
        if count and running + count >= wanted:
            if index == len(SECONDS_BUCKETS):
                break
            low = SECONDS_BUCKETS[index - 1] if index else 0.0
            return low + (SECONDS_BUCKETS[index] - low) * (wanted - running) / count
        running += count
    return SECONDS_BUCKETS[-1]


def _difference(old: _Reading, new: _Reading) -> Totals:
    return Totals(
        since=old.at,
        until=new.at,
        counters={name: _grown(old.counters.get(name, {}), values) for name, values in new.counters.items()},
        histograms={name: _seen_since(old.histograms.get(name, {}), v) for name, v in new.histograms.items()},
    )


def _grown(old: Mapping[Labels, float], new: Mapping[Labels, float]) -> dict[Labels, float]:
    return {labels: grown for labels, value in new.items() if (grown := value - old.get(labels, 0.0))}


def _seen_since(old: Mapping[Labels, Observed], new: Mapping[Labels, Observed]) -> dict[Labels, Observed]:
    found: dict[Labels, Observed] = {}
    for labels, observed in new.items():
        before = old.get(labels)
        if before is None:
            if any(observed[0]):
                found[labels] = observed
        elif before is not observed:
            counts = tuple(map(sub, observed[0], before[0]))
            if any(counts):
                found[labels] = (counts, observed[1] - before[1])
    return found


def _added(a: Observed, b: Observed) -> Observed:
    return tuple(map(add, a[0], b[0])), a[1] + b[1]
