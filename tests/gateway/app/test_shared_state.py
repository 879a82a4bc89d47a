"""The shared store in trouble while requests come: none of them fails for it, and none waits for it for long."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import statistics
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from gateway.store.base import StoreUnavailable
from tests.gateway.quota_policy import key_of, quota_policy
from tests.gateway.scripted import COMPLETION, ScriptedUpstream, complete, hang
from tests.gateway.stack import Reply, Stack, chat, encode, running
from tests.gateway.store.redis_server import RedisServer

MAX_PENALTY_MS = 5.0


@pytest.fixture
def tenant() -> str:
    return f"t{uuid4().hex[:12]}"


@pytest.fixture
async def stack(tmp_path: Path, server: RedisServer, tenant: str) -> AsyncIterator[Stack]:
    """A gateway on that Redis. The tenant is far from its limits; `strict` would rather be refused than unlimited."""
    limits = "requests_per_min: 100000, tokens_per_min: 90000000, max_in_flight: 500"
    policy = quota_policy(
        tmp_path,
        {
            tenant: f"{{{limits}}}",
            f"{tenant}-strict": f"{{{limits}, on_store_loss: refuse}}",
            "few": "{requests_per_min: 8}",
        },
    )
    async with running(tmp_path, policy=policy, settings={"store.address": server.url}) as found:
        yield found


def admit_ms(reply: Reply) -> float:
    """Time before routing, of which the quota is a part."""
    (found,) = re.findall(r"admit;dur=([0-9.]+)", reply.headers["server-timing"])
    return float(found)


async def serve(stack: Stack, tenant: str, count: int = 40) -> list[float]:
    """All of these must be answered; how long each was in admission."""
    replies = [await stack.call(chat(), headers=key_of(tenant)) for _ in range(count)]
    assert {reply.status for reply in replies} == {200}
    return [admit_ms(reply) for reply in replies]


async def until_store_is(stack: Stack, *, up: bool) -> None:
    async with asyncio.timeout(20):
        while await stack.metric("penstock_store_up") != float(up):
            await asyncio.sleep(0.02)


async def test_a_killed_redis_costs_no_request_and_no_time(stack: Stack, server: RedisServer, tenant: str) -> None:
    await serve(stack, tenant)
    assert await stack.metric("penstock_store_up") == 1.0
    server.kill()
    took = await serve(stack, tenant, 100)
    assert sorted(took)[94] <= MAX_PENALTY_MS
    await until_store_is(stack, up=False)
    (lost,) = stack.lines("store_lost")
    assert lost["level"] == "warning"
    server.start()
    await until_store_is(stack, up=True)
    await serve(stack, tenant)


async def test_the_connection_that_finds_the_store_again_has_the_others_tried(
    stack: Stack, server: RedisServer, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stores = stack.gateway._stores
    side = (stores.control, stores._entries)
    await serve(stack, tenant, 1)
    server.kill()
    for store in side:
        with pytest.raises(StoreUnavailable):
            await store.get("s", "k")
    await serve(stack, tenant, 4)
    await until_store_is(stack, up=False)
    monkeypatch.setattr("gateway.store.breaker.MAX_PAUSE_S", 300.0)
    for store in side:
        for _ in range(12):
            store._breaker("").note_trial(store._clock())
    server.start()
    async with asyncio.timeout(60):  # by their own pauses they would be tried minutes later
        while not all(store.is_up for store in (stores.limits, *side)):
            await asyncio.sleep(0.02)


async def test_a_frozen_redis_costs_no_request_and_next_to_no_time(
    stack: Stack, server: RedisServer, tenant: str
) -> None:
    await serve(stack, tenant)
    server.freeze()
    took = await serve(stack, tenant, 100)
    assert sorted(took)[94] <= MAX_PENALTY_MS
    assert max(took) < 500.0  # whoever needed the store at the very moment waited for its timeout, and only once
    await until_store_is(stack, up=False)
    server.thaw()
    await until_store_is(stack, up=True)
    await serve(stack, tenant)


@pytest.mark.parametrize(
    "settings",
    [{"maxmemory": "1mb"}, {"maxmemory": "1mb", "maxmemory-policy": "allkeys-lru"}, {"min-replicas-to-write": "1"}],
    ids=["full", "evicting", "read-only"],
)
async def test_a_redis_that_takes_no_writes_costs_no_request(
    stack: Stack, server: RedisServer, tenant: str, settings: dict[str, str]
) -> None:
    await serve(stack, tenant, 5)
    for name, value in settings.items():
        server.admin.config_set(name, value)
    for _ in range(8):
        await serve(stack, tenant, 10)
        await asyncio.sleep(0.15)
    strict = await stack.call(chat(), headers=key_of(f"{tenant}-strict"))
    assert strict.status in (200, 429)  # never a failure of ours


async def test_a_tenant_that_requested_it_is_refused_while_the_store_is_lost(
    stack: Stack, server: RedisServer, tenant: str
) -> None:
    strict = key_of(f"{tenant}-strict")
    assert (await stack.call(chat(), headers=strict)).status == 200
    server.kill()
    await asyncio.sleep(1.2)  # what was drawn before is used up by time
    refused = await stack.call(chat(), headers=strict)
    assert (refused.status, refused.error["code"]) == (429, "rate_limit_exceeded")
    assert "cannot be checked" in refused.error["message"]
    assert refused.headers["x-should-retry"] == "true"
    server.start()
    await until_store_is(stack, up=True)
    assert (await stack.call(chat(), headers=strict)).status == 200


async def test_a_gateway_that_starts_without_its_store_serves(tmp_path: Path, server: RedisServer, tenant: str) -> None:
    server.kill()
    policy = quota_policy(tmp_path, {tenant: "{requests_per_min: 8}"})
    async with running(tmp_path, policy=policy, settings={"store.address": server.url}) as stack:
        replies = [await stack.call(chat(), headers=key_of(tenant)) for _ in range(10)]
        assert [reply.status for reply in replies] == [200] * 8 + [429] * 2  # alone, it holds to the limit itself
        server.start()
        await until_store_is(stack, up=True)
        await asyncio.sleep(0.4)
        assert (await stack.call(chat(), headers=key_of(tenant))).status == 429  # and given the store what was used


async def test_three_replicas_serve_exactly_the_limit(tmp_path: Path, server: RedisServer, tenant: str) -> None:
    limit = 150
    async with AsyncExitStack() as replicas:
        stacks = []
        for name in "abc":
            folder = tmp_path / name
            folder.mkdir()
            policy = quota_policy(folder, {tenant: f"{{requests_per_min: {limit}}}"}, permits=64, max_queue=500)
            settings = {"store.address": server.url, "store.timeout_s": 2.0}
            stacks.append(await replicas.enter_async_context(running(folder, policy=policy, settings=settings)))

        async def hammer(stack: Stack, count: int) -> list[int]:
            return [(await stack.call(chat(), headers=key_of(tenant))).status for _ in range(count)]

        statuses = await asyncio.gather(*(hammer(stack, 30) for stack in stacks for _ in range(3)))
        flat = [status for each in statuses for status in each]
        assert set(flat) == {200, 429}
        assert flat.count(200) == limit


async def test_an_absurd_usage_ends_no_sharing_and_locks_nobody_out(
    tmp_path: Path, server: RedisServer, tenant: str
) -> None:
    absurd = {"prompt_tokens": 10**30, "completion_tokens": 2**63, "total_tokens": 2**64}
    odd = json.dumps({**json.loads(COMPLETION), "usage": absurd}).encode()
    folders = [tmp_path / "one", tmp_path / "other"]
    for folder in folders:
        folder.mkdir()
    policy = quota_policy(folders[0], {tenant: "{budget: {tokens_per_day: 5000}}"}).replace(
        "match: {models: [solo]}", "match: {models: [solo]}\n    cache: {mode: exact, scope: shared}"
    )
    bodies = [chat("solo", temperature=0, max_tokens=20, messages=[{"role": "user", "content": text}]) for text in "ab"]
    async with AsyncExitStack() as both:
        settings = {"store.address": server.url}
        one, other = [
            await both.enter_async_context(running(folder, policy=policy, settings=settings)) for folder in folders
        ]
        one.small.scripts = [lambda wire: wire.answer(odd), complete]
        served = [await one.call(body, headers=key_of(tenant)) for body in bodies]
        assert [reply.status for reply in served] == [200, 200]
        async with asyncio.timeout(20):
            while await other.metric("penstock_cache_sharing_total", event="taken") < 2:
                await asyncio.sleep(0.05)
        for body in bodies:
            assert (await other.call(body, headers=key_of(tenant))).headers["x-penstock-cache"] == "hit-exact"
        feedback = {"request_id": served[1].headers["x-request-id"], "verdict": "wrong"}
        assert (await one.call(feedback, path="/v1/feedback", headers=key_of(tenant))).status == 200
        async with asyncio.timeout(20):
            while (await other.call(bodies[1], headers=key_of(tenant))).headers["x-penstock-cache"] == "hit-exact":
                await asyncio.sleep(0.05)
        for gateway in (one, other):
            assert await gateway.metric("penstock_background_failures_total") == 0


async def test_answers_of_cancelled_requests_reach_nobody_else(stack: Stack, tenant: str) -> None:
    async def one(index: int) -> None:
        reader, writer = await stack.connect()
        writer.write(encode(chat(), headers=key_of(tenant)))
        if index % 2:
            await asyncio.sleep(0.0005 * (index % 5))
            writer.transport.abort()
            return
        reply = Reply(await asyncio.wait_for(reader.read(), 10))
        writer.close()
        assert reply.status == 200
        assert reply.headers["x-ratelimit-limit-requests"] == "100000"

    for _ in range(10):
        await asyncio.gather(*(one(index) for index in range(20)))


async def test_a_killed_gateway_leaves_nothing_that_does_not_expire(
    tmp_path: Path, server: RedisServer, tenant: str
) -> None:
    limits = "{requests_per_min: 100, tokens_per_min: 90000, max_in_flight: 4, budget: {tokens_per_day: 900000}}"
    (tmp_path / "policy.yaml").write_text(quota_policy(tmp_path, {tenant: limits}))
    async with ScriptedUpstream(tmp_path / "small.sock", hang), ScriptedUpstream(tmp_path / "large.sock", hang):
        gateway = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "gateway", "gateway", "--policy", str(tmp_path / "policy.yaml")),
            *("--public-listen", f"unix:{tmp_path}/public.sock", "--admin-listen", f"unix:{tmp_path}/admin.sock"),
            *("--runtime-dir", str(tmp_path)),
            env={**os.environ, "PENSTOCK_STORE_ADDRESS": server.url},
            stderr=asyncio.subprocess.DEVNULL,
        )
        writers = [await _hanging_request(tmp_path / "public.sock", tenant) for _ in range(3)]
        held = f"penstock:{{quota.{tenant}}}:h:max_in_flight"
        async with asyncio.timeout(10):
            while sum(_units(server.admin.hgetall(held))) < 3:
                await asyncio.sleep(0.02)
        gateway.send_signal(signal.SIGKILL)
        await gateway.wait()
        for writer in writers:
            writer.close()
        left = {key.decode(): server.admin.pttl(key) for key in server.admin.keys("penstock:{quota.*")}
        assert len(left) == 5
        assert all(ttl > 0 for ttl in left.values()), left
        assert left[held] <= 10_000
        others = [ttl for key, ttl in left.items() if "per_min" in key]
        assert statistics.mean(others) <= 62_000


async def _hanging_request(path: Path, tenant: str) -> asyncio.StreamWriter:
    """Sent as soon as somebody listens there."""
    async with asyncio.timeout(20):
        while True:
            try:
                _, writer = await asyncio.open_unix_connection(str(path))
                break
            except (FileNotFoundError, ConnectionRefusedError):
                await asyncio.sleep(0.05)
    writer.write(encode(chat(), headers=key_of(tenant)))
    return writer


def _units(holders: Any) -> list[int]:
    return [int(value.partition(b":")[0]) for value in holders.values()]
