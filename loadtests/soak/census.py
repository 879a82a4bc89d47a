"""What processes hold: memory over time and its slope, and everything that must be back at the end."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Final

from loadtests.clients.engine_probe import read_load
from loadtests.clients.http_client import clock
from loadtests.harness.measures import slope
from loadtests.harness.process_usage import tree_fds, tree_rss_bytes, tree_threads
from loadtests.harness.processes import Process
from loadtests.harness.stack import Server, metric

_MEBIBYTE: Final = 1024 * 1024
_POOL_THREADS: Final = 24
"""Threads that pools of a fixed size may still start when they are first needed."""
_POOL_FILES: Final = 64
"""Connections that pools of a fixed size may hold more: idle ones, and those to a Redis that has died since."""
_NUM_BLOCKS: Final = 12
"""Parts of a run whose means the slope is fitted to: neighbouring samples are not independent, their means nearly."""
_T_QUANTILE: Final = 2.228
"""0.975 quantile of Student's t with `_NUM_BLOCKS - 2` degrees of freedom."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slope:
    """A trend and its 95 % interval, in MiB an hour."""

    mib_per_h: float
    low: float | None
    high: float | None
    """None where the samples are too few for an interval."""


def slope_of(samples: Sequence[tuple[float, float]]) -> Slope:
    """The trend of (seconds, bytes), by least squares over the means of equal parts."""
    size = len(samples) // _NUM_BLOCKS
    if size < 1:
        return Slope(mib_per_h=0.0, low=None, high=None)
    parts = [samples[index * size : (index + 1) * size] for index in range(_NUM_BLOCKS)]
    points = [(fmean(at for at, _ in part), fmean(value for _, value in part) / _MEBIBYTE) for part in parts]
    trend = slope(points)
    mean_x, mean_y = fmean(x for x, _ in points), fmean(y for _, y in points)
    residue = sum((y - mean_y - trend * (x - mean_x)) ** 2 for x, y in points) / (_NUM_BLOCKS - 2)
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    margin = _T_QUANTILE * math.sqrt(residue / spread)
    return Slope(mib_per_h=trend * 3600, low=(trend - margin) * 3600, high=(trend + margin) * 3600)


@dataclass(slots=True)
class MemoryRecord:
    """Resident memory of a process and those below it, once a second."""

    process: Process
    samples: list[tuple[float, float]] = field(default_factory=list)

    async def run(self, every_s: float = 1.0) -> None:
        """Sample; ends by cancellation, or when the process does."""
        while self.process.is_running:
            self.samples.append((clock(), float(tree_rss_bytes(self.process.pid))))
            await asyncio.sleep(every_s)

    def later_slope(self) -> Slope:
        """Of the second half: caches and arenas fill up in the first."""
        return slope_of(self.samples[len(self.samples) // 2 :])


def num_zombies() -> int:
    """Children of this process that ended and were not waited for."""
    count = 0
    for path in Path("/proc/self/task").glob("*/children"):
        for child in path.read_text().split():
            count += Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    return count


async def held(gateway: Server, engine: Server) -> dict[str, float]:
    """Everything that only work under way may hold."""
    load = await read_load(engine.address)
    return {
        "permits": await metric(gateway.admin, "penstock_in_flight"),
        "queued": await metric(gateway.admin, "penstock_queue_depth"),
        "body_bytes": await metric(gateway.admin, "penstock_body_bytes"),
        "engine_requests": load.num_open,
        "engine_sequences": load.num_running + load.num_waiting,
        "kv_blocks": load.num_blocks_held,
        "kv_blocks_leaked": load.num_blocks_leaked,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Footing:
    """What idle processes need: the base that they must come back to."""

    gateway_fds: int
    engine_fds: int
    tasks: int
    threads: int

    def added(self, later: Footing) -> dict[str, float]:
        """How much more there is later."""
        return {
            "gateway_fds": max(0, later.gateway_fds - self.gateway_fds - _POOL_FILES),
            "engine_fds": max(0, later.engine_fds - self.engine_fds),
            "tasks": max(0, later.tasks - self.tasks),
            "threads": max(0, later.threads - self.threads - _POOL_THREADS),
        }


async def footing(gateway: Server, engine: Server, seconds: float) -> Footing:
    """The least of each that was seen within so much time without load."""
    found: list[Footing] = []
    until = clock() + seconds
    while clock() < until:
        found.append(
            Footing(
                gateway_fds=tree_fds(gateway.process.pid),
                engine_fds=tree_fds(engine.process.pid),
                tasks=int(await metric(gateway.admin, "penstock_tasks")),
                threads=tree_threads(gateway.process.pid) + tree_threads(engine.process.pid),
            )
        )
        await asyncio.sleep(0.2)
    return Footing(
        gateway_fds=min(one.gateway_fds for one in found),
        engine_fds=min(one.engine_fds for one in found),
        tasks=min(one.tasks for one in found),
        threads=min(one.threads for one in found),
    )
