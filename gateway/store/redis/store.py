"""RedisStore: the store in a Redis that all replicas reach: one, behind Sentinels, or a Cluster."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from hashlib import sha1
from typing import Any, Final

from redis.exceptions import NoScriptError

from gateway.store.base import (
    Changes,
    Exchanged,
    Hold,
    LogEntry,
    Room,
    StoreChange,
    StoreEntry,
    StoreLoss,
    StoreUnavailable,
    check_key,
    check_value,
)
from gateway.store.meter import Draw, Grant, Period, period_bounds
from gateway.store.redis import scripts
from gateway.store.redis.client import RedisClient, close, drop_old_primary, translated
from gateway.store.redis.cluster import ClusterClient
from gateway.store.redis_facts import RedisFacts, facts_of, room_of
from gateway.timeline import Clock

PREFIX: Final = "penstock"
SAME_AGAIN_S: Final = 10.0
"""Time for which a Redis that evicted keys is not trusted."""
_MEMORY_SHARE: Final = 0.8
"""Share of `maxmemory` that entries which can be made again may fill."""
_NEVER_EVICTED: Final = -math.inf
_MAX_PING_KEYS: Final = 200_000
"""Keys among which one of a node is searched: more than ten times the number of slots in a Cluster."""
_CLOCK_SPACE: Final = "store"
"""Space on the server of a Cluster whose clock counts."""


class _Script:
    """A script with the digest that calls it."""

    __slots__ = ("digest", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self.digest = sha1(text.encode(), usedforsecurity=False).hexdigest()


_PUT: Final = _Script(scripts.PUT)
_DELETE: Final = _Script(scripts.DELETE)
_KEYS_AFTER: Final = _Script(scripts.KEYS_AFTER)
_CHANGES: Final = _Script(scripts.CHANGES)
_APPEND: Final = _Script(scripts.APPEND)
_EXCHANGE: Final = _Script(scripts.EXCHANGE)


class RedisStore:
    """A Store in Redis. The first operation connects; every failure of Redis becomes StoreUnavailable."""

    def __init__(
        self,
        client: RedisClient,
        *,
        clock: Clock,
        wall: Callable[[], float],
        on_time: Callable[[float], None] = lambda _: None,
        prefix: str = PREFIX,
    ) -> None:
        """Wrap a client.

        `prefix` begins every key, `wall` determines only the calendar day, and `on_time` gets the time of Redis.
        """
        self._on_time = on_time
        self._client: Any = client
        self._is_cluster = isinstance(client, ClusterClient)
        self._clock = clock
        self._wall = wall
        self._prefix = prefix
        self._num_evicted: dict[str, int] = {}
        self._ping_keys: dict[str, str] = {}
        self._rechecking: asyncio.Task[None] | None = None
        self._evicted_at = _NEVER_EVICTED

    async def get(self, space: str, key: str) -> StoreEntry | None:
        """Implement `Store.get`."""
        self._require_memory()
        with translated():
            value, version = await self._client.hmget(self._name(space, "e", key), ["v", "n"])
        return None if version is None else StoreEntry(value, int(version))

    async def put(
        self, space: str, key: str, value: bytes, *, ttl_s: float | None = None, expect: int | None = None
    ) -> int | None:
        """Implement `Store.put`."""
        check_key(key)
        check_value(value)
        ttl_ms = "" if ttl_s is None else max(round(ttl_s * 1000), 1)
        names = self._entry_names(space, key)
        version = await self._call(_PUT, names, (key, value, ttl_ms, "" if expect is None else expect))
        return None if version is None else int(version)

    async def delete(self, space: str, key: str, *, expect: int | None = None) -> bool:
        """Implement `Store.delete`."""
        names = self._entry_names(space, key)
        return bool(await self._call(_DELETE, names, (key, "" if expect is None else expect)))

    async def keys(self, space: str, *, after: str = "", limit: int = 1000) -> tuple[str, ...]:
        """Implement `Store.keys`."""
        found = await self._call(_KEYS_AFTER, (self._name(space, "i"), self._name(space, "x")), (after, limit))
        return tuple(key.decode() for key in found)

    async def changes(self, space: str, *, after: int | None = None, limit: int = 1000) -> Changes:
        """Implement `Store.changes`."""
        names = (self._name(space, "v"), self._name(space, "c"))
        newest, is_gap, members = await self._call(_CHANGES, names, ("" if after is None else after, limit))
        if not members:
            return Changes(newest, (), is_gap=bool(is_gap))
        latest: dict[str, int] = {}
        for member in members:
            version, _, key = member.partition(b":")
            latest[key.decode()] = int(version)
        changes = sorted(
            (StoreChange(version, key) for key, version in latest.items()), key=lambda change: change.version
        )
        return Changes(changes[-1].version, tuple(changes))

    async def append(self, space: str, log: str, payload: bytes, *, after: int | None = None) -> int | None:
        """Implement `Store.append`."""
        check_value(payload)
        length = await self._call(_APPEND, (self._name(space, "l", log),), (payload, "" if after is None else after))
        return None if length is None else int(length)

    async def read_log(self, space: str, log: str, *, after: int = 0, limit: int = 1000) -> tuple[LogEntry, ...]:
        """Implement `Store.read_log`."""
        self._require_memory()
        with translated():
            found = await self._client.lrange(self._name(space, "l", log), after, after + limit - 1)
        return tuple(LogEntry(after + 1 + index, payload) for index, payload in enumerate(found))

    async def exchange(
        self, space: str, holder: str, draws: Sequence[Draw], hold: Hold | None = None, *, number: int = 0
    ) -> Exchanged:
        """Implement `Store.exchange`."""
        names = [self._name(space, "m", request.meter.name) for request in draws]
        arguments: list[str | int] = [holder, number, len(draws)]
        for request in draws:
            meter = request.meter
            bounds = (0, 0) if meter.period is Period.MINUTE else period_bounds(meter.period, self._wall())
            arguments += (meter.limit, request.want, request.at_least, request.ahead, *bounds, len(request.returns))
            for bucket, units in request.returns:
                arguments += (bucket, units)
        if hold is not None:
            names.append(self._name(space, "h", hold.name))
            arguments += (hold.limit, hold.units, hold.spare, round(hold.ttl_s * 1000))
        if number:
            names.append(self._name(space, "r", holder))
        if not names:
            names.append(self._name(space, "m", ""))  # a script without keys has no place in a Cluster
        now_ms, held, num_holders, grants = await self._call(_EXCHANGE, names, arguments)
        return Exchanged(int(now_ms) / 1000, tuple(map(_grant, grants)), int(held), num_holders)

    def nodes(self) -> tuple[str, ...]:
        """Implement `Store.nodes`: the primaries of a Cluster."""
        return (self._client.primaries() if self._is_cluster else ()) or ("",)

    def node_of(self, space: str) -> str:
        """Implement `Store.node_of`."""
        return self._client.primary_of(self._name(space, "v")) if self._is_cluster else ""

    async def ping(self, node: str = "") -> None:
        """Check that Redis can be written to, and that it evicts nothing."""
        if node and node not in self.nodes():
            return  # replaced: its spaces are elsewhere
        target = {"target_nodes": self._client.get_node(node_name=node)} if node else {}
        self._recheck_primary()
        results = await asyncio.gather(
            self._write_ping(node),
            self._call_node("info", "stats", **target),
            self._read_clock(node, target),
            return_exceptions=True,
        )
        for result in results:
            if isinstance(result, BaseException):
                raise result
        num_evicted = facts_of([result for result in results if isinstance(result, Mapping)]).num_evicted
        if num_evicted > self._num_evicted.setdefault(node, num_evicted):
            self._evicted_at = self._clock()
        self._num_evicted[node] = num_evicted
        self._require_memory()

    async def room(self) -> Room | None:
        """Return the room by `maxmemory`, of which a part is left to limits, keys and policies."""
        return room_of(await self._call_nodes("info", "memory"), _MEMORY_SHARE)

    async def facts(self) -> RedisFacts:
        """Return the settings of Redis for `penstock doctor`."""
        saves = await self._call_nodes("config_get", "save")
        return facts_of(
            [{**answer, **save} for answer, save in zip(await self._call_nodes("info", "all"), saves, strict=False)]
        )

    async def aclose(self) -> None:
        """Implement `Store.aclose`."""
        if self._rechecking is not None:
            self._rechecking.cancel()
            await asyncio.gather(self._rechecking, return_exceptions=True)
        with suppress(StoreUnavailable), translated():
            await close(self._client)

    async def _call(self, script: _Script, names: Sequence[str], arguments: Sequence[str | int | bytes]) -> Any:
        self._require_memory()
        with translated():
            try:
                return await self._client.execute_command("EVALSHA", script.digest, len(names), *names, *arguments)
            except NoScriptError:
                return await self._client.execute_command("EVAL", script.text, len(names), *names, *arguments)

    async def _call_nodes(self, command: str, argument: str) -> list[Mapping[str, Any]]:
        """Return the answers of all primaries that can be reached. Raises StoreUnavailable when none can."""
        if not self._is_cluster or self.nodes() == ("",):
            return [await self._call_node(command, argument)]
        targets = [self._client.get_node(node_name=node) for node in self.nodes()]
        calls = (self._call_node(command, argument, target_nodes=target) for target in targets)
        answers = await asyncio.gather(*calls, return_exceptions=True)
        found: list[Mapping[str, Any]] = []
        for answer in answers:
            if isinstance(answer, Mapping):
                found.append(answer)
            elif not isinstance(answer, StoreUnavailable):
                raise answer
        if not found:
            raise next(answer for answer in answers if isinstance(answer, BaseException))
        return found

    async def _call_node(self, command: str, argument: str, **target: Any) -> Mapping[str, Any]:
        """Return one answer; an empty one where the user lacks the permission."""
        try:
            with translated():
                answer: Mapping[str, Any] = await getattr(self._client, command)(argument, **target)
        except StoreUnavailable as error:
            if error.reason is StoreLoss.REFUSED:
                return {}
            raise
        return answer

    async def _read_clock(self, node: str, target: Mapping[str, Any]) -> None:
        """Read the clock of one server, always the same one, unless the user lacks the permission."""
        if node != self.node_of(_CLOCK_SPACE) or (self._is_cluster and not node):
            return
        try:
            with translated():
                seconds, microseconds = await self._client.time(**target)
        except StoreUnavailable as error:
            if error.reason is not StoreLoss.REFUSED:
                raise
        else:
            self._on_time(seconds + microseconds / 1e6)

    def _recheck_primary(self) -> None:
        """Begin to compare the primary with what the Sentinels name; a ping's timeout is too short to wait for them."""
        if self._rechecking is None or self._rechecking.done():
            self._rechecking = asyncio.get_running_loop().create_task(self._drop_old_primary())

    async def _drop_old_primary(self) -> None:
        with suppress(StoreUnavailable), translated():  # the next one comes with the next ping
            await drop_old_primary(self._client)

    async def _write_ping(self, node: str) -> None:
        """Write a key that the node has; nothing where none is found, as while its slots move away."""
        key = self._ping_key(node)
        if key is None:
            return
        with translated():
            await self._client.set(key, 1, px=60_000)

    def _ping_key(self, node: str) -> str | None:
        known = self._ping_keys.get(node)
        if known is not None and (not node or self._client.primary_of(known) == node):
            return known
        keys = (f"{self._prefix}:{{{number}}}:ping" for number in range(_MAX_PING_KEYS))
        key = next((key for key in keys if not node or self._client.primary_of(key) == node), None)
        if key is not None:
            self._ping_keys[node] = key
        return key

    def _require_memory(self) -> None:
        """Raise StoreUnavailable after evictions, which may have hit any of our counts."""
        if self._clock() - self._evicted_at < SAME_AGAIN_S:
            message = "Redis evicts keys to make room; raise maxmemory, or set maxmemory-policy noeviction"
            raise StoreUnavailable(StoreLoss.EVICTING, message, was_sent=False)

    def _entry_names(self, space: str, key: str) -> tuple[str, ...]:
        return (self._name(space, "e", key), *(self._name(space, part) for part in ("v", "c", "i", "x")))

    def _name(self, space: str, part: str, name: str = "") -> str:
        return f"{self._prefix}:{{{space}}}:{part}:{name}" if name else f"{self._prefix}:{{{space}}}:{part}"


def _grant(parts: Sequence[bytes]) -> Grant:
    units, bucket, usable_ms, remaining, reset_ms, wait_ms = map(int, parts)
    wait_s = wait_ms / 1000 if wait_ms >= 0 else float(wait_ms)
    return Grant(units, bucket, usable_ms / 1000, remaining, reset_ms / 1000, wait_s)
