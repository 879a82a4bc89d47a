"""Lookups that would come too late are skipped and counted, and the response is indexed all the same."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

from gateway.cache.audit.lookup_times import ResponseOrigin
from tests.gateway.cache.similar_stack import cache_of, call, echo, keep, similar, similar_policy, stats_of, until
from tests.gateway.cache.test_semantic_stage import NEAR, SLOW_S, STORED
from tests.gateway.scripted import Wire, chunk
from tests.gateway.stack import Stack


def note_times(stack: Stack, *, lookup_s: float, response_s: float, stream: bool = False) -> None:
    """Have the gateway know these times of the route's only deployments."""
    answers = stack.gateway._cache
    times, now = answers.route_stats.times, answers.similar._clock()
    for _ in range(20):
        times.note_lookup(lookup_s, 0.0, 0, now)
        for deployment in ("", "small", "large"):
            times.note_response(ResponseOrigin("main", deployment, stream), response_s, now)


async def num_missed(stack: Stack, reason: str) -> float:
    """Return the number of misses for a reason."""
    metrics = (await stack.get("/metrics", admin=True)).body.decode()
    start = f'penstock_cache_lookups_total{{reason="{reason}",result="miss"}} '
    return sum(float(line.removeprefix(start)) for line in metrics.splitlines() if line.startswith(start))


async def test_a_lookup_that_would_be_late_is_skipped_and_its_response_indexed(tmp_path: Path) -> None:
    async with similar(tmp_path) as (stack, encoder):
        await keep(stack, STORED)
        note_times(stack, lookup_s=5.0, response_s=0.001)
        assert cache_of(await call(stack, NEAR)) == "miss"
        assert await num_missed(stack, "skipped") == 1
        await until(lambda: stack.gateway._cache.semantic.num_entries == 2)
        assert len(encoder.texts) == 2, "the response was encoded without a lookup"


async def test_where_hits_are_usual_a_lookup_that_would_be_late_comes_first(tmp_path: Path) -> None:
    async with similar(tmp_path) as (stack, _):
        await keep(stack, STORED)
        note_times(stack, lookup_s=0.2, response_s=0.1)
        order = stats_of(stack).order
        order.hit_ratio, order.saved_s, order.answer_s = 0.9, 0.1, 0.4
        assert cache_of(await call(stack, NEAR)) == "hit-semantic"
        assert len(stack.small.received) == 1, "the deployment was not called"


async def test_at_a_deployment_with_a_price_a_late_lookup_comes_first_though_hits_are_rare(tmp_path: Path) -> None:
    for price, expected in (("", "miss"), (" cost_per_mtok: {prompt: 0.5, completion: 2.0},", "hit-semantic")):
        folder = tmp_path / expected
        folder.mkdir()
        policy, num = re.subn(r"(\{id: (?:small|large),)", rf"\1{price}", similar_policy(folder))
        assert num == 2
        async with similar(folder, policy=policy) as (stack, _):
            await keep(stack, STORED)
            note_times(stack, lookup_s=0.05, response_s=0.001)
            order = stats_of(stack).order
            order.hit_ratio, order.saved_s, order.answer_s = 0.02, 0.06, 0.06
            assert cache_of(await call(stack, NEAR)) == expected


async def test_lookups_begin_again_by_themselves_once_the_upstream_is_slow_again(tmp_path: Path) -> None:
    async with similar(tmp_path) as (stack, _):
        await keep(stack, STORED)
        note_times(stack, lookup_s=0.05, response_s=0.001)
        times, now = stack.gateway._cache.route_stats.times, stack.gateway._cache.similar._clock()
        source = ResponseOrigin("main", "", False)
        assert not times.may_begin(source, 0, now)
        num_slow = 0
        while not times.may_begin(source, 0, now):
            times.note_response(source, 2.0, now)
            num_slow += 1
        assert num_slow <= 20, "slow responses replace the fast ones"


async def test_a_lookup_in_time_begins_and_the_upstreams_time_is_noted(tmp_path: Path) -> None:
    async with similar(tmp_path) as (stack, _):
        await keep(stack, STORED)
        note_times(stack, lookup_s=0.001, response_s=1.0)
        stack.small.otherwise = echo(SLOW_S)
        assert cache_of(await call(stack, NEAR)) == "hit-semantic"
        stack.small.otherwise = echo(0.05)
        assert cache_of(await call(stack, "How do I prune an apple tree?")) == "miss"
        assert stats_of(stack).order.saved_s >= 0.05 * 0.05, "a moving average of all misses"


async def test_a_lookup_that_ends_after_the_response_is_late(tmp_path: Path) -> None:
    async with similar(tmp_path) as (stack, encoder):
        await keep(stack, STORED)
        before, may_run = await num_missed(stack, "late"), encoder.hold()
        assert cache_of(await call(stack, NEAR)) == "miss"
        may_run.set()
        await until(lambda: stack.gateway._cache.semantic.num_entries == 2)
        assert await num_missed(stack, "late") == before + 1


async def test_a_stream_is_held_back_for_a_lookup_where_hits_are_frequent(tmp_path: Path) -> None:
    async def streams(wire: Wire) -> None:
        await asyncio.sleep(0.5)
        await wire.start_stream()
        for data in (chunk("Press reset."), chunk(finish="stop"), b"[DONE]"):
            await wire.event(data)
        await wire.end()

    async with similar(tmp_path) as (stack, encoder):
        await keep(stack, STORED)
        note_times(stack, lookup_s=0.6, response_s=0.5, stream=True)
        order = stats_of(stack).order
        order.hit_ratio, order.lookup_s, order.saved_s = 0.3, 0.6, 0.5
        stack.small.otherwise, may_run = streams, encoder.hold()
        task = asyncio.create_task(call(stack, NEAR, stream=True))
        await asyncio.wait_for(encoder.has_begun.wait(), 60)
        await asyncio.sleep(0.6)  # the first byte has come
        may_run.set()
        assert cache_of(await task) == "hit-semantic"


async def test_where_hits_are_rare_no_stream_is_held_back(tmp_path: Path) -> None:
    async with similar(tmp_path) as (stack, _):
        await keep(stack, STORED)
        note_times(stack, lookup_s=0.6, response_s=0.5, stream=True)
        assert not stats_of(stack).order.holds(1.0)
        await call(stack, NEAR, stream=True)
        assert await num_missed(stack, "skipped") == 1
