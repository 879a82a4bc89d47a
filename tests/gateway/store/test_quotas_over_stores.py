"""Limits are exact over processes, on every kind of store."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from uuid import uuid4

import pytest

from gateway.store.base import Store
from tests.gateway.store.quota_process import hammer, quotas_over
from tests.gateway.store.redis_server import RedisServer


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ("{requests_per_min: 120}", 120),
        ("{max_in_flight: 25}", 25),
        ("{requests_per_min: 900, tokens_per_min: 400, max_in_flight: 300}", 40),
    ],
)
async def test_three_who_share_a_store_let_in_exactly_the_limit(store: Store, limits: str, expected: int) -> None:
    tenant = f"t{uuid4().hex[:12]}"
    replicas = [quotas_over(store, tenant, limits, name) for name in "abc"]
    ticking = [asyncio.create_task(quotas.run()) for quotas in replicas]
    served = await asyncio.gather(*(hammer(quotas, tenant, 30) for quotas in replicas for _ in range(5)))
    for task in ticking:
        task.cancel()
    assert sum(served) == expected


async def test_three_real_processes_let_in_exactly_the_limit(redis_server: RedisServer) -> None:
    arguments = (redis_server.url, f"t{uuid4().hex[:12]}", "{requests_per_min: 500, max_in_flight: 450}", "200")
    command = (sys.executable, "-m", "tests.gateway.store.quota_process", *arguments)
    root = Path(__file__).parents[3]
    children = [
        await asyncio.create_subprocess_exec(*command, cwd=root, env=os.environ, stdout=asyncio.subprocess.PIPE)
        for _ in range(3)
    ]
    outputs = await asyncio.gather(*(child.communicate() for child in children))
    assert [child.returncode for child in children] == [0, 0, 0]
    assert sum(int(out) for out, _ in outputs) == 450
