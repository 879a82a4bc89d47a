"""The store in trouble while similar answers are on; rows of the list of faults are named."""

from __future__ import annotations

import asyncio
import random
import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest

from gateway.app.response_cache import INDEX_FILE
from gateway.cache.index.snapshot import save_vectors
from gateway.cache.index.vector_index import VectorIndex
from tests.gateway.cache.similar_stack import (
    cache_of,
    call,
    completion,
    echo,
    keep,
    question,
    similar,
    similar_policy,
    until,
)
from tests.gateway.quota_policy import key_of
from tests.gateway.scripted import Wire
from tests.gateway.stack import Reply, Stack, encode
from tests.gateway.store.redis_server import RedisServer
from tests.support.fault_proxy import FaultProxy, Toxics

STORED = "How do I reset the password of a mailbox?"
NEAR = "How do I reset the password of a big mailbox?"
OTHER = "Where is the button number 3 of the machine?"
NEAR_OTHER = "Where is the big button number 3 of the machine?"
SLOW_S = 5.0
"""Of the store; whoever answers sooner has not waited for it."""
TENANTS = tuple(f"tenant{number}" for number in range(6))
ANSWER_S = 0.2
"""Of a deployment, for tests with many requests at once."""


@asynccontextmanager
async def redis_behind_proxy(folder: Path) -> AsyncIterator[tuple[RedisServer, FaultProxy]]:
    path = folder / "r.sock"
    server = RedisServer(folder / "redis", f"unixsocket {path}").start()
    try:
        async with FaultProxy(path) as proxy:
            yield server, proxy
    finally:
        server.kill()


@asynccontextmanager
async def replica(folder: Path, name: str, url: str, policy: str | None = None) -> AsyncIterator[Stack]:
    own = folder / name
    own.mkdir(exist_ok=True)
    async with similar(own, policy=policy, settings={"store.address": url}) as (stack, _):
        yield stack


def url_of(proxy: FaultProxy) -> str:
    return f"redis://127.0.0.1:{proxy.port}/0"


async def until_found(stack: Stack, count: int) -> None:
    """Until similar questions may find so many."""
    await until(lambda: stack.gateway._cache.semantic.num_entries == count)


async def until_notified(stack: Stack) -> None:
    sharing = stack.gateway._stores.sharing
    assert sharing is not None
    await until(lambda: not sharing._queue.num_waiting and sharing._queue._versions)


async def serves(stack: Stack, stored: str, near: str) -> None:
    """Misses, exact and similar hits, none of which waits for the store."""
    stack.small.otherwise = echo()
    began = time.monotonic()
    await keep(stack, stored)
    assert cache_of(await call(stack, stored)) == "hit-exact"
    stack.small.otherwise = echo(10 * SLOW_S)
    assert cache_of(await call(stack, near)) == "hit-semantic"
    assert time.monotonic() - began < SLOW_S


@pytest.mark.parametrize(
    "toxics",
    [Toxics(latency_s=SLOW_S), Toxics(is_black_hole=True), Toxics(is_frozen=True), Toxics(resets_on_request=True)],
    ids=["slow", "black hole", "frozen", "reset"],
)
async def test_a_store_that_hangs_costs_similar_answers_nothing(tmp_path: Path, toxics: Toxics) -> None:
    """Row 31."""
    async with redis_behind_proxy(tmp_path) as (server, proxy), replica(tmp_path, "a", url_of(proxy)) as one:
        await keep(one, STORED)
        await until_notified(one)
        proxy.toxics = toxics
        await serves(one, OTHER, NEAR_OTHER)
        proxy.toxics = Toxics()
        async with replica(tmp_path, "b", server.url) as other:
            await until_found(other, 2)
            other.small.otherwise = echo(10 * SLOW_S)
            assert cache_of(await call(other, NEAR)) == "hit-semantic", "what was kept meanwhile was told later"


@pytest.mark.parametrize(
    "settings",
    [{"maxmemory": "1mb"}, {"maxmemory": "1mb", "maxmemory-policy": "allkeys-lru"}, {"min-replicas-to-write": "1"}],
    ids=["full", "evicting", "read-only"],
)
async def test_a_redis_that_takes_no_writes_costs_similar_answers_nothing(
    tmp_path: Path, settings: dict[str, str]
) -> None:
    """Row 33."""
    async with redis_behind_proxy(tmp_path) as (server, _), replica(tmp_path, "a", server.url) as one:
        for name, value in settings.items():
            server.admin.config_set(name, value)
        await serves(one, STORED, NEAR)
        server.kill()  # row 30
        await serves(one, OTHER, NEAR_OTHER)


