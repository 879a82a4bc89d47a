"""Real Redis servers on free ports: one, a primary with a replica behind Sentinels, a Cluster of three."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import redis

START_S = 40.0


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on now."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


def until(is_so: Callable[[], Any], what: str, timeout_s: float = START_S) -> None:
    """Wait for something outside this process."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            if is_so():
                return
        except (redis.RedisError, OSError):
            pass  # not there yet
        if time.monotonic() > deadline:
            raise AssertionError(f"{what}: not within {timeout_s:g} s")
        time.sleep(0.01)


class RedisServer:
    """One `redis-server` process; `start` again after `kill` comes up empty on the same port."""

    def __init__(
        self,
        folder: Path,
        *options: str,
        port: int | None = None,
        is_sentinel: bool = False,
        host: str = "127.0.0.1",
        within: tuple[str, ...] = (),
    ) -> None:
        """`options` are lines of its configuration, `within` is the command that it runs below."""
        self.folder = folder
        self._host = host
        self._within = within
        self.port = port or free_ports(1)[0]
        self._options = options
        self._is_sentinel = is_sentinel
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def url(self) -> str:
        """As the `store` setting has it."""
        return f"redis://{self._host}:{self.port}/0"

    @property
    def admin(self) -> Any:
        """A blocking client for the test itself."""
        return redis.Redis(host=self._host, port=self.port, socket_timeout=5)

    def start(self) -> RedisServer:
        """Returns once it answers."""
        program = shutil.which("redis-server")
        assert program is not None, "redis-server is missing: apt-get install redis-server (make test does)"
        lines = [
            f"port {self.port}",
            f"bind {self._host}",
            f"dir {self.folder}",
            'save ""',
            "appendonly no",
            "repl-diskless-sync-delay 0",
            *self._options,
        ]
        if self._is_sentinel:
            lines = [f"port {self.port}", f"bind {self._host}", f"dir {self.folder}", *self._options]
        config = self.folder / "redis.conf"
        config.write_text("\n".join(lines) + "\n")
        with (self.folder / "redis.log").open("ab") as log:
            self._process = subprocess.Popen(
                [*self._within, program, str(config), *(["--sentinel"] if self._is_sentinel else [])],
                stdout=log,
                stderr=log,
            )
        until(lambda: self.admin.ping(), f"redis-server on {self.port}")
        return self

    def kill(self) -> None:
        """As `kill -9`; returns once it is gone."""
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)
            self._process.kill()
            self._process.wait()
            self._process = None

    def freeze(self) -> None:
        """It keeps its connections and answers nothing."""
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """It goes on."""
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGCONT)


class SentinelSet:
    """A primary, its replica, and three Sentinels that agree on who is who."""

    SERVICE = "penstock-test"

    def __init__(self, folder: Path) -> None:
        self.primary = RedisServer(folder / "primary")
        self.replica = RedisServer(folder / "replica", f"replicaof 127.0.0.1 {self.primary.port}")
        watched = (
            f"sentinel monitor {self.SERVICE} 127.0.0.1 {self.primary.port} 2",
            f"sentinel down-after-milliseconds {self.SERVICE} 300",
            f"sentinel failover-timeout {self.SERVICE} 2000",
        )
        self.sentinels = [RedisServer(folder / f"sentinel{i}", *watched, is_sentinel=True) for i in range(3)]

    @property
    def url(self) -> str:
        """As the `store` setting has it."""
        hosts = ",".join(f"127.0.0.1:{each.port}" for each in self.sentinels)
        return f"redis+sentinel://{hosts}/{self.SERVICE}/0"

    def start(self) -> SentinelSet:
        """Returns once the Sentinels know each other and the replica."""
        for each in (self.primary, self.replica, *self.sentinels):
            each.start()
        for each in self.sentinels:
            until(lambda each=each: self._knows_all(each), "sentinels")  # type: ignore[misc]
        return self

    def _knows_all(self, sentinel: RedisServer) -> bool:
        state = sentinel.admin.sentinel_master(self.SERVICE)
        return int(state["num-slaves"]) == 1 and int(state["num-other-sentinels"]) == 2

    def kill(self) -> None:
        """All of them."""
        for each in (*self.sentinels, self.replica, self.primary):
            each.kill()


