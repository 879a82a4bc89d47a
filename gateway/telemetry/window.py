"""History: recent totals of the metrics, derived from periodic readings.

A reading copies the current counts, and a window is the difference of two readings, so nothing is counted twice. All
replicas take readings at the same instants, so their windows add up.
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
"""Seconds between two readings."""
COARSE_STEP_S: Final = 60.0
WINDOWS_S: Final = (60, 300, 900, 3600)
_MAX_STEPS: Final = 60
"""Number of steps of a window's series; a short window has fewer."""
_NUM_FINE: Final = int(900 / STEP_S) + 2
_NUM_COARSE: Final = int(3600 / COARSE_STEP_S) + 2
_SLACK_S: Final = 0.5
"""Seconds from its instant within which a reading counts as taken at it, because timers end a little early or late."""

Labels = tuple[str, ...]
Counts = tuple[int, ...]
"""Observations by bucket; the last bucket is beyond all bounds."""
Observed = tuple[Counts, float]
"""Counts by bucket, and the sum of the observations in seconds."""


class Totals(msgspec.Struct, frozen=True, kw_only=True):
    """Counts over a span of time; additive over processes. Children that counted nothing are left out."""

    since: float
    """Start, in seconds since 1970."""
    until: float
    counters: dict[str, dict[Labels, float]]
    histograms: dict[str, dict[Labels, Observed]]

    @property
    def span_s(self) -> float:
        """Length of the span in seconds."""
        return self.until - self.since

    def total(self, name: str, where: Mapping[int, str] | None = None) -> float:
        """Return the sum over a counter's children; `where` maps label positions to values."""
        children = self.counters.get(name, {}).items()
        return sum(v for labels, v in children if not where or all(labels[i] == w for i, w in where.items()))

    def by(self, name: str, *positions: int) -> dict[Labels, float]:
        """Return a counter's sums, grouped by the labels at these positions."""
        sums: dict[Labels, float] = {}
        for labels, value in self.counters.get(name, {}).items():
            key = tuple(labels[i] for i in positions)
            sums[key] = sums.get(key, 0.0) + value
        return sums

    def observed(self, name: str, *positions: int) -> dict[Labels, Observed]:
        """Return a histogram's counts, grouped by the labels at these positions."""
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
    """Readings of some counters and histograms over the last hour; runs on the event loop."""

    def __init__(
        self,
        counters: Iterable[MetricFamily[Counter]],
        histograms: Iterable[MetricFamily[Histogram]],
        *,
        prefix: str,
        wall: Clock,
    ) -> None:
        """Take the first reading.

        Args:
            counters: The counter families to read.
            histograms: The histogram families to read.
            prefix: Prefix to remove from the families' names.
            wall: Wall clock, in seconds since 1970.
        """
        self._counters = {family.name.removeprefix(prefix): family for family in counters}
        self._histograms = {family.name.removeprefix(prefix): family for family in histograms}
        self._wall = wall
        self._fine: deque[_Reading] = deque(maxlen=_NUM_FINE)
        self._coarse: deque[_Reading] = deque(maxlen=_NUM_COARSE)
        self._steps: dict[tuple[float, float, frozenset[str]], Totals] = {}
        self._first = self._read()
        """Reading at the start of the process, the base of windows that begin before it."""

    @property
    def next_in_s(self) -> float:
        """Seconds until the next reading is due; a step whose reading was taken a little early is over."""
        now = self._wall()
        left_s = STEP_S - now % STEP_S
        is_taken = bool(self._fine) and 0.0 <= now + left_s - self._fine[-1].at < _SLACK_S
        return left_s + STEP_S if is_taken else left_s

    def take(self) -> None:
        """Take a reading; to be called every STEP_S."""
        reading = self._read()
        if self._fine and not 0.0 < reading.at - self._fine[-1].at < 10 * STEP_S:  # the clock has been changed
            self._begin_anew(reading)
        self._fine.append(reading)
        if not self._coarse or _minute_of(reading) != _minute_of(self._coarse[-1]):
            self._coarse.append(reading)

    def totals(self, window_s: float) -> Totals:
        """Return the totals of the last `window_s` seconds, or since this process began."""
        now = self._read_now()
        return _difference(self._at(now.at - window_s), now)

    def until(self, age_s: float) -> Totals | None:
        """Return the totals from this process's start until `age_s` seconds ago; None where it is younger.

        After a change of the clock, an age counts from that change on.
        """
        instant = self._read_now().at - age_s
        reading = self._at(instant)
        if reading.at > instant + _SLACK_S:
            return None
        return _difference(_Reading(self._first.at, {}, {}), reading)

    def series(self, window_s: float, names: frozenset[str]) -> list[Totals]:
        """Return the totals of the named families in equal steps, oldest first; the last step is still open."""
        step_s = step_of(window_s)
        now = _only(self._read_now(), names)
        last = now.at - now.at % step_s
        edges = [last - step_s * n for n in range(int(window_s / step_s) - 1, -1, -1)]
        edges = [edge for edge in edges if edge + step_s > self._first.at]
        over = [self._step(begin, begin + step_s, names) for begin in edges[:-1]]
        # No window reaches further back than so many steps.
        self._steps = {
            key: step for key, step in self._steps.items() if key[0] > now.at - (_MAX_STEPS + 1) * (key[1] - key[0])
        }
        last_begun = _only(self._at(edges[-1]), names)
        return [step for step in (*over, _difference(last_begun, now)) if step.span_s > 0.0]

    def _step(self, begin: float, end: float, names: frozenset[str]) -> Totals:
        """Return the totals of a closed step, cached because they no longer change."""
        key = begin, end, names
        step = self._steps.get(key)
        if step is None:
            step = _difference(_only(self._at(begin), names), _only(self._at(end), names))
            if self._fine and self._fine[-1].at >= end - _SLACK_S:  # it is final, as the reading at its end exists
                self._steps[key] = step
        return step

    def _at(self, instant: float) -> _Reading:
        """Return the last reading no later than `instant`, or the first of all."""
        for ring in (self._fine, self._coarse):
            index = bisect_right(ring, instant + _SLACK_S, key=lambda reading: reading.at)
            if index:
                return ring[index - 1]
        return self._first

    def _read_now(self) -> _Reading:
        """Read the current counts, never before the last reading; a clock that was set back begins the history anew."""
        reading, last = self._read(), self._fine[-1] if self._fine else self._first
        if reading.at < last.at - _SLACK_S:
            self._begin_anew(reading)
        elif reading.at < last.at:
            reading = msgspec.structs.replace(reading, at=last.at)
        return reading

    def _begin_anew(self, reading: _Reading) -> None:
        """Forget all readings: none of their instants can be compared with the clock's."""
        self._fine.clear()
        self._coarse.clear()
        self._steps.clear()
        self._first = reading

    def _read(self) -> _Reading:
        before = self._fine[-1].histograms if self._fine else {}
        return _Reading(
            self._wall(),
            {name: {k: c.value for k, c in family.children()} for name, family in self._counters.items()},
            {name: _observations(family, before.get(name, {})) for name, family in self._histograms.items()},
        )


