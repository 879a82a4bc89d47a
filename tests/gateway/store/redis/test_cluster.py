"""A Cluster that loses a node, or moves a slot, while spaces on other nodes are in use."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio.cluster import ClusterNode

from gateway.store.base import Store, StoreLoss, StoreUnavailable
from gateway.store.guarded import GuardedStore
from gateway.store.redis.cluster import ClusterClient
from tests.gateway.store.conftest import open_at
from tests.gateway.store.redis_server import ClusterSet, RedisServer, until
from tests.gateway.store.test_guarded import Heard


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[ClusterSet]:
    found = ClusterSet(tmp_path / "cluster", has_replicas=True, node_timeout_ms=500)
    try:
        yield found.start()
    finally:
        found.kill()


def spaces_of(store: Any) -> dict[str, str]:
    """A space on each node."""
    found: dict[str, str] = {}
    for number in range(200):
        found.setdefault(store.node_of(f"s{number}"), f"s{number}")
    return found


def server_of(servers: ClusterSet, node: str) -> int:
    return next(number for number, one in enumerate(servers.nodes) if node.endswith(f":{one.port}"))


@pytest.mark.parametrize("fault", [RedisServer.kill, RedisServer.freeze])
async def test_a_lost_node_is_replaced_while_the_others_serve(
    servers: ClusterSet, fault: Callable[[RedisServer], None]
) -> None:
    raw, heard = open_at(servers.url, timeout_s=0.1), Heard()
    store = GuardedStore(raw, timeout_s=0.1, clock=time.monotonic, observer=heard)
    await store.reach()
    watch = asyncio.create_task(store.watch())
    spaces = spaces_of(raw)
    (lost_node, lost), *others = spaces.items()
    for space in spaces.values():
        assert await store.put(space, "k", b"v") == 1
    number = server_of(servers, lost_node)
    primary, replica = servers.nodes[number].admin, servers.replicas[number].admin
    until(lambda: replica.dbsize() == primary.dbsize(), "replication")
    fault(servers.nodes[number])
    entry, num_served = None, 0
    async with asyncio.timeout(15):
        while entry is None:
            for _, space in others:
                assert await store.get(space, "k") is not None, "a space on another node"
                num_served += 1
            try:
                entry = await store.get(lost, "k")
            except StoreUnavailable:
                await asyncio.sleep(0.01)
    assert entry.value == b"v"
    assert num_served > 20
    async with asyncio.timeout(5):
        while not store.is_up:
            await asyncio.sleep(0.01)
    assert heard.states == [True, False, True]
    watch.cancel()
    await store.aclose()


async def test_a_space_whose_slot_moves_is_lost_for_the_move_and_no_node_rests(cluster_set: ClusterSet) -> None:
    raw, heard = open_at(cluster_set.url), Heard()
    store = GuardedStore(raw, timeout_s=1.0, clock=time.monotonic, observer=heard)
    await store.reach()
    (node, space), *_ = spaces_of(raw).items()
    await store.put(space, "before", b"v")
    source = cluster_set.nodes[server_of(cluster_set, node)]
    target = next(each for each in cluster_set.nodes if each is not source)
    slot = source.admin.execute_command("CLUSTER", "KEYSLOT", f"penstock:{{{space}}}:v")
    target.admin.execute_command("CLUSTER", "SETSLOT", slot, "IMPORTING", cluster_set.node_id(source))
    source.admin.execute_command("CLUSTER", "SETSLOT", slot, "MIGRATING", cluster_set.node_id(target))
    with pytest.raises(StoreUnavailable) as moving:
        await store.put(space, "new", b"v")  # some of its keys are there, some are not
    assert (moving.value.reason, moving.value.was_sent) == (StoreLoss.MOVING, False)
    assert await store.get(space, "before") is not None
    assert await _at_once(store, space, 20) == 20, "reads of keys that moved need no second connection"
    cluster_set.move_slot(slot, source, target)
    assert await store.put(space, "new", b"v") == 2
    assert heard.states == [True]
    cluster_set.move_slot(slot, target, source)
    assert await store.put(space, "back", b"v") == 3
    await store.aclose()


async def test_a_node_without_slots_is_no_primary() -> None:
    nodes = [ClusterNode("127.0.0.1", port, "primary") for port in (7001, 7002)]
    client = ClusterClient(startup_nodes=nodes)
    known = client.nodes_manager
    known.nodes_cache = {node.name: node for node in nodes}
    known.slots_cache = {slot: [nodes[slot % 2]] for slot in range(10)} | {10: []}
    client._named("127.0.0.1", 7003)  # a redirection names it, before it has slots
    assert sorted(client.primaries()) == ["127.0.0.1:7001", "127.0.0.1:7002"]


async def _at_once(store: Store, space: str, num: int) -> int:
    """Many reads of a key that only the receiving node can answer about; how many got an answer."""
    found = await asyncio.gather(*(store.get(space, f"absent{number}") for number in range(num)))
    return sum(entry is None for entry in found)
