"""Bytes and time of what a client sends, evaluated without acting on it."""

from __future__ import annotations

from gateway.errors import GatewayError
from gateway.http.limits import BodyLimits, ConnectionLimits, EdgeLimits, HeaderLimits
from gateway.http.meter import InputMeter, MeterState

LIMITS = EdgeLimits(
    connections=ConnectionLimits(idle_keep_alive_s=75.0, linger_s=2.0),
    header=HeaderLimits(timeout_s=10.0, max_bytes=1000, max_fields=3),
    body=BodyLimits(timeout_s=60.0, grace_s=5.0, min_bytes_per_s=100, max_bytes=5000),
)


def in_head(num_bytes: int = 10) -> InputMeter:
    """A head that began at 0 and is not whole."""
    meter = InputMeter(LIMITS, 0.0)
    meter.begin_read(num_bytes)
    meter.begin_head()
    assert meter.end_read(0.0, target_bytes=0) is None
    return meter


def in_body(num_bytes: int = 0) -> InputMeter:
    """A body of which so much came at 0."""
    meter = InputMeter(LIMITS, 0.0)
    meter.begin_read(100 + num_bytes)
    meter.begin_head()
    meter.begin_body()
    meter.count_body(num_bytes)
    assert meter.end_read(0.0, target_bytes=0) is None
    return meter


def status(error: GatewayError | None) -> int | None:
    return None if error is None else error.status


def test_a_head_in_pieces_is_counted_over_all_of_them() -> None:
    meter = in_head(600)
    assert meter.head_bytes == 600
    meter.begin_read(400)
    assert meter.end_read(0.1, target_bytes=0) is None
    meter.begin_read(1)
    assert status(meter.end_read(0.2, target_bytes=0)) == 431


def test_the_target_has_a_limit_of_its_own() -> None:
    meter = in_head(600)
    meter.begin_read(900)
    assert meter.end_read(0.1, target_bytes=800) is None


def test_a_head_must_be_whole_in_time_however_it_comes() -> None:
    meter = in_head()
    assert meter.next_look(3.0) == 10.0
    assert meter.overdue(9.9, is_held_up=False) is None
    assert status(meter.overdue(10.0, is_held_up=False)) == 408


def test_a_body_may_be_slow_for_a_moment_and_must_then_keep_up() -> None:
    meter = in_body(100)
    assert meter.overdue(4.9, is_held_up=False) is None
    assert status(meter.overdue(5.0, is_held_up=False)) == 408
    meter.count_body(900)
    assert meter.overdue(10.0, is_held_up=False) is None
    assert status(meter.overdue(60.0, is_held_up=False)) == 408, "whatever its pace"


def test_a_client_that_is_made_to_wait_is_not_slow() -> None:
    meter = in_body()
    assert meter.overdue(50.0, is_held_up=True) is None
    assert meter.overdue(54.0, is_held_up=False) is None
    assert status(meter.overdue(55.0, is_held_up=False)) == 408


def test_a_body_has_a_size_and_its_trailers_a_number() -> None:
    meter = in_body(5000)
    assert status(meter.count_body(1)) == 413
    assert [status(meter.count_trailer()) for _ in range(4)] == [None, None, None, 431]


def test_framing_may_not_outweigh_what_it_carries() -> None:
    meter = in_body(1)
    meter.begin_read(800)
    meter.count_body(1)
    assert meter.end_read(0.1, target_bytes=0) is None
    meter.begin_read(800)
    assert status(meter.end_read(0.2, target_bytes=0)) == 400


def test_the_first_request_must_come_sooner_than_the_next_and_a_linger_is_short() -> None:
    meter = InputMeter(LIMITS, 0.0)
    assert meter.idle_deadline() == 10.0
    meter.begin_wait(20.0)
    assert meter.idle_deadline() == 95.0
    meter.begin_linger(30.0)
    assert (meter.idle_deadline(), meter.reading) == (32.0, MeterState.DEAF)