class ClusterSet:
    """Three primaries that share the slots, each with a replica if wanted."""

    def __init__(
        self, folder: Path, *more_options: str, has_replicas: bool = False, node_timeout_ms: int = 2000
    ) -> None:
        num = 6 if has_replicas else 3
        ports = free_ports(2 * num)
        options = (
            "cluster-enabled yes",
            f"cluster-node-timeout {node_timeout_ms}",
            "cluster-require-full-coverage no",
            "cluster-replica-validity-factor 0",
            *more_options,
        )
        servers = [
            RedisServer(folder / f"node{i}", *options, f"cluster-port {ports[num + i]}", port=ports[i])
            for i in range(num)
        ]
        self.nodes = servers[:3]
        """The first primaries."""
        self.replicas = servers[3:]
        self._bus_ports = dict(zip(ports[:num], ports[num:], strict=True))

    @property
    def url(self) -> str:
        """As the `store` setting has it."""
        return "redis+cluster://" + ",".join(f"127.0.0.1:{each.port}" for each in self.nodes)

    def start(self) -> ClusterSet:
        """Returns once every node knows every slot's owner."""
        bounds = [0, 5461, 10923, 16384]
        for server in (*self.nodes, *self.replicas):
            server.start()
        for index, node in enumerate(self.nodes):
            node.admin.execute_command("CLUSTER", "ADDSLOTSRANGE", bounds[index], bounds[index + 1] - 1)
            node.admin.execute_command("CLUSTER", "SET-CONFIG-EPOCH", index + 1)
        for other in (*self.nodes[1:], *self.replicas):
            self.nodes[0].admin.execute_command("CLUSTER", "MEET", "127.0.0.1", other.port, self._bus_ports[other.port])
        for node in (*self.nodes, *self.replicas):
            until(lambda node=node: self._is_whole(node), "cluster")  # type: ignore[misc]
        for primary, replica in zip(self.nodes, self.replicas, strict=False):
            until(lambda pair=(primary, replica): self._follows(*pair), "replicas")  # type: ignore[misc]
        return self

    def node_id(self, server: RedisServer) -> str:
        """The name of a node in the Cluster."""
        found = server.admin.execute_command("CLUSTER", "MYID")
        return found.decode() if isinstance(found, bytes) else str(found)

    def move_slot(self, slot: int, source: RedisServer, target: RedisServer) -> None:
        """Move a slot with its keys, a few at a time, as `redis-cli --cluster reshard` does."""
        target.admin.execute_command("CLUSTER", "SETSLOT", slot, "IMPORTING", self.node_id(source))
        source.admin.execute_command("CLUSTER", "SETSLOT", slot, "MIGRATING", self.node_id(target))
        while keys := source.admin.execute_command("CLUSTER", "GETKEYSINSLOT", slot, 10):
            source.admin.execute_command("MIGRATE", "127.0.0.1", target.port, "", 0, 5000, "KEYS", *keys)
        for node in (target, source, *self.nodes):
            node.admin.execute_command("CLUSTER", "SETSLOT", slot, "NODE", self.node_id(target))

    def _follows(self, primary: RedisServer, replica: RedisServer) -> bool:
        if replica.admin.info("replication")["role"] == "master":
            replica.admin.execute_command("CLUSTER", "REPLICATE", self.node_id(primary))
        state = replica.admin.info("replication")
        return bool(state["role"] == "slave" and state["master_link_status"] == "up")

    def _is_whole(self, node: RedisServer) -> bool:
        state = node.admin.execute_command("CLUSTER", "INFO")
        text = state if isinstance(state, dict) else dict(line.split(":", 1) for line in state.decode().split())
        return (text["cluster_state"], text["cluster_slots_assigned"]) == ("ok", "16384")

    def kill(self) -> None:
        """All of them."""
        for each in (*self.nodes, *self.replicas):
            each.kill()
