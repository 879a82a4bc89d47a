"""Gateway: the parts of one process, constructed from its settings, started and stopped."""

from __future__ import annotations

import asyncio
import os
import platform
import secrets
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from functools import partial
from typing import Any, BinaryIO, Literal

from gateway.admin.context import AdminContext, AdminSources, Replica
from gateway.admin.views.engine_facts import EngineFacts
from gateway.admission.guard import OverloadGuard
from gateway.api.health import Probes
from gateway.app.connections.certificates import CertificateWatch, read_certificates
from gateway.app.connections.upstream_clients import connector_of
from gateway.app.control_plane import ControlPlane
from gateway.app.discovery.membership import Membership
from gateway.app.listeners import ServedParts, admin_listener, public_listener
from gateway.app.machine_parts import MachineParts, remote_embedder
from gateway.app.observability import Observability, read_live_gauges
from gateway.app.own_encoder import OwnEncoder
from gateway.app.policy_rollout import PolicyRollout
from gateway.app.recalls.recall_parts import RecallParts
from gateway.app.request_path import Protection, RequestPath
from gateway.app.response_cache import ResponseCache
from gateway.app.runtime import Runtime, Surroundings
from gateway.app.shared_state import SharedState
from gateway.background.task_group import BackgroundTasks
from gateway.cache.audit.match_models import MatchModels
from gateway.config.settings import GatewayConfig
from gateway.deployments.health.ejection import EjectionRules, FailureKind
from gateway.deployments.live import LiveDeployment
from gateway.deployments.liveness import LivenessWatch
from gateway.deployments.load_feed import LoadFeeds
from gateway.deployments.readiness import ReadinessProber
from gateway.diagnosis.collect import SampleCollector
from gateway.embedding.embedder import Embedder
from gateway.embedding.encoder import TextEncoder
from gateway.embedding.installed import InstalledEncoder
from gateway.embedding.sentence_encoder import SentenceEncoder
from gateway.errors import GatewayError, Shed
from gateway.http.server import Server
from gateway.limits.body_budget import BodyBudget
from gateway.machine.process import MachineProcess
from gateway.policies.policy_file import PolicyRevision, PolicyStatus
from gateway.policies.reading import PolicyHooks
from gateway.routing.quality_files import load_predictors
from gateway.routing.snapshot import Ejections, PolicyInForce, PolicySnapshot, SnapshotBuilder
from gateway.store.shared_clock import SharedClock
from gateway.telemetry.lag import LagMeter
from gateway.telemetry.logs.log import LogWriter
from gateway.telemetry.memory import body_budget_bytes, memory_limit_bytes, resident_bytes
from gateway.telemetry.metrics import GatewayMetrics
from gateway.telemetry.records.recent import RecentRequests
from gateway.timeline import Clock, Outcome, RequestIds
from gateway.util.workers import Workers
from routing_policies.policy.members import group_of
from routing_policies.quality.predictor import Predictors

WORKERS_END_S = 8.0
"""Time beyond notice and drain in which workers end, before the control process ends without them."""
_UNREAD_PARTS = 4
"""Divisor of the bodies' memory that bounds what a listener's clients may send too early or leave unfinished."""

LoadEncoder = Callable[[Executor], Awaitable[TextEncoder]]