def _minute_of(reading: _Reading) -> int:
    """Return the number of the coarse step in which a reading was taken."""
    return int((reading.at + _SLACK_S) / COARSE_STEP_S)


def _observations(family: MetricFamily[Histogram], before: Mapping[Labels, Observed]) -> dict[Labels, Observed]:
    """Return the family's observations, sharing the tuples of children unchanged since the last reading."""
    found: dict[Labels, Observed] = {}
    for labels, histogram in family.children():
        known = before.get(labels)
        same = known is not None and known[1] == histogram.total and known[0] == tuple(histogram.counts)
        found[labels] = known if known is not None and same else (tuple(histogram.counts), histogram.total)
    return found


def step_of(window_s: float) -> float:
    """Return the seconds of one step of a window's series."""
    return max(STEP_S, window_s / _MAX_STEPS)


def _only(reading: _Reading, names: frozenset[str]) -> _Reading:
    return _Reading(
        reading.at,
        {name: values for name, values in reading.counters.items() if name in names},
        {name: values for name, values in reading.histograms.items() if name in names},
    )


def merged(parts: Sequence[Totals]) -> Totals:
    """Return the sum over processes; raises ValueError for none."""
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
    """Return the quantile in seconds by linear interpolation inside its bucket, or None without observations.

    A quantile beyond the last bound is reported as the last bound.
    """
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
