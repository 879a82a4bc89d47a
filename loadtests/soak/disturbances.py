"""What happens to a system in service: policies change, are bad, are read anew; upstreams and Redis are killed."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Final

from loadtests.harness.processes import Process
from loadtests.harness.redis_server import AppendOnlyRedis
from loadtests.harness.stack import Server

_PAUSE_S: Final = (1.0, 5.0)
_DOWN_S: Final = (0.2, 2.0)
_BAD_POLICIES: Final = ("", "{", '{"schema_version": 1, "deployments": []}', '{"schema_version": 1, "no_such_key": 1}')


class Disturbances:
    """Disturbs one part after the other until it is cancelled; `restore` leaves everything whole."""

    def __init__(
        self,
        gateway: Server,
        policy: Mapping[str, object],
        path: Path,
        redis: AppendOnlyRedis,
        start_upstream: Callable[[], Awaitable[Process]],
        rng: random.Random,
    ) -> None:
        """`policy` is in force and stands at `path`; `start_upstream` starts the one that is killed."""
        self._gateway = gateway
        self._policy = policy
        self._path = path
        self._redis = redis
        self._start_upstream = start_upstream
        self._rng = rng
        self._upstream: Process | None = None
        self.counts: Counter[str] = Counter()

    async def start(self) -> None:
        """Start what is killed later."""
        self._upstream = await self._start_upstream()

    async def run(self) -> None:
        """Disturb; ends by cancellation."""
        actions = (self._change_policy, self._spoil_policy, self._reload, self._kill_upstream, self._kill_redis)
        while True:
            await asyncio.sleep(self._rng.uniform(*_PAUSE_S))
            action = self._rng.choices(actions, (4, 2, 2, 3, 1))[0]
            self.counts[action.__name__.lstrip("_")] += 1
            await action()

    async def restore(self) -> None:
        """The first policy, a running upstream, a running Redis."""
        self._write(json.dumps(self._policy))
        await self._redis.kill()
        await self._redis.start()
        if self._upstream is not None and not self._upstream.is_running:
            self._upstream = await self._start_upstream()

    def _write(self, text: str) -> None:
        """In one step, as editors and configuration tools do."""
        fresh = self._path.with_suffix(".new")
        fresh.write_text(text)
        fresh.replace(self._path)

    async def _change_policy(self) -> None:
        changed = json.loads(json.dumps(self._policy))
        changed["routes"][0]["timeouts"]["total_ms"] = self._rng.randrange(20_000, 60_000)
        changed["deployments"][1]["limits"]["max_in_flight"] = self._rng.randrange(2, 32)
        if self._rng.random() < 0.5:
            changed["routes"][0]["cache"] = {"mode": "off"}
        self._write(json.dumps(changed))

    async def _spoil_policy(self) -> None:
        self._write(self._rng.choice(_BAD_POLICIES))
        await asyncio.sleep(self._rng.uniform(*_DOWN_S))
        await self._change_policy()

    async def _reload(self) -> None:
        os.kill(self._gateway.process.pid, signal.SIGHUP)

    async def _kill_upstream(self) -> None:
        assert self._upstream is not None
        await self._upstream.kill()
        await asyncio.sleep(self._rng.uniform(*_DOWN_S))
        self._upstream = await self._start_upstream()

    async def _kill_redis(self) -> None:
        await self._redis.kill()
        await asyncio.sleep(self._rng.uniform(*_DOWN_S))
        await self._redis.start()
