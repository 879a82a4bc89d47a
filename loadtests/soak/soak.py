"""Whether a system in service for long leaves anything behind: memory, descriptors, tasks, permits, KV blocks.

A real engine with a bundled model, an upstream that is killed again and again, a Redis that is restarted, and one
gateway under clients of every kind. First everything is used once, so that caches, threads and connections are there;
then the idle system is measured, loaded for the given time, and measured again. Memory is sampled once a second; its
slope is that of the second half, with a 95 % interval.
"""

from __future__ import annotations

import argparse
import asyncio
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from loadtests.clients.http_client import clock
from loadtests.harness.card import Card, Value
from loadtests.harness.processes import Process, ProcessFailed, Workbench, raise_fd_limit
from loadtests.harness.redis_server import AppendOnlyRedis
from loadtests.harness.stack import start_engine, start_gateway_with
from loadtests.soak.census import Footing, MemoryRecord, footing, held, num_zombies
from loadtests.soak.disturbances import Disturbances
from loadtests.soak.mixed_load import MixedLoad

_WARM_UP_S: Final = 10.0
_SETTLE_S: Final = 30.0
_IDLE_S: Final = 6.0
"""Longer than idle connections to upstreams are kept, and than a probe's interval."""
_CACHE_MB: Final = 8
"""Small, so that the response cache is full long before the second half: after about 55,000 requests of this load."""
_READY_S: Final = 60.0
_MAX_REDIS_CONNECTIONS: Final = 96
"""Sizes of the gateway's pools of connections to Redis together."""
_MEBIBYTE: Final = 1024 * 1024
_TRUSTED_S: Final = 1800.0
"""Shorter runs are too short for a slope to fail on: caches are still filling."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of this bench."""
    parser.add_argument("--seconds", type=float, default=180.0, help="of load (default %(default)s)")
    parser.add_argument("--clients", type=int, default=12, help="at once (default %(default)s)")
    parser.add_argument("--model", type=Path, default=Path("engine/bundled/models/penstock-small"), help="folder")
    parser.add_argument(
        "--max-slope", type=float, default=4.0, help="MiB an hour that memory may grow (default %(default)s)"
    )
    parser.add_argument("--seed", type=int, default=1, help="of all choices (default %(default)s)")


def _policy(engine_url: str, scripted_url: str) -> dict[str, object]:
    return {
        "schema_version": 1,
        "deployments": [
            {"id": "engine", "url": engine_url, "model": "bench", "limits": {"max_in_flight": 16}},
            {"id": "scripted", "url": scripted_url, "model": "scripted", "limits": {"max_in_flight": 16}},
            {"id": "encoder", "url": "builtin:encoder", "model": "encoder"},
        ],
        "routes": [
            {"id": "main", "match": {"models": ["auto"]}, "cache": {"mode": "exact", "scope": "shared", "ttl_s": 30},
             "select": {"policy": "least_in_flight", "candidates": ["scripted", "engine"]},
             "timeouts": {"total_ms": 30_000}},
            {"id": "engine", "match": {"models": ["engine"]}, "select": {"candidates": ["engine"]}},
        ],
    }  # fmt: skip