def is_store_up(stack: Stack) -> bool:
    store = stack.gateway._stores._entries
    assert store is not None
    return store.is_up


def policy_of_tenants(folder: Path) -> str:
    keys = ((tenant, sha256(f"sk-{tenant}".encode()).hexdigest()) for tenant in TENANTS)
    lines = [f'  - {{id: {tenant}, keys: [{{id: k, sha256: "{digest}"}}]}}' for tenant, digest in keys]
    return "\n".join([similar_policy(folder, permits=64, max_queue=200).rstrip(), "tenants:", *lines, ""])


async def names_tenant(wire: Wire) -> None:
    """`user` is a word to a deployment at which the cache does not look.

    The answer takes long enough for a lookup on a busy machine: where deployments are faster, lookups are skipped.
    """
    await asyncio.sleep(ANSWER_S)
    await wire.answer(completion(f"For {wire.request.json['user']} only."))


async def send_and_perhaps_leave(stack: Stack, rng: random.Random) -> bool:
    """Call as any of the tenants; whether the answer, which must be its own, was waited for."""
    tenant, number = rng.choice(TENANTS), rng.randrange(8)
    size = rng.choice(("", "small ", "big ", "red "))
    requested = question(f"Where is the {size}button number {number} of the machine {number}{number}?", user=tenant)
    reader, writer = await stack.connect()
    writer.write(encode(requested, headers=key_of(tenant)))
    if rng.random() < 0.5:
        await asyncio.sleep(rng.choice((0, 0.001, 0.002, 0.004, ANSWER_S / 2, ANSWER_S)))
        writer.transport.abort()
        return False
    reply = Reply(await asyncio.wait_for(reader.read(), 60))
    writer.close()
    assert reply.status == 200
    assert f"For {tenant} only." in reply.body.decode()
    return True


async def test_whoever_leaves_and_whatever_the_store_breaks_off_every_tenant_gets_its_own(tmp_path: Path) -> None:
    """Row 32: requests are cancelled at any moment, and commands by timeouts; canaries show whose an answer is."""
    rng = random.Random(5)
    async with redis_behind_proxy(tmp_path) as (_, proxy):
        (tmp_path / "a").mkdir()
        (tmp_path / "b").mkdir()
        async with (
            replica(tmp_path, "a", url_of(proxy), policy_of_tenants(tmp_path / "a")) as one,
            replica(tmp_path, "b", url_of(proxy), policy_of_tenants(tmp_path / "b")) as other,
        ):
            for stack in (one, other):
                stack.small.otherwise = stack.large.otherwise = names_tenant
            answered = 0
            for number in range(16):
                proxy.toxics = Toxics(is_frozen=number % 8 == 5)
                stacks = [rng.choice((one, other)) for _ in range(16)]
                answered += sum(await asyncio.gather(*(send_and_perhaps_leave(stack, rng) for stack in stacks)))
                if proxy.toxics.is_frozen:
                    await until(lambda: not (is_store_up(one) or is_store_up(other)))
            proxy.toxics = Toxics()
            assert answered > 64
            for stack in (one, other):
                await until_notified(stack)
                entries = list(stack.gateway._cache.exact.tier)
                assert {entry.tenant for entry in entries} == set(TENANTS)
                for entry in entries:
                    assert re.findall(rb"For (\w+) only", entry.answer) == [entry.tenant.encode()]
            assert "hit-semantic" in {line["cache"].replace("_", "-") for line in one.lines() + other.lines()}


async def test_a_snapshot_of_other_dimensions_means_an_empty_index(tmp_path: Path) -> None:
    """Row 35."""
    url = f"embedded:{tmp_path / 'shared.sqlite3'}"
    (tmp_path / "a").mkdir()
    foreign = VectorIndex(16, "words")
    foreign.add(b"c", b"e", np.full(16, 0.25, np.float32))
    save_vectors(foreign, tmp_path / "a" / INDEX_FILE)
    async with replica(tmp_path, "a", url) as one:
        assert (await one.get("/readyz")).status == 200
        assert len(one.lines("index_dropped")) == 1
        await serves(one, STORED, NEAR)
