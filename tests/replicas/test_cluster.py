"""A Cluster that loses a node or moves slots under the load of three gateways (row 47)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from redis.crc import key_slot

from tests.gateway.store.redis_server import ClusterSet, RedisServer
from tests.replicas.fleet import Fleet, fleet_over, has_store, started

TENANT = "metered0"


@asynccontextmanager
async def on_a_cluster(folder: Path) -> AsyncIterator[tuple[ClusterSet, Fleet]]:
    cluster = ClusterSet(folder / "cluster", has_replicas=True, node_timeout_ms=1000)
    async with started(cluster) as servers, fleet_over(servers.url, folder) as fleet:
        yield servers, fleet


def slot_of(space: str) -> int:
    return key_slot(space.encode())


def home_of(servers: ClusterSet, space: str) -> int:
    """The number of the primary that has a space."""
    return next(number for number, end in enumerate((5461, 10923, 16384)) if slot_of(space) < end)


def kill(server: RedisServer) -> None:
    server.kill()


def freeze(server: RedisServer) -> None:
    server.freeze()


@pytest.mark.parametrize("fault", [kill, freeze])
async def test_row_47_a_cluster_that_loses_the_node_of_a_tenant(
    tmp_path: Path, fault: Callable[[RedisServer], None]
) -> None:
    async with on_a_cluster(tmp_path) as (servers, fleet):
        lost = home_of(servers, f"quota.{TENANT}")
        async with fleet.load(TENANT) as load:
            fault(servers.nodes[lost])
            replica = servers.replicas[lost]
            await fleet.until(lambda: replica.admin.info("replication")["role"] == "master", "a promotion")
            took_s = await fleet.until_each(has_store, "the new primary is in use")
            assert took_s <= 1.5
            await load.until_more()
        await fleet.check(load)


async def test_row_47_slots_that_move_between_nodes(tmp_path: Path) -> None:
    async with on_a_cluster(tmp_path) as (servers, fleet), fleet.load(TENANT) as load:
        for _ in range(2):  # there and back
            for space in (f"quota.{TENANT}", "cache", "policy", "access", "audit"):
                slot = slot_of(space)
                holders = [node for node in servers.nodes if _has(node, slot)]
                source = holders[0]
                target = next(node for node in servers.nodes if node is not source)
                await asyncio.to_thread(servers.move_slot, slot, source, target)
                await load.until_more(num=6)
        load.stop()
        await fleet.check(load)


def _has(node: RedisServer, slot: int) -> bool:
    """Whether the slot is the node's, by its own map."""
    mine = f"127.0.0.1:{node.port}"
    for first, last, primary, *_ in node.admin.execute_command("CLUSTER", "SLOTS"):
        host = primary[0].decode() if isinstance(primary[0], bytes) else primary[0]
        if first <= slot <= last:
            return f"{host or '127.0.0.1'}:{primary[1]}" == mine
    return False
