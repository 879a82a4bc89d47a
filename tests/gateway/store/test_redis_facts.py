"""What a Redis says of itself, and whether it can be relied on."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.store.base import Room
from gateway.store.redis_facts import facts_of, room_of

GOOD = {"redis_version": "7.2.1", "maxmemory": 0, "maxmemory_policy": "noeviction", "aof_enabled": 1, "evicted_keys": 0}


def node(**fields: Any) -> dict[str, Any]:
    return {**GOOD, **fields}


def test_of_several_nodes_the_worst_counts() -> None:
    worse = node(
        redis_version="6.0.0", maxmemory=100, maxmemory_policy="allkeys-lru", aof_enabled=0, save="", evicted_keys=3
    )
    found = facts_of([node(), worse, node(evicted_keys=2)])
    assert (found.version, found.policy) == ("6.0.0", "allkeys-lru")
    assert (found.may_evict, found.is_persistent, found.num_evicted) == (True, False, 5)


@pytest.mark.parametrize(
    ("fields", "may_evict"),
    [
        ({"maxmemory": 100}, False),
        ({"maxmemory": 0, "maxmemory_policy": "allkeys-lru"}, False),
        ({"maxmemory": 100, "maxmemory_policy": "volatile-ttl"}, True),
    ],
)
def test_it_evicts_only_with_a_limit_and_a_policy_that_does(fields: dict[str, Any], may_evict: bool) -> None:
    assert facts_of([node(**fields)]).may_evict is may_evict


@pytest.mark.parametrize(
    ("fields", "is_persistent"),
    [({"aof_enabled": 0, "save": ""}, False), ({"aof_enabled": 0, "save": "900 1"}, True), ({"aof_enabled": 0}, True)],
)
def test_what_is_not_known_is_not_called_lost(fields: dict[str, Any], is_persistent: bool) -> None:
    assert facts_of([node(**fields)]).is_persistent is is_persistent


def test_the_fullest_node_bounds_the_room_and_without_a_limit_there_is_none() -> None:
    nodes = [node(maxmemory=1000, used_memory=100), node(maxmemory=1000, used_memory=700), node()]
    assert room_of(nodes, 0.8) == Room(100, 800)
    assert room_of([node(maxmemory=1000, used_memory=900)], 0.8) == Room(-100, 800), "more than its share is in use"
    assert room_of([node()], 0.8) is None
