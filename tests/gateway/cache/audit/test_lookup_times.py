"""Lookups begin where they come in time, are skipped where they would not, and are tried again when times change."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from gateway.cache.audit.lookup_times import MAX_LATE_RATIO, LookupTimes, ResponseOrigin

SOURCE = ResponseOrigin("faq", "small", True)
Draw = Callable[[Random, int], float]


class Played:
    """A stream of requests whose lookups and responses take drawn times."""

    def __init__(self, lookup_s: Draw, response_s: Draw, *, seed: int, num: int = 2000, per_s: float = 20.0) -> None:
        rng, times, now = Random(seed), LookupTimes(), 1000.0
        self.num_begun = self.num_late = self.num_useful = self.num_possible = 0
        for number in range(num):
            now += rng.expovariate(per_s)
            lookup, response = lookup_s(rng, number), response_s(rng, number)
            is_late = lookup >= response
            self.num_possible += not is_late
            if times.may_begin(SOURCE, 0, now):
                times.note_begin(now)
                self.num_begun += 1
                self.num_late += is_late
                self.num_useful += not is_late
                times.note_lookup(lookup, 0.0, 0, now)
                times.note_race(SOURCE, now, is_late=is_late)
            else:
                times.note_lookup(lookup, None, 0, now)
            times.note_response(SOURCE, response, now)


def about(seconds: float, spread: float = 0.4) -> Draw:
    return lambda rng, _: rng.lognormvariate(0.0, spread) * seconds


@pytest.mark.parametrize("seed", range(3))
def test_lookups_that_are_faster_than_any_response_all_begin(seed: int) -> None:
    played = Played(about(0.005), about(0.3), seed=seed)
    assert (played.num_begun, played.num_late) == (2000, 0)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("response_s", "spread"), [(0.03, 0.3), (0.05, 0.5), (0.07, 0.6), (0.1, 0.8)])
def test_few_of_the_lookups_that_begin_are_late(response_s: float, spread: float, seed: int) -> None:
    played = Played(about(0.01, 0.4), about(response_s, spread), seed=seed)
    assert played.num_late <= MAX_LATE_RATIO * played.num_begun + 3, "some begin before anything is known"


@pytest.mark.parametrize("seed", range(3))
def test_slow_lookups_are_skipped_after_a_few(seed: int) -> None:
    played = Played(about(0.05), about(0.01), seed=seed)
    assert played.num_begun <= 12


@pytest.mark.parametrize("seed", range(3))
def test_what_an_idle_machine_allows_is_used_soon_after_a_busy_one(seed: int) -> None:
    def changing(rng: Random, number: int) -> float:
        return rng.lognormvariate(0.0, 0.3) * (0.1 if number // 500 % 2 else 0.005)

    played = Played(changing, about(0.08, 0.3), seed=seed)
    assert played.num_late <= MAX_LATE_RATIO * played.num_begun
    assert played.num_useful >= 0.9 * 1000, "two of four phases are idle"


@pytest.mark.parametrize("seed", range(3))
def test_an_upstream_that_is_fast_for_a_minute_has_its_lookups_again_within_seconds(seed: int) -> None:
    def changing(rng: Random, number: int) -> float:
        return rng.lognormvariate(0.0, 0.3) * (0.005 if number // 1200 == 1 else 0.3)

    played = Played(about(0.01, 0.3), changing, seed=seed, num=3600)
    assert played.num_late <= MAX_LATE_RATIO * played.num_begun
    assert played.num_useful >= 2400 - 60, "at most three of 120 seconds in which the upstream is slow are lost"


def test_each_source_has_times_of_its_own() -> None:
    times, slow = LookupTimes(), SOURCE._replace(deployment="large")
    for number in range(20):
        times.note_lookup(0.02, 0.001, 0, float(number))
        times.note_response(SOURCE, 0.01, float(number))
        times.note_response(slow, 0.5, float(number))
    assert not times.may_begin(SOURCE, 0, 20.0)
    assert times.may_begin(slow, 0, 20.0)
    assert times.may_begin(SOURCE._replace(is_stream=False), 0, 20.0), "nothing is known of it"


def test_texts_that_wait_for_the_encoder_make_a_lookup_longer() -> None:
    times = LookupTimes()
    for number in range(20):
        times.note_lookup(0.04, 0.001, 3, float(number))  # three texts were before it: 10 ms each
        times.note_response(SOURCE, 0.05, float(number))
    assert times.may_begin(SOURCE, 0, 20.0)
    assert not times.may_begin(SOURCE, 9, 20.0)


def test_when_the_newest_lookup_is_old_one_begins_to_show_how_long_they_take() -> None:
    times = LookupTimes()
    for number in range(20):
        times.note_lookup(0.05, 0.001, 0, float(number))
        times.note_response(SOURCE, 0.01, float(number))
    assert not times.may_begin(SOURCE, 0, 21.0)
    assert times.may_begin(SOURCE, 0, 100.0)
    times.note_begin(100.0)
    assert not times.may_begin(SOURCE, 0, 100.0), "those behind it need not"