class Gateway:
    """The parts of one gateway process. `start`, then `stop`; everything runs on the loop that called `start`."""

    def __init__(
        self,
        config: GatewayConfig,
        *,
        log_stream: BinaryIO,
        around: Surroundings | None = None,
        ejection: EjectionRules | None = None,
        load_encoder: LoadEncoder | None = None,
        match_models: MatchModels | None = None,
    ) -> None:
        around = around or Surroundings()
        clock = around.clock
        self.member = member = around.member
        self.config = config
        self.metrics = GatewayMetrics()
        self.log = LogWriter(log_stream, level=config.telemetry.log.level)
        self.policy = PolicyInForce()
        self._status: PolicyStatus | None = None
        self._workers = Workers(name="requests")
        runtime = self._runtime = self._make_runtime(around)
        protection = self._make_protection()
        self._guard, self.bodies = protection.guard, protection.bodies
        self._embedder = self._make_embedder(load_encoder)
        self._cache = self._make_cache(match_models or MatchModels.shipped())
        self._stores = self._make_stores()
        self._quotas = self._stores.quotas
        self._recalls = self._make_recalls(around)
        self.recent = RecentRequests(clock=clock, wall=time.time, name=f"{platform.node()}-{runtime.holder[:-12]}")
        predictors = load_predictors(config.policy.quality_dir)
        self.control = self._make_control(around, predictors)
        self._own_encoder = OwnEncoder(config, runtime, member=member, embedder=self._embedder)
        self.note_failed_task = runtime.note_failed_task
        self._tasks = BackgroundTasks(runtime.note_failed_task)
        self._rollout = self._make_rollout(around, ejection or EjectionRules(), predictors)
        self._observability = self._make_observability()
        self._path = self._make_path(protection, predictors)
        self.pipeline = self._path.pipeline
        self.quotes = self._path.quotes
        self._prober = ReadinessProber(self._deployments, self.log, on_probed=self._path.room.wake, clock=clock)
        self._liveness = LivenessWatch(self._deployments, clock)
        self._feeds = LoadFeeds(self._deployments, clock)
        self._lag: LagMeter | None = None
        self._machine = None if member is None else self._make_machine(member)
        self._num_drops_counted = 0
        self.room = self._make_room(clock)
        self.server = self._make_server()
        self.metrics.instruments.before_scrape(self._read_live_state)

    @property
    def snapshot(self) -> PolicySnapshot | None:
        """Return the policy snapshot for new requests; None before the first policy was loaded."""
        return self.policy.snapshot

    def _make_runtime(self, around: Surroundings) -> Runtime:
        return Runtime(
            holder=f"{os.getpid()}-{secrets.token_hex(8)}",
            log=self.log,
            metrics=self.metrics,
            ids=RequestIds(around.rng),
            rng=around.rng,
            clock=around.clock,
            wall=SharedClock(around.wall),
            workers=self._workers,
            open_store=around.open_store,
        )

    def _make_protection(self) -> Protection:
        """Return the guards of memory; one of several processes of a gateway gets its part of the limits."""
        memory_limit = memory_limit_bytes(self.config.process.memory_limit_mb)
        body_bytes = body_budget_bytes(memory_limit)
        if self.member is not None:
            memory_limit = None if memory_limit is None else self.member.memory_part_of(memory_limit)
            body_bytes = self.member.memory_part_of(body_bytes)
        return Protection(
            guard=OverloadGuard(memory_limit_bytes=memory_limit, resident_bytes=resident_bytes),
            bodies=BodyBudget(body_bytes),
        )

    def _make_cache(self, match_models: MatchModels) -> ResponseCache:
        cache = ResponseCache(
            self.config,
            self._runtime,
            match_models=match_models,
            embedder=self._embedder,
            policy=self.policy,
            guard=self._guard,
            member=self.member,
        )
        cache.exact.on_doubt = self._note_wrong
        return cache

    def _make_stores(self) -> SharedState:
        stores = SharedState(self.config, self._runtime, self._cache.exact, self.member)
        if stores.sharing is not None and self._cache.is_in_file:
            stores.sharing.takes_entries = lambda: self._cache.is_semantic
        return stores

    def _make_control(self, around: Surroundings, predictors: Predictors) -> ControlPlane:
        control = ControlPlane(
            self.config,
            self._runtime,
            self._stores.control,
            environment=around.environment,
            predictors=predictors,
            policy=self.policy,
            hooks=PolicyHooks(on_revision=self._take_revision, on_status=self._note_status),
            on_trial=lambda policy, canary: self._rollout.take_trial(policy, canary),
        )
        self._cache.on_audit = control.note_audit
        return control

    def _make_recalls(self, around: Surroundings) -> RecallParts:
        runtime, cache = self._runtime, self._cache
        recalls = RecallParts(
            self.config.cache.recalls,
            self._stores.control,
            environment=around.environment,
            holder=runtime.holder,
            log=self.log,
            metrics=self.metrics,
            clock=around.clock,
            wall=runtime.wall,
        )
        recalls.follow(cache.auditor)
        cache.on_verdict = recalls.note_audit
        cache.on_feedback = recalls.note_wrong
        return recalls

    def _make_rollout(self, around: Surroundings, ejection: EjectionRules, predictors: Predictors) -> PolicyRollout:
        self._builder = self._make_builder(around, ejection, predictors)
        self._builder.departures.drain_s = self.config.process.discovery.drain_s
        self._membership = Membership(
            self.config.process.discovery,
            self._stores.control,
            log=self.log,
            metrics=self.metrics,
            clock=around.clock,
            environment=around.environment,
            on_change=lambda: self._rollout.take_members(),
        )
        return PolicyRollout(
            self.policy,
            self._builder,
            self._membership,
            spawn=self._tasks.spawn,
            probe_all=lambda: self._prober.probe_all(),
            apply_drains=lambda: self.room.drains.apply(),
            log=self.log,
        )

    def _make_builder(self, around: Surroundings, ejection: EjectionRules, predictors: Predictors) -> SnapshotBuilder:
        builder = SnapshotBuilder(
            clock=around.clock,
            rng=around.rng,
            environment=around.environment,
            connect=around.connect or connector_of(around.clock, self._own_encoder.joins),
            ejections=Ejections(rules=ejection, report=self._count_ejection),
            zone=self.config.process.zone or None,
            stored_keys=self.control.directory.keys,
            predictors=predictors,
        )
        if self.member is not None:
            builder.make_limiter, builder.make_lane = self.member.make_limiter, self.member.make_lane
        return builder

    def _make_observability(self) -> Observability:
        control = self.control
        observers = (*control.watchers(), self.recent.note)
        return Observability(self.config, self._runtime, observers, control.sampler, control.answer_log)

    def _make_path(self, protection: Protection, predictors: Predictors) -> RequestPath:
        return RequestPath(
            self.config,
            self._runtime,
            policy=self.policy,
            protection=protection,
            cache=self._cache,
            predictors=predictors,
            stores=self._stores,
            observability=self._observability,
        )

    def _make_machine(self, member: MachineProcess) -> MachineParts:
        return MachineParts(member, self._runtime, self._cache, lambda: self.room.live(), self._path.open_quotes)

    def _make_embedder(self, load_encoder: LoadEncoder | None) -> Embedder:
        if self.member is not None and not self.member.is_control:
            return remote_embedder(self.member, self._runtime)
        named = SentenceEncoder(self.config.cache.encoder) if self.config.cache.encoder else None
        packaged = InstalledEncoder(self.config.process.runtime_dir / "encoder", "int8")
        return Embedder(
            load_encoder or (packaged.load if named is None else partial(self._load_named, named)),
            close=None if named is None else named.close,
            count=lambda result: self.metrics.embeddings.labels(result).inc(),
            on_failure=lambda error: self.log.failure("encoder_failed", error),
        )

    async def _load_named(self, named: SentenceEncoder, thread: Executor) -> TextEncoder:
        encoder = await named.load(thread)
        level: Literal["info", "warning"] = "warning" if named.reason else "info"
        self.log.event(
            "encoder_loaded", level=level, encoder=encoder.id, backend=named.backend, graph_unused=named.reason or None
        )
        return encoder

    def _make_room(self, clock: Clock) -> AdminContext:
        return AdminContext(
            replica=Replica(
                name=self.recent.name,
                store=self._stores.control,
                is_shared=self.config.store_address.kind != "embedded",
                is_worker=self.member is not None and not self.member.is_control,
                has_workers=self.member is not None and self.member.is_control,
            ),
            sources=AdminSources(
                snapshot=lambda: self.snapshot,
                metrics=self.metrics,
                recent=self.recent,
                cache=self._cache.exact,
                route_stats=self._cache.route_stats,
                facts=self._facts,
                departing=lambda: self._builder.departures.members,
                groups=lambda: self._membership.groups(self.snapshot),
                workers=lambda: () if self._machine is None else self._machine.live_states,
            ),
            engines=EngineFacts(lambda: {} if self.snapshot is None else self.snapshot.deployments.values(), clock),
            probe_soon=lambda: self._tasks.spawn(self._prober.probe_all(), "probe"),
            audit=self.control.audit,
            clock=clock,
        )

    def _make_server(self) -> Server:
        certificates = read_certificates(self.config)
        self._certificates = CertificateWatch(certificates, self.log)
        parts = ServedParts(
            config=self.config,
            runtime=self._runtime,
            policy=self.policy,
            bodies=self.bodies,
            cache=self._cache,
            stores=self._stores,
            recalls=self._recalls,
            control=self.control,
            path=self._path,
            room=self.room,
            probes=Probes(lambda: self.snapshot, lambda: self.server.leaving.is_set()),
            samples=SampleCollector(
                self.metrics, self._deployments, lambda: self._lag, self.room.history, time.monotonic
            ),
            note_wrong=self._note_wrong,
            refresh=None if self._machine is None else self._machine.refresh,
        )
        both = [
            public_listener(parts, certificates.get("public")),
            admin_listener(parts, certificates.get("admin")),
        ]
        return Server(
            both if self._machine is None else self._machine.listeners(*both),
            new_request_id=self._runtime.ids.next,
            on_refusal=self._count_refusal,
            max_unread_bytes=self.bodies.total_bytes // _UNREAD_PARTS,
        )

    async def start(self) -> None:
        """Load the policy, probe once, listen. Raises PolicyFileError, ConfigError or OSError; nothing stays open."""
        self._observability.start()
        try:
            await self._own_encoder.start()
            await self._stores.try_reach()
            await self.control.load()
            await self._membership.settle()
            await self._prober.probe_all()
            await self.server.start()
        except BaseException:
            await self._close()
            raise
        self._lag = LagMeter(asyncio.get_running_loop(), on_tick=self._guard.note_lag)
        self._lag.start()
        keep = self._tasks.keep
        keep(self._prober.run, "readiness")
        keep(self._liveness.run, "liveness")
        keep(self._feeds.run, "load_feeds")
        keep(self._builder.departures.run, "departures")
        keep(self._certificates.run, "certificates")
        self.control.start(keep)
        self._stores.start(keep)
        self.room.start(keep)
        self._recalls.start(keep)
        keep(self._path.labels.run, "labels")
        keep(partial(self._cache.run, self._stores.control, self._stores.sharing), "response_cache")
        listening = {name: list(found) for name, found in self.server.addresses.items()}
        if self.member is None or self._machine is None:
            self.log.event("started", listening=listening)
        else:
            self._machine.start(keep)
            self.log.event("process_started", process=self.member.spec.name, pid=os.getpid())

    @property
    def is_idle(self) -> bool:
        """Return whether no request is at any deployment."""
        return all(not live.limiter.own_in_flight for live in self._deployments())

    async def leave(self) -> None:
        """Announce that this process will end, serve for the time in the settings, and accept no more.

        A control process serves operators, and the workers, until the last worker has ended.
        """
        notice_s = self.config.process.drain_notice_s
        self.log.event("leaving", notice_s=notice_s)
        if self.member is not None and self.member.is_control:
            self.server.leaving.set()
            await self.member.handed.until_ended(notice_s + self.config.process.drain_timeout_s + WORKERS_END_S)
            notice_s = 0.0
        await self.server.leave(notice_s)

    async def stop(self, *, drain_timeout_s: float | None = None) -> None:
        """Drain, then close everything. A response that does not finish in time gets an error event."""
        timeout_s = self.config.process.drain_timeout_s if drain_timeout_s is None else drain_timeout_s
        self.log.event("draining", timeout_s=timeout_s)
        report = await self.server.drain(timeout_s)
        self.log.event("stopped", connections=report.num_connections, cancelled=report.num_cancelled)
        await self._close()

    def reload_soon(self) -> None:
        """Read the policy file in the loop's next turns."""
        if self.snapshot is not None:
            self._tasks.spawn(self.control.look(), "reload")
            self._tasks.spawn(asyncio.to_thread(self._certificates.look), "certificates")

    def _note_wrong(self, request_id: str, tenant: str) -> bool:
        """Pass on a wrong verdict; return whether a canary or a quality prediction waited for it."""
        is_tried = self.control.note_wrong(request_id, tenant)
        return self._path.learner.note_wrong(request_id, tenant) or is_tried

    async def _close(self) -> None:
        await self._recalls.stop_sending()
        await self._tasks.cancel()
        await self._membership.aclose()
        self._rollout.call_off_retry()
        if self._lag is not None:
            self._lag.stop()
        await self.server.close()
        await self._path.aclose()
        self._workers.shutdown(wait=False, cancel_futures=True)
        await self.room.aclose()
        await self.control.flush()
        await self._cache.aclose()
        await self._recalls.aclose()
        await self._stores.aclose()
        await self._embedder.aclose()  # last of the two: it waits for a batch that a thread computes
        for deployment in self._deployments():
            await deployment.client.aclose()
        if self._machine is not None:
            await self._machine.aclose()
        await self._own_encoder.aclose()
        await asyncio.to_thread(self._observability.close)

    # Policy

    def _current(self) -> PolicySnapshot:
        return self.policy.current

    def _deployments(self) -> tuple[LiveDeployment, ...]:
        """Return the deployments in force, and members that drain."""
        return self._rollout.deployments

    def _take_revision(self, revision: PolicyRevision) -> None:
        """Put a revision into force in all parts. Raises ReachError; the revision before is in force then."""
        before = self._rollout.in_force
        snapshot = self._rollout.build(revision)
        self._recalls.configure(revision.policy)
        self._rollout.put_in_force(snapshot)
        self._quotas.configure(revision.policy)
        self.metrics.follow(revision.policy, revision.revision)
        self.room.drains.apply()
        self._cache.note_policy(revision.policy)
        self._own_encoder.note_policy(revision.policy)
        if snapshot.router.learns:
            self._path.labels.begin()
        self._rollout.let_go(before)

    def _note_status(self, status: PolicyStatus) -> None:
        self._status = status
        self.metrics.policy_reload_success.labels().set(1.0 if status.is_current else 0.0)
        if status.is_current:
            self.log.event("policy_in_force", revision=status.revision)
        else:
            self.log.event("policy_refused", level="error", revision=status.revision, error=status.error)

    # Telemetry

    def _facts(self) -> dict[str, Any]:
        """Return the facts that every admin page shows at its top."""
        status = self._status
        policy = {"revision": "", "is_current": True, "error": None}
        if status is not None:
            policy = {"revision": status.revision, "is_current": status.is_current, "error": status.error}
        return {
            "policy": policy,
            "store": {"is_up": self._stores.limits.is_up, "where": self.config.store_address.shown},
            "is_draining": self.server.leaving.is_set(),
            "callers": self.control.access.state,
        }

    def _count_refusal(self, listener: str, error: GatewayError) -> None:
        outcome = Outcome.SHED if isinstance(error, Shed) else Outcome.REJECTED
        self.metrics.requests.labels("", "", outcome).inc()
        if isinstance(error, Shed):
            self.metrics.shed.labels(error.lane, error.reason).inc()
        else:
            self.metrics.rejected.labels(str(error.status)).inc()

    def _count_ejection(self, deployment: str, kind: FailureKind, backoff_s: float) -> None:
        self.metrics.ejections.labels(group_of(deployment), kind).inc()
        self.log.event("deployment_ejected", level="warning", deployment=deployment, reason=kind, backoff_s=backoff_s)

    def _read_live_state(self) -> None:
        lanes = () if self.snapshot is None else self.snapshot.lanes.values()
        read_live_gauges(self.metrics, self._deployments(), lanes)
        self._membership.read_state(self.snapshot, self._builder.departures.members)
        self._cache.read_state()
        self.metrics.quotes_held.labels().set(len(self._path.open_quotes))
        if self._lag is not None:
            self.metrics.loop_lag.labels().set(self._lag.take_worst_s())
        self.metrics.tasks.labels().set(len(asyncio.all_tasks()))
        self.metrics.body_bytes.labels().set(self.bodies.used_bytes)
        num_dropped = self.log.num_dropped
        self.metrics.log_dropped.labels().inc(float(num_dropped - self._num_drops_counted))
        self._num_drops_counted = num_dropped
        if self._machine is not None:
            # What this process has for itself: the gauges have the workers' values of the last scrape too.
            self.metrics.store_up.labels().set(float(self._stores.limits.is_up))
            if self._status is not None:
                self.metrics.policy_reload_success.labels().set(float(self._status.is_current))
            self._machine.set_gauges()
