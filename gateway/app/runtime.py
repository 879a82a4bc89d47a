"""Runtime and Surroundings: what all parts of one process share, and what a simulation replaces."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from gateway.machine.process import MachineProcess
from gateway.routing.snapshot import Connect
from gateway.store.base import Store
from gateway.store.shared_clock import SharedClock
from gateway.telemetry.logs.log import LogWriter
from gateway.telemetry.metrics import GatewayMetrics
from gateway.timeline import Clock, RequestIds
from gateway.util.workers import Workers


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """Clock, random source, variables and connections of a process; a simulation brings its own."""

    clock: Clock = time.monotonic
    wall: Callable[[], float] = time.time
    rng: random.Random = field(default_factory=random.SystemRandom)
    """Source of request ids and draws; one that no id gives away."""
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ)
    """Variables with the upstream keys that the policy names."""
    connect: Connect | None = None
    """Constructor of each deployment's client; None: one that sends."""
    open_store: Callable[[], Store] | None = None
    """Constructor of the stores; None: those that the settings name."""
    member: MachineProcess | None = None
    """This process among those of one gateway; None where it is the only one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """Objects that every part of one process may use."""

    holder: str
    """Name of this process among all that share the store."""
    log: LogWriter
    metrics: GatewayMetrics
    ids: RequestIds
    rng: random.Random
    clock: Clock
    wall: SharedClock
    """Seconds since 1970, by the store's clock."""
    workers: Workers
    """Threads for work that takes too long for the event loop."""
    open_store: Callable[[], Store] | None = None
    """Constructor of the stores; None: those that the settings name."""

    def note_failed_task(self, name: str, error: BaseException) -> None:
        """Count and log what failed in the background."""
        self.metrics.background_failures.labels(name).inc()
        self.log.failure("background_task_failed", error, task=name)