class _Soak:
    """The parts of one run."""

    def __init__(self, bench: Workbench, options: argparse.Namespace, redis: AppendOnlyRedis) -> None:
        self._bench = bench
        self._options = options
        self._redis = redis
        self._rng = random.Random(options.seed)
        self._num_started = 0

    async def run(self) -> Card:
        """Start, warm up, load, settle, compare."""
        flags = ("--max-num-seqs", "8", "--num-threads", "1", "--log-level", "warning")
        self._engine = await start_engine(self._bench, self._options.model.resolve(), *flags)
        scripted = str(self._bench.folder / "scripted.sock")
        policy = _policy(self._engine.address.url, f"unix:{scripted}")
        settings: dict[str, object] = {"store.address": self._redis.url, "cache.shared": True, "policy.poll_s": 0.25}
        settings["cache.max_mb"] = _CACHE_MB
        upstream = await self._start_upstream()
        self._gateway = await start_gateway_with(self._bench, policy, settings=settings)
        await upstream.stop()
        disturbances = Disturbances(
            self._gateway, policy, self._bench.folder / "policy.yaml", self._redis, self._start_upstream, self._rng
        )
        await disturbances.start()
        self._loads = [MixedLoad(self._gateway, self._rng) for _ in range(2)]
        await self._load(self._loads[0], disturbances, _WARM_UP_S)
        before = await self._settled(disturbances)
        records = [MemoryRecord(self._gateway.process), MemoryRecord(self._engine.process)]
        sampling = [asyncio.ensure_future(record.run()) for record in records]
        began_at = clock()
        await self._load(self._loads[1], disturbances, self._options.seconds)
        loaded_s = clock() - began_at
        for task in sampling:
            task.cancel()
        after = await self._settled(disturbances)
        num_redis = await self._redis.num_clients()
        left = {name: value for name, value in self._left.items() if value} | {
            f"{name}_added": value for name, value in before.added(after).items() if value
        }
        if num_redis > _MAX_REDIS_CONNECTIONS:
            left["redis_connections"] = num_redis
        if num_zombies():
            left["zombies"] = num_zombies()
        return self._card(records, disturbances, left, loaded_s)

    async def _start_upstream(self) -> Process:
        """The scripted upstream, on the same socket again."""
        self._num_started += 1
        path = self._bench.folder / "scripted.sock"
        path.unlink(missing_ok=True)
        process = await self._bench.start(
            f"upstream{self._num_started}",
            "loadtests.engines.scripted_upstream",
            ["--listen", str(path), "--chunks-per-s", "200"],
        )

        async def is_listening() -> bool:
            return path.exists()

        await process.wait_until(is_listening, _READY_S)
        return process

    async def _load(self, load: MixedLoad, disturbances: Disturbances, seconds: float) -> None:
        clients = asyncio.ensure_future(load.run(self._options.clients))
        trouble = asyncio.ensure_future(disturbances.run())
        stop_at = clock() + seconds
        while clock() < stop_at and not trouble.done():
            await asyncio.sleep(0.2)
            for server in (self._gateway, self._engine):
                if not server.process.is_running:
                    raise ProcessFailed(f"{server.process.name} ended:\n{server.process.tail()}")
        load.end()
        trouble.cancel()
        outcome = (await asyncio.gather(trouble, return_exceptions=True))[0]
        if isinstance(outcome, Exception):
            raise outcome
        await disturbances.restore()
        await clients

    async def _settled(self, disturbances: Disturbances) -> Footing:
        """The footing once nothing is under way; what still is after some patience is left in `_left`."""
        deadline = clock() + _SETTLE_S
        while True:
            self._left: Mapping[str, float] = await held(self._gateway, self._engine)
            if not any(self._left.values()) or clock() > deadline:
                break
            await asyncio.sleep(0.2)
        await asyncio.sleep(_IDLE_S)
        return await footing(self._gateway, self._engine, _IDLE_S)

    def _card(
        self, records: list[MemoryRecord], disturbances: Disturbances, left: dict[str, float], loaded_s: float
    ) -> Card:
        load, options = self._loads[1], self._options
        slopes = [record.later_slope() for record in records]
        results: dict[str, Value] = {
            "seconds": loaded_s,
            "requests": load.num_requests,
            "left_behind": len(left),
            **{f"left_{name}": value for name, value in left.items()},
            "wrong_responses": len(load.problems),
            "disturbances": sum(disturbances.counts.values()),
        }
        for name, record, trend in zip(("gateway", "engine"), records, slopes, strict=True):
            results[f"{name}_rss_start_mib"] = record.samples[0][1] / _MEBIBYTE
            results[f"{name}_rss_end_mib"] = record.samples[-1][1] / _MEBIBYTE
            results[f"{name}_slope_mib_per_h"] = trend.mib_per_h
            results[f"{name}_slope_low"] = trend.low
            results[f"{name}_slope_high"] = trend.high
        failed = None
        if left:
            failed = "left behind: " + ", ".join(f"{value:g} {name}" for name, value in left.items())
        elif load.problems:
            failed = f"{len(load.problems)} wrong responses, first {load.problems[0]}"
        elif loaded_s >= _TRUSTED_S and any(
            trend.low is not None and trend.low > options.max_slope for trend in slopes
        ):
            failed = f"memory grows by more than {options.max_slope:g} MiB an hour"
        return Card(
            bench="soak",
            arrivals=f"closed loop, {options.clients} clients of every kind, seed {options.seed}",
            results=results,
            notes=(
                "responses: " + ", ".join(f"{count} {name}" for name, count in sorted(load.statuses.items())),
                "disturbed: " + ", ".join(f"{count} {name}" for name, count in sorted(disturbances.counts.items())),
                *load.problems[:5],
            ),
            failed=failed,
        )


async def run(options: argparse.Namespace) -> Card:
    """Measure."""
    raise_fd_limit()
    async with Workbench() as bench, AppendOnlyRedis(bench.folder / "redis") as redis:
        return await _Soak(bench, options, redis).run()
