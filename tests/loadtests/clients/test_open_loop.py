from __future__ import annotations

import random

import pytest

from loadtests.clients.closed_loop import run_closed_loop
from loadtests.clients.http_client import Address, Exchange, LoadConnection, clock, fetch, request_bytes
from loadtests.clients.open_loop import Pacer, poisson_arrivals, run_open_loop
from loadtests.harness.measures import percentile
from tests.loadtests.conftest import ServeStalling

GET = request_bytes("GET", "/")
STALL_S = 0.4


async def test_a_server_that_stands_still_is_seen_by_every_request_that_was_due(serve_stalling: ServeStalling) -> None:
    address = await serve_stalling(0.2, STALL_S)
    result = await run_open_loop(address, GET, [number / 200 for number in range(200)])
    assert (len(result.latencies_s), result.num_failed) == (200, 0)
    # 40 % of the schedule falls into the stall, so the 80th percentile is about half of it.
    assert percentile(result.latencies_s, 0.8) > STALL_S * 0.3
    assert percentile(result.latencies_s, 1.0) > STALL_S * 0.8


async def test_a_closed_loop_omits_what_it_did_not_call(serve_stalling: ServeStalling) -> None:
    address = await serve_stalling(0.2, STALL_S)
    result = await run_closed_loop(address, GET, num_connections=1, seconds=1.0)
    assert 1 <= sum(latency > STALL_S / 2 for latency in result.latencies_s) <= 3
    assert percentile(result.latencies_s, 0.8) < STALL_S * 0.2


async def test_latency_counts_from_the_schedule_even_when_connections_are_short(serve_stalling: ServeStalling) -> None:
    address = await serve_stalling(0.0, STALL_S)
    result = await run_open_loop(address, GET, [0.0, 0.0, 0.0], warm=1, max_connections=1)
    assert len(result.latencies_s) == 3
    assert min(result.latencies_s) > STALL_S * 0.7
    assert max(result.lateness_s) > STALL_S * 0.7


async def test_what_is_never_answered_has_failed(serve_stalling: ServeStalling) -> None:
    address = await serve_stalling(0.0, 1.0)
    result = await run_open_loop(address, GET, [0.0, 0.0], drain_s=0.05)
    assert (result.latencies_s, result.num_failed) == ([], 2)


async def test_a_server_that_is_not_there_is_failure_not_a_crash() -> None:
    result = await run_open_loop(Address(path="/nowhere.sock"), GET, [0.0, 0.001], warm=0)
    assert (result.latencies_s, result.num_failed) == ([], 2)


def test_poisson_arrivals_have_their_rate_and_are_repeatable() -> None:
    arrivals = list(poisson_arrivals(1000.0, 10.0, random.Random(1)))
    assert len(arrivals) == pytest.approx(10_000, rel=0.05)
    assert arrivals == sorted(arrivals)
    assert arrivals == list(poisson_arrivals(1000.0, 10.0, random.Random(1)))


async def test_the_pacer_is_never_early() -> None:
    with Pacer() as pacer:
        for delay_s in (0.0, 0.0005, 0.002, -1.0):
            at = clock() + delay_s
            await pacer.until(at)
            assert clock() >= at - 0.0001


async def test_a_closed_loop_stops_at_its_count(serve_stalling: ServeStalling) -> None:
    address = await serve_stalling(0.0, 0.0)
    result = await run_closed_loop(address, GET, num_connections=4, num_requests=50)
    assert (len(result.latencies_s), result.num_failed) == (50, 0)


async def test_fetches_one_page(serve_stalling: ServeStalling) -> None:
    assert await fetch(await serve_stalling(0.0, 0.0), "/") == (200, "ok")


async def test_a_connection_that_breaks_ends_its_exchange(serve_stalling: ServeStalling) -> None:
    connection = await LoadConnection.open(await serve_stalling(0.0, 5.0))
    ended: list[Exchange] = []
    connection.start(GET, ended.append)
    connection.close()
    connection.connection_lost(None)
    assert [exchange.error for exchange in ended] == ["connection closed"]
