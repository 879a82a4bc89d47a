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

START_S = 15.0


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

    def __init__(self, folder: Path, *options: str, port: int | None = None, is_sentinel: bool = False) -> None:
        """`options` are lines of its configuration."""
        self.folder = folder
        self.port = port or free_ports(1)[0]
        self._options = options
        self._is_sentinel = is_sentinel
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def url(self) -> str:
        """As the `store` setting has it."""
        return f"redis://127.0.0.1:{self.port}/0"

    @property
    def admin(self) -> Any:
        """A blocking client for the test itself."""
        return redis.Redis(port=self.port, socket_timeout=5)

    def start(self) -> RedisServer:
        """Returns once it answers."""
        program = shutil.which("redis-server")
        assert program is not None, "redis-server is missing: apt-get install redis-server (make test does)"
        lines = [
            f"port {self.port}",
            "bind 127.0.0.1",
            f"dir {self.folder}",
            'save ""',
            "appendonly no",
            "repl-diskless-sync-delay 0",
            *self._options,
        ]
        if self._is_sentinel:
            lines = [f"port {self.port}", "bind 127.0.0.1", f"dir {self.folder}", *self._options]
        config = self.folder / "redis.conf"
        config.write_text("\n".join(lines) + "\n")
        with (self.folder / "redis.log").open("ab") as log:
            self._process = subprocess.Popen(
                [program, str(config), *(["--sentinel"] if self._is_sentinel else [])], stdout=log, stderr=log
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
    """Three primaries that share the slots."""

    def __init__(self, folder: Path) -> None:
        ports = free_ports(6)
        options = ("cluster-enabled yes", "cluster-node-timeout 2000", "cluster-require-full-coverage no")
        self.nodes = [
            RedisServer(folder / f"node{i}", *options, f"cluster-port {ports[i + 3]}", port=ports[i]) for i in range(3)
        ]
        self._bus_ports = ports[3:]

    @property
    def url(self) -> str:
        """As the `store` setting has it."""
        return "redis+cluster://" + ",".join(f"127.0.0.1:{each.port}" for each in self.nodes)

    def start(self) -> ClusterSet:
        """Returns once every node knows every slot's owner."""
        bounds = [0, 5461, 10923, 16384]
        for index, node in enumerate(self.nodes):
            node.start()
            node.admin.execute_command("CLUSTER", "ADDSLOTSRANGE", bounds[index], bounds[index + 1] - 1)
            node.admin.execute_command("CLUSTER", "SET-CONFIG-EPOCH", index + 1)
        for other, bus_port in zip(self.nodes[1:], self._bus_ports[1:], strict=True):
            self.nodes[0].admin.execute_command("CLUSTER", "MEET", "127.0.0.1", other.port, bus_port)
        for node in self.nodes:
            until(lambda node=node: self._is_whole(node), "cluster")  # type: ignore[misc]
        return self

    def _is_whole(self, node: RedisServer) -> bool:
        state = node.admin.execute_command("CLUSTER", "INFO")
        text = state if isinstance(state, dict) else dict(line.split(":", 1) for line in state.decode().split())
        return (text["cluster_state"], text["cluster_slots_assigned"]) == ("ok", "16384")

    def kill(self) -> None:
        """All of them."""
        for each in self.nodes:
            each.kill()
