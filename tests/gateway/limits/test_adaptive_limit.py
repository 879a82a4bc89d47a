"""AdaptiveLimit: first tokens in, a limit in tokens out."""

from __future__ import annotations

import math

import pytest

from gateway.limits.adaptive_limit import MIN_CROWD, AdaptiveLimit

TOKENS = 100


def feed(limit: AdaptiveLimit, now: float, measured_s: float, *, out: int, seconds: float = 1.0) -> float:
    """First tokens every 10 ms that without a queue take 100 ms, while `out` requests of 100 tokens are out."""
    for _ in range(round(seconds / 0.01)):
        now += 0.01
        limit.note_size(TOKENS)
        limit.note_ttft(now, measured_s, 0.1, out * TOKENS)
    return now


def test_without_a_queue_there_is_no_limit() -> None:
    limit = AdaptiveLimit()
    feed(limit, 0.0, 0.12, out=500)

    assert limit.value is None
    assert limit.allows(10_000, 10_000_000)


def test_it_begins_with_the_requests_it_was_taught_and_grows_when_they_are_used() -> None:
    limit = AdaptiveLimit(start=8)
    assert not limit.allows(8, 800)
    now = feed(limit, 0.0, 0.1, out=4)
    assert limit.requests() == 8
    feed(limit, now, 0.1, out=8, seconds=3.0)
    assert limit.value is not None
    assert limit.value > 8 * TOKENS


def test_a_queue_shrinks_it_to_what_was_out_and_below() -> None:
    limit = AdaptiveLimit()
    feed(limit, 0.0, 0.5, out=64, seconds=3.0)

    assert limit.value is not None
    assert TOKENS <= limit.value < 40 * TOKENS


def test_a_few_slow_requests_are_no_queue() -> None:
    limit = AdaptiveLimit()
    feed(limit, 0.0, 5.0, out=MIN_CROWD - 1, seconds=10.0)

    assert limit.value is None


def test_it_never_falls_below_one_request() -> None:
    limit = AdaptiveLimit()
    for second in range(120):
        feed(limit, float(second), 60.0, out=max(round((limit.value or 640) / TOKENS), MIN_CROWD), seconds=1.0)
        limit._changed_at = -math.inf

    assert limit.requests() == max(1, limit.requests() or 0)
    assert limit.value is not None
    assert limit.value >= TOKENS


def test_requests_sent_before_the_last_change_do_not_count_again() -> None:
    limit = AdaptiveLimit()
    now = feed(limit, 0.0, 0.5, out=64, seconds=0.2)
    before = limit.value
    assert before is not None
    feed(limit, now, 20.0, out=64, seconds=2.0)

    assert limit.value == before


def test_it_does_not_grow_while_less_than_half_is_used() -> None:
    limit = AdaptiveLimit()
    now = feed(limit, 0.0, 0.5, out=64, seconds=0.2)
    before = limit.value
    feed(limit, now, 0.1, out=10, seconds=30.0)

    assert limit.value == before


def test_where_a_queue_began_it_comes_back_with_care_and_further_on_at_speed() -> None:
    limit = AdaptiveLimit()
    now = feed(limit, 0.0, 0.5, out=64, seconds=0.2)
    shrunk = limit.value
    assert shrunk is not None
    now = feed(limit, now, 0.1, out=64, seconds=2.0)
    assert limit.value is not None
    assert limit.value < 1.05 * shrunk
    feed(limit, now, 0.1, out=64, seconds=20.0)
    assert limit.value > 64 * TOKENS


def test_a_delay_of_a_heavier_lane_shrinks_and_never_grows() -> None:
    limit = AdaptiveLimit()
    limit.note_size(TOKENS)
    now = 0.0
    for _ in range(40):
        now += 0.02
        limit.note_delayed(now, 0.1, 0.1, 0.02, 20 * TOKENS)
    assert limit.value is None
    for _ in range(40):
        now += 0.02
        limit.note_delayed(now, 0.6, 0.1, 0.02, 20 * TOKENS)

    assert limit.value is not None
    assert limit.value < 20 * TOKENS
    assert limit.excess(20 * TOKENS) == pytest.approx(20 - limit.value / TOKENS)
