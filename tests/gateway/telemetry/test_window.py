"""History: windows and quantiles from readings of the metrics, and their sum over processes."""

from __future__ import annotations

from collections import Counter

import msgspec
import pytest

from gateway.telemetry.instruments import SECONDS_BUCKETS, Instruments
from gateway.telemetry.window import STEP_S, WINDOWS_S, History, Totals, merged, quantile_s


class World:
    """A counter and a histogram under a clock of its own."""

    def __init__(self) -> None:
        make = Instruments("penstock_")
        self.now = 1_200_000.0
        self.counter = make.counter("requests_total", "", ("outcome",))
        self.histogram = make.histogram("ttft_seconds", "", ("bucket",))
        self.history = History([self.counter], [self.histogram], prefix="penstock_", wall=lambda: self.now)

    def step(self, count: float, seconds: float | None = None) -> None:
        """One more step in which so many requests came."""
        if count:
            self.counter.labels("completed").inc(count)
        if seconds is not None:
            self.histogram.labels("0-256").observe(seconds)
        self.now += STEP_S
        self.history.take()


def test_a_window_holds_what_was_counted_in_it_and_nothing_older() -> None:
    world = World()
    for _ in range(40):
        world.step(10)
    assert world.history.totals(60).total("requests_total") == 120
    assert world.history.totals(60).span_s == 60


def test_what_was_counted_since_the_last_reading_is_in_every_window() -> None:
    world = World()
    world.step(1)
    world.counter.labels("completed").inc(5)
    assert world.history.totals(60).total("requests_total") == 6


def test_a_process_younger_than_the_window_counts_from_its_start() -> None:
    world = World()
    world.step(7)
    totals = world.history.totals(3600)
    assert (totals.total("requests_total"), totals.span_s) == (7, STEP_S)


def test_an_hour_is_remembered_in_coarser_steps() -> None:
    world = World()
    for _ in range(int(2 * 3600 / STEP_S)):
        world.step(1)
    assert world.history.totals(3600).total("requests_total") == pytest.approx(3600 / STEP_S, abs=12)
    assert len(world.history._fine) + len(world.history._coarse) < 300


def test_a_series_has_equal_steps_that_sum_up_to_the_window() -> None:
    world = World()
    for _ in range(30):
        world.step(2)
    world.counter.labels("completed").inc(3)
    world.now += 1.0
    steps = world.history.series(60, frozenset({"requests_total"}))
    assert [step.total("requests_total") for step in steps] == [2] * 11 + [3]
    assert {step.span_s for step in steps[:-1]} == {STEP_S}
    assert "ttft_seconds" not in steps[0].histograms


def test_steps_stay_only_as_long_as_a_window_shows_them() -> None:
    world, names = World(), frozenset({"requests_total"})
    for _ in range(int(2 * 3600 / STEP_S)):
        world.step(1)
        for window_s in WINDOWS_S:
            world.history.series(window_s, names)
    lengths = Counter(end - begin for begin, end, _ in world.history._steps)
    assert set(lengths) == {5.0, 15.0, 60.0}
    assert max(lengths.values()) <= 61


def test_a_clock_that_was_set_back_starts_a_new_history() -> None:
    world = World()
    for _ in range(5):
        world.step(4)
    world.now -= 10_000
    world.history.take()
    world.step(1)
    assert world.history.totals(3600).total("requests_total") == 1


def test_quantiles_interpolate_inside_their_bucket() -> None:
    counts = [0] * (len(SECONDS_BUCKETS) + 1)
    counts[SECONDS_BUCKETS.index(0.1)] = 100
    assert quantile_s(counts, 0.5) == pytest.approx(0.075)
    assert quantile_s(counts, 1.0) == pytest.approx(0.1)
    counts[-1] = 900
    assert quantile_s(counts, 0.99) == SECONDS_BUCKETS[-1]
    assert quantile_s([0] * len(counts), 0.5) is None


def test_totals_of_processes_add_up_after_a_journey() -> None:
    parts = []
    for count, seconds in ((3, 0.2), (5, 0.9)):
        world = World()
        world.step(count, seconds)
        sent = msgspec.msgpack.encode(world.history.totals(60))
        parts.append(msgspec.msgpack.decode(sent, type=Totals))
    both = merged(parts)
    assert both.total("requests_total", {0: "completed"}) == 8
    counts, seconds = both.observed("ttft_seconds")[()]
    assert sum(counts) == 2
    assert seconds == pytest.approx(1.1)


def test_what_did_not_change_is_stored_once() -> None:
    world = World()
    world.step(1, 0.2)
    world.step(1)
    newest, before = world.history._fine[-1], world.history._fine[-2]
    assert newest.histograms["ttft_seconds"][("0-256",)] is before.histograms["ttft_seconds"][("0-256",)]


@pytest.mark.parametrize("back_s", [0.3, 3.0, 3600.0])
def test_a_clock_that_was_set_back_gives_no_points_until_time_passes(back_s: float) -> None:
    world, names = World(), frozenset({"requests_total"})
    for _ in range(30):
        world.step(10, 0.1)
    world.now -= back_s
    is_anew = back_s > 1.0
    for window_s in WINDOWS_S:
        totals, series = world.history.totals(window_s), world.history.series(window_s, names)
        assert totals.span_s >= 0.0
        assert (totals.total("requests_total") == 0) == is_anew
        assert all(step.span_s > 0.0 for step in series)
        assert (series == []) == is_anew
    world.counter.labels("completed").inc(4)
    world.now += 7.0
    assert (world.history.totals(60).total("requests_total") == 4) == is_anew
    assert world.history.series(60, names)


def test_a_clock_that_was_set_back_before_the_first_reading_gives_no_points() -> None:
    world = World()
    world.counter.labels("completed").inc(4)
    world.now -= 3600.0
    assert world.history.series(300, frozenset({"requests_total"})) == []
    assert world.history.totals(300).total("requests_total") == 0


def test_the_totals_until_an_age_are_there_once_the_process_is_that_old() -> None:
    world = World()
    assert world.history.until(3600.0) is None
    for count in (1, 2):
        for _ in range(720):
            world.step(count, 0.1)
    totals = world.history.until(3600.0)
    assert totals is not None
    assert totals.total("requests_total") == pytest.approx(720, abs=24)
    assert totals.since == 1_200_000.0
    assert totals.until == pytest.approx(1_203_600.0, abs=60)
