"""The only place that constructs: from settings to a running gateway, and back down again."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import random
import signal
import sys
import time
from collections.abc import Coroutine, Mapping
from dataclasses import replace
from typing import Any, BinaryIO

from gateway.acceptance import acceptance
from gateway.admin.site import Operations, admin_map
from gateway.admission.admitter import Admitter
from gateway.cache.bypass import BypassCache
from gateway.config import GatewayConfig
from gateway.endpoints import Site
from gateway.errors import GatewayError, Shed
from gateway.forward import Forwarder
from gateway.http.descriptors import raise_open_file_limit
from gateway.http.server import Listener, Server
from gateway.ids import RequestIds
from gateway.pipeline import ChatPipeline
from gateway.policy_file import PolicyFile, PolicyRevision, PolicyStatus
from gateway.probes import Probes
from gateway.public import Models, public_map
from gateway.request import ChatRequestParser
from gateway.routing.live import LiveDeployment
from gateway.routing.readiness import ReadinessProber
from gateway.routing.retry_budget import RetryBudget
from gateway.routing.snapshot import PolicySnapshot, SnapshotBuilder
from gateway.telemetry.bridge import LoggingBridge
from gateway.telemetry.lag import LagMeter
from gateway.telemetry.log import LogWriter
from gateway.telemetry.metrics import GatewayMetrics
from gateway.telemetry.recorder import Recorder
from gateway.timeline import Outcome
from gateway.trimming.pass_through import PassThroughTrimmer

_RETIRE_POLL_S = 0.1
_MAX_ADMIN_CONNECTIONS = 256
_GC_THRESHOLDS = (20_000, 20, 50)


class Gateway:
    """One gateway process' parts. `start`, then `stop`; everything runs on the loop that called `start`."""

    def __init__(
        self,
        config: GatewayConfig,
        *,
        log_stream: BinaryIO,
        rng: random.Random | None = None,
        environment: Mapping[str, str] = os.environ,
    ) -> None:
        """`environment` holds the upstream keys that the policy names."""
        clock = time.monotonic
        chance = rng or random.Random()
        self.config = config
        self.metrics = GatewayMetrics()
        self.log = LogWriter(log_stream, level=config.log_level)
        self.snapshot: PolicySnapshot | None = None
        self._builder = SnapshotBuilder(clock=clock, rng=chance, environment=environment)
        self.policy_file = PolicyFile(
            config.policy,
            variables=config.policy_variables,
            accept=acceptance(config, environment),
            on_revision=self._take_revision,
            on_status=self._note_status,
            poll_s=config.policy_poll_s,
        )
        ids = RequestIds(chance)
        self.pipeline = ChatPipeline(
            policy=self._current,
            parser=ChatRequestParser(),
            admitter=Admitter(clock),
            trimmer=PassThroughTrimmer(),
            cache=BypassCache(),
            forwarder=Forwarder(clock=clock, metrics=self.metrics, budget=RetryBudget()),
            recorder=Recorder(self.metrics, self.log),
            log=self.log,
            ids=ids,
            clock=clock,
            max_body_bytes=config.edge.max_body_bytes,
        )
        self._ids = ids
        self._prober = ReadinessProber(self._deployments, self.log)
        self._tasks: set[asyncio.Task[None]] = set()
        self._lag: LagMeter | None = None
        self.server = self._make_server()
        self.metrics.instruments.before_scrape(self._read_live_state)

    def _make_server(self) -> Server:
        config = self.config
        probes = Probes(lambda: self.snapshot, lambda: self.server.draining.is_set())
        models = Models(self._current, int(time.time()))
        public = Site(public_map(self.pipeline, models, probes), ids=self._ids, log=self.log)
        admin = Site(
            admin_map(Operations(self.metrics, lambda: self._current().policy.has_keys), probes),
            ids=self._ids,
            log=self.log,
        )
        # Its own small part of the open files: a flood on the public listener leaves it alone.
        admin_limits = replace(config.edge, max_connections=min(config.edge.max_connections, _MAX_ADMIN_CONNECTIONS))
        return Server(
            [
                Listener(name="public", address=config.public_listen, app=public, limits=config.edge),
                Listener(name="admin", address=config.admin_listen, app=admin, limits=admin_limits),
            ],
            new_request_id=self._ids.next,
            on_refusal=self._count_refusal,
        )

    async def start(self) -> None:
        """Load the policy, probe once, listen. Raises PolicyFileError or OSError; nothing is left open then."""
        self.log.start()
        try:
            self.policy_file.load()
            await self._prober.probe_all()
            await self.server.start()
        except BaseException:
            await self._close()
            raise
        self._lag = LagMeter(asyncio.get_running_loop())
        self._lag.start()
        self._spawn(self._prober.run(), "readiness")
        self._spawn(self.policy_file.watch(), "policy")
        self.log.event("started", listening={name: list(found) for name, found in self.server.addresses.items()})

    async def stop(self, *, drain_timeout_s: float | None = None) -> None:
        """Drain, then close everything. What does not finish in time gets an error event."""
        timeout_s = self.config.drain_timeout_s if drain_timeout_s is None else drain_timeout_s
        self.log.event("draining", timeout_s=timeout_s)
        report = await self.server.drain(timeout_s)
        self.log.event("stopped", connections=report.num_connections, cancelled=report.num_cancelled)
        await self._close()

    def reload_soon(self) -> None:
        """Look at the policy file in the loop's next turns."""
        if self.snapshot is not None:
            self._spawn(self.policy_file.look(), "reload")

    async def _close(self) -> None:
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._lag is not None:
            self._lag.stop()
        await self.server.close()
        for deployment in self._deployments():
            await deployment.client.aclose()
        await asyncio.to_thread(self.log.close)

    # Policy

    def _current(self) -> PolicySnapshot:
        assert self.snapshot is not None, "requests are served only after the first policy was loaded"
        return self.snapshot

    def _deployments(self) -> tuple[LiveDeployment, ...]:
        return () if self.snapshot is None else tuple(self.snapshot.deployments.values())

    def _take_revision(self, revision: PolicyRevision) -> None:
        before = self._deployments()
        snapshot = self._builder.build(revision.policy, revision.revision, self.snapshot)
        self.snapshot = snapshot
        self.metrics.tenants = frozenset(tenant.id for tenant in revision.policy.tenants)
        self.metrics.policy_info.clear()
        self.metrics.policy_info.labels(revision.revision).set(1)
        for deployment in before:
            if snapshot.deployments.get(deployment.id) is not deployment:
                self._spawn(_retire(deployment), "retire")
        if before:
            self._spawn(self._prober.probe_all(), "probe")

    def _note_status(self, status: PolicyStatus) -> None:
        self.metrics.policy_reload_success.labels().set(1.0 if status.is_current else 0.0)
        if status.is_current:
            self.log.event("policy_in_force", revision=status.revision)
        else:
            self.log.event("policy_refused", level="error", revision=status.revision, error=status.error)

    # Telemetry

    def _count_refusal(self, listener: str, error: GatewayError) -> None:
        outcome = Outcome.SHED if isinstance(error, Shed) else Outcome.REJECTED
        self.metrics.requests.labels("", "", outcome).inc()
        if isinstance(error, Shed):
            self.metrics.shed.labels(error.lane, error.reason).inc()

    def _read_live_state(self) -> None:
        metrics = self.metrics
        for gauge in (metrics.queue_depth, metrics.concurrency_limit, metrics.in_flight, metrics.deployment_ready):
            gauge.clear()
        for live in self._deployments():
            metrics.concurrency_limit.labels(live.id).set(live.limiter.limit)
            metrics.in_flight.labels(live.id).set(live.limiter.in_flight)
            metrics.deployment_ready.labels(live.id).set(live.is_ready)
        for lane in self.snapshot.lanes.values() if self.snapshot is not None else ():
            metrics.queue_depth.labels(lane.id).set(lane.num_waiting)
        if self._lag is not None:
            metrics.loop_lag.labels().set(self._lag.take_worst_s())
        metrics.log_dropped.labels().value = float(self.log.num_dropped)

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.log.failure("background_task_failed", error, task=task.get_name())


async def _retire(deployment: LiveDeployment) -> None:
    """Close the connections of a deployment that left the policy, once its last request has ended."""
    while deployment.limiter.in_flight or deployment.limiter.num_waiting:
        await asyncio.sleep(_RETIRE_POLL_S)
    await deployment.client.aclose()


async def serve(config: GatewayConfig, *, log_stream: BinaryIO | None = None) -> int:
    """Run until SIGTERM or SIGINT, drain, and return the exit status. SIGHUP looks at the policy file at once.

    Raises PolicyFileError, ConfigError or OSError when it cannot start.
    """
    raise_open_file_limit()
    loop = asyncio.get_running_loop()
    gateway = Gateway(config, log_stream=log_stream or sys.stderr.buffer)
    bridge = LoggingBridge(gateway.log)
    logging.getLogger("penstock").addHandler(bridge)
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    loop.add_signal_handler(signal.SIGHUP, gateway.reload_soon)
    try:
        await gateway.start()
        _calm_collector()
        await stopping.wait()
        await gateway.stop()
    finally:
        logging.getLogger("penstock").removeHandler(bridge)
    return 0


def _calm_collector() -> None:
    """Requests leave no cycles behind: what lives now is frozen out of collections, which may be rare."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_GC_THRESHOLDS)
