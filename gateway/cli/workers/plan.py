"""WorkersPlan: how many workers a gateway has, and the processes that its supervisor starts."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

import msgspec

from gateway.cli.supervisor.child import ChildSpec
from gateway.cli.supervisor.held_address import HeldAddress
from gateway.cli.supervisor.launch import hold_listeners, module_argv, python_env
from gateway.cli.workers import MACHINE_PROCESS
from gateway.config.addresses import socket_problem
from gateway.config.checks import ConfigError
from gateway.config.settings import GatewayConfig
from gateway.config.sources import variables_of
from gateway.machine.acceptor import Channel
from gateway.machine.process import CONTROL, MachineProcessSpec, num_columns_of, process_name_of, socket_path_of
from gateway.machine.shared_counts import SharedCounts, create_table

MOST_BY_DEFAULT: Final = 8
LEFT_TO_ENGINES: Final = 2
"""Cores that `penstock up` leaves to the engines."""
PROCESS_BYTES: Final = 256 * 1024 * 1024
"""Memory that each process of the default number should have."""
STOP_MARGIN_S: Final = 8.0
"""Time beyond notice and drain in which a process closes what it has."""


def num_workers_of(
    config: GatewayConfig, num_cores: int, *, beside_engines: bool = False, memory_bytes: int | None = None
) -> int:
    """Return the number of workers: the setting, else one for each core that there is memory for, at most 8.

    Args:
        config: The settings.
        num_cores: Cores that this process may use.
        beside_engines: True if engines use the same cores.
        memory_bytes: Memory limit of all processes; None without one.
    """
    if config.process.workers is not None:
        return config.process.workers
    found = min(num_cores - LEFT_TO_ENGINES if beside_engines else num_cores, MOST_BY_DEFAULT)
    if memory_bytes is not None:
        found = min(found, memory_bytes // PROCESS_BYTES - 1)  # the control process takes as much as a worker
    return max(found, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkersPlan:
    """The processes, and everything open that they share; closing it is the end of the addresses."""

    control: ChildSpec
    workers: tuple[ChildSpec, ...]
    """Worker 1 first."""
    public: HeldAddress
    admin: HeldAddress
    channels: dict[int, Channel]
    """Channel of each process by its column, the control process's included."""
    counts: SharedCounts
    pipes: tuple[tuple[int, int], ...]
    """Ends for reading and writing of the pipe that wakes each process."""
    notice_s: float

    def __enter__(self) -> WorkersPlan:
        return self

    def __exit__(self, *exception: object) -> None:
        self.public.close()
        self.admin.close()
        for channel in self.channels.values():
            channel.close()
        for ends in self.pipes:
            for end in ends:
                os.close(end)
        os.close(self.counts.descriptor)

    def wake_all(self) -> None:
        """Let every process look at its queues."""
        for _, end in self.pipes:
            with suppress(BlockingIOError):
                os.write(end, b"\0")


def plan_workers(config: GatewayConfig, num_workers: int, *, python: str = sys.executable) -> WorkersPlan:
    """Open what the processes share and plan them.

    Raises:
        ConfigError: The path of the processes' sockets is too long.
        LaunchError: An address is taken.
    """
    longest = socket_path_of(config.process.runtime_dir, num_workers)
    if problem := socket_problem(str(longest)):
        raise ConfigError(f"process.runtime_dir: the workers' sockets are in it: {problem}")
    public, admin = hold_listeners(config)
    columns = range(num_workers + 1)
    num_columns = num_columns_of(num_workers)
    table = create_table(num_columns)
    pipes = tuple(os.pipe() for _ in columns)
    for ends in pipes:
        for end in ends:
            os.set_blocking(end, False)
    channels = {column: Channel() for column in columns}
    settings = replace(
        config,
        public=replace(config.public, listen=public.shown),
        admin=replace(config.admin, listen=admin.inherited),
    )
    specs = [
        _child(
            settings,
            MachineProcessSpec(
                column=column,
                num_workers=num_workers,
                table=table,
                own_pipe=pipes[column][0],
                pipes=tuple(end for _, end in pipes),
                channel=channels[column].workers.fileno(),
            ),
            admin.sockets if column == CONTROL else (),
            python,
        )
        for column in columns
    ]
    return WorkersPlan(
        control=specs[CONTROL],
        workers=tuple(specs[1:]),
        public=public,
        admin=admin,
        channels=channels,
        counts=SharedCounts(table, num_columns=num_columns, column=num_columns - 1),
        pipes=pipes,
        notice_s=config.process.drain_notice_s,
    )


def _child(config: GatewayConfig, spec: MachineProcessSpec, sockets: Sequence[socket.socket], python: str) -> ChildSpec:
    settings = config if spec.is_control else replace(config, admin=replace(config.admin, listen="127.0.0.1:0"))
    process = config.process
    return ChildSpec(
        name=process_name_of(spec.column),
        argv=(*module_argv(python, "gateway"), MACHINE_PROCESS, msgspec.json.encode(spec).decode()),
        stop_timeout_s=process.drain_notice_s + process.drain_timeout_s + STOP_MARGIN_S * (2 if spec.is_control else 1),
        env={**python_env(), **variables_of(settings)},
        descriptors=(
            *(spec.table, spec.own_pipe, *spec.pipes, spec.channel),
            *(each.fileno() for each in sockets),
        ),
        is_piped=False,
    )
