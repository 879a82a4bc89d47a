"""RedisFacts: the settings of a Redis that decide whether it can be relied on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from gateway.store.base import Room


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisFacts:
    """Facts of one Redis; of several nodes the worst."""

    version: str
    policy: str
    """The setting `maxmemory-policy`."""
    may_evict: bool
    is_persistent: bool
    num_evicted: int
    """Keys evicted since the start."""


def facts_of(answers: Iterable[Mapping[str, Any]]) -> RedisFacts:
    """Return the facts in INFO of every node, with the setting `save` where it is known."""
    nodes = list(answers)
    evicting = [node for node in nodes if _may_evict(node)]
    return RedisFacts(
        version=min(str(node.get("redis_version", "?")) for node in nodes),
        policy=str((evicting or nodes)[0].get("maxmemory_policy", "?")),
        may_evict=bool(evicting),
        is_persistent=all(_is_persistent(node) for node in nodes),
        num_evicted=sum(int(node.get("evicted_keys", 0)) for node in nodes),
    )


def room_of(answers: Iterable[Mapping[str, Any]], share: float) -> Room | None:
    """Return the room until the fullest node has used `share` of its maxmemory; None where no node has one."""
    rooms = []
    for node in answers:
        limit = int(share * int(node.get("maxmemory", 0)))
        if limit > 0:
            rooms.append(Room(limit - int(node.get("used_memory", 0)), limit))
    return min(rooms, key=lambda room: room.free_bytes, default=None)


def _may_evict(node: Mapping[str, Any]) -> bool:
    return int(node.get("maxmemory", 0)) > 0 and node.get("maxmemory_policy") != "noeviction"


def _is_persistent(node: Mapping[str, Any]) -> bool:
    """Return whether a node persists; True as well where `save` is unknown."""
    return int(node.get("aof_enabled", 0)) == 1 or node.get("save") != ""
