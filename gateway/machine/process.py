"""MachineProcess: one process of a gateway of several, with what it inherits from their supervisor.

Process 0 is the control process: it has the admin listener and the encoder, and adds up what the workers report.
Processes 1 to N are workers, which serve the public listener.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Final

import msgspec

from gateway.limits.lane import LaneRules, LiveLane
from gateway.limits.limit import Limit
from gateway.limits.limiter import Limiter
from gateway.machine.handover import HandedConnections
from gateway.machine.shared_counts import CountsRow, SharedCounts
from gateway.machine.shared_limiter import SharedLane, SharedLimiter
from gateway.machine.wakeups import Wakeups
from gateway.timeline import Clock

CONTROL: Final = 0


class MachineProcessSpec(msgspec.Struct, frozen=True, kw_only=True):
    """Start parameters of a process: its place among the others, and inherited descriptors."""

    column: int
    num_workers: int
    table: int
    """Shared counts."""
    own_pipe: int
    """Pipe by which others wake this process."""
    pipes: tuple[int, ...]
    """Pipes that wake each process, this one included."""
    channel: int
    """Channel by which a worker gets connections, and by which the control process reports that it is ready."""

    @property
    def is_control(self) -> bool:
        """Return whether it is the control process."""
        return self.column == CONTROL

    @property
    def name(self) -> str:
        """Return the name for logs."""
        return process_name_of(self.column)


class MachineProcess:
    """This process among the others."""

    def __init__(self, spec: MachineProcessSpec, runtime_dir: Path) -> None:
        """Take over the inherited descriptors."""
        self.spec = spec
        self._runtime_dir = runtime_dir
        counts = SharedCounts(spec.table, num_columns=num_columns_of(spec.num_workers), column=spec.column)
        for descriptor in (spec.own_pipe, *spec.pipes):
            os.set_blocking(descriptor, False)
        self.counts = counts
        self.wakeups = Wakeups(spec.own_pipe, spec.pipes)
        self.handed = HandedConnections(socket.socket(fileno=spec.channel), counts)

    @property
    def is_control(self) -> bool:
        """Return whether this is the control process."""
        return self.spec.is_control

    @property
    def worker_columns(self) -> range:
        """Return the columns of all workers."""
        return range(CONTROL + 1, self.spec.num_workers + 1)

    @property
    def own_socket(self) -> Path:
        """Return the socket on which the other processes reach this one."""
        return self.socket_of(self.spec.column)

    def socket_of(self, column: int) -> Path:
        """Return the socket of a process."""
        return socket_path_of(self._runtime_dir, column)

    def part_of(self, value: int) -> int:
        """Return a worker's part of a bound that holds for the machine, at least 1.

        Parts differ by one at most and add up to the bound, unless it is below the number of workers.
        """
        part, num_larger = divmod(value, self.spec.num_workers)
        return max(part + (self.spec.column <= num_larger), 1)

    def memory_part_of(self, num_bytes: int) -> int:
        """Return the even part of the machine's memory that a worker, or the control process, may use; at least 1."""
        return max(num_bytes // (self.spec.num_workers + 1), 1)

    def make_limiter(self, deployment: str, limit: Limit, clock: Clock) -> Limiter:
        """Return a limiter whose permits are those of all processes."""
        return SharedLimiter(limit, CountsRow(self.counts, f"deployment {deployment}"), self.wakeups, clock=clock)

    def make_lane(self, lane: str, rules: LaneRules) -> LiveLane:
        """Return a lane whose queue bound holds for all processes."""
        return SharedLane(lane, CountsRow(self.counts, f"lane {lane}"), rules=rules)


def process_name_of(column: int) -> str:
    """Return the name of a process for logs and the console."""
    return "control" if column == CONTROL else f"worker-{column}"


def num_columns_of(num_workers: int) -> int:
    """Return the columns of shared counts: the control process, the workers, and their supervisor last."""
    return num_workers + 2


def socket_path_of(runtime_dir: Path, column: int) -> Path:
    """Return the socket on which other processes of the gateway reach one."""
    return runtime_dir / f"w{column}.sock"
