"""ClusterClient: the library's Cluster client, for a Cluster that loses nodes and moves slots under load.

It differs in three ways. A command that fails or is broken off makes it compare the map of slots with that of another
node, in the background, until the node answers or has been replaced; connections to other nodes stay open meanwhile.
The word that admits a command to a slot on its way goes with it over one connection. A command whose keys are in part
on one node and in part on the other fails at once.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from redis import exceptions
from redis.asyncio import RedisCluster
from redis.asyncio.cluster import ClusterNode

CHECK_S: Final = 0.2
"""Time between two checks of the map of slots while a node is suspected."""
CHECK_TIMEOUT_S: Final = 1.0
MAX_REDIRECTS: Final = 5

_FAULTS: Final = (
    asyncio.CancelledError,
    exceptions.ConnectionError,
    exceptions.TimeoutError,
    exceptions.ClusterDownError,
    exceptions.SlotNotCoveredError,
    OSError,
)
"""Signs that the map of slots may be out of date."""


class ClusterClient(RedisCluster):
    """A client of all primaries, which knows the one that has a key."""

    def __init__(self, **options: Any) -> None:
        """Take the library's options."""
        super().__init__(**options)
        self._suspects: set[str] = set()
        self._checking: asyncio.Task[None] | None = None

    def primaries(self) -> tuple[str, ...]:
        """Return the names of the nodes that have slots; none before the first command."""
        slots = tuple(self.nodes_manager.slots_cache.values())
        return tuple({nodes[0].name: None for nodes in slots if nodes})

    def primary_of(self, key: str) -> str:
        """Return the name of the node that has a key; empty before the first command."""
        nodes = self.nodes_manager.slots_cache.get(self.keyslot(key))
        return nodes[0].name if nodes else ""

    async def end_checks(self) -> None:
        """End what runs in the background."""
        if self._checking is not None:
            self._checking.cancel()
            await asyncio.gather(self._checking, return_exceptions=True)

    async def _execute_command(self, target_node: ClusterNode, *args: Any, **kwargs: Any) -> Any:
        try:
            result = await self._redirected(target_node, args, kwargs)
        except _FAULTS:
            self._suspect(target_node.name)
            raise
        self._suspects.discard(target_node.name)
        return result

    async def _redirected(self, node: ClusterNode, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a command where its slot is."""
        is_admitted = False
        for _ in range(MAX_REDIRECTS):
            try:
                return await (_run_admitted(node, args) if is_admitted else node.execute_command(*args, **kwargs))
            except exceptions.ResponseError as error:
                answer: Any = error
                if not hasattr(answer, "slot_id"):
                    raise  # no redirection
                is_admitted = not isinstance(answer, exceptions.MovedError)
                if not is_admitted:
                    await self.nodes_manager.move_slot(answer)
                node = self._named(answer.host, answer.port)
        raise exceptions.TryAgainError("TRYAGAIN the slot is on its way between two nodes")

    def _named(self, host: str, port: int) -> ClusterNode:
        """Return the node that an answer names, which may have joined a moment ago."""
        node = self.get_node(host=host, port=port)
        if node is None:
            node = ClusterNode(host, port, "primary", **self.nodes_manager.connection_kwargs)
            self.nodes_manager.set_nodes(self.nodes_manager.nodes_cache, {node.name: node})
        return node

    # The map of slots.

    def _suspect(self, name: str) -> None:
        self._suspects.add(name)
        if self._checking is None or self._checking.done():
            self._checking = asyncio.get_running_loop().create_task(self._check_until_settled())

    async def _check_until_settled(self) -> None:
        while self._suspects:
            for node in self._witnesses():
                try:
                    async with asyncio.timeout(CHECK_TIMEOUT_S):
                        await self._compare_with(node)
                    break
                except (exceptions.RedisError, exceptions.RedisClusterException, OSError):
                    continue  # another one may answer; with none the next check comes
            self._suspects.intersection_update(self.primaries())
            await asyncio.sleep(CHECK_S)

    def _witnesses(self) -> list[ClusterNode]:
        """Return the nodes to consult, replicas included, suspects last."""
        return sorted(self.get_nodes(), key=lambda node: node.name in self._suspects)

    async def _compare_with(self, node: ClusterNode) -> None:
        """Read the whole map again where this node names another primary for a slot."""
        known = self.nodes_manager.slots_cache
        for first, _, primary, *_ in await node.execute_command("CLUSTER SLOTS"):
            name = f"{_text(primary[0]) or node.host}:{int(primary[1])}"
            if first not in known or known[first][0].name != name:
                await self.nodes_manager.initialize(last_failed_node_name=next(iter(self._suspects), None))
                return


async def _run_admitted(node: ClusterNode, args: tuple[Any, ...]) -> Any:
    """Run a command at a node that receives its slot: admission is for the next command of the same connection."""
    connection = node.acquire_connection()
    try:
        await node.disconnect_if_needed(connection)
        try:
            await connection.send_packed_command(connection.pack_commands([("ASKING",), args]))
            await connection.read_response()
        except BaseException:  # the command's own answer is still to come
            await connection.disconnect(nowait=True)
            raise
        return await node.parse_response(connection, args[0])
    finally:
        node.release(connection)


def _text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value
