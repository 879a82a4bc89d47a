"""AdminContext: everything behind the admin page, put together beside the app; it only reads what the gateway does."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from gateway.access.audit_log import AuditLog
from gateway.admin.adapters import AdapterOrders
from gateway.admin.api.request import AdminEndpoint, endpoints_of
from gateway.admin.assets import Assets
from gateway.admin.drains import Drains
from gateway.admin.handlers.members import MemberHandlers
from gateway.admin.handlers.requests import RequestHandlers
from gateway.admin.live_feed import LiveFeed
from gateway.admin.pages import Pages
from gateway.admin.views.engine_facts import EngineFacts
from gateway.admin.views.group_state import GroupState
from gateway.admin.views.live_state import LiveState, live_state, of_machine
from gateway.admin.views.replicas import Replicas
from gateway.admin.views.shared_requests import SharedRequests
from gateway.admin.views.similar_error import worst_error
from gateway.admin.views.view import View
from gateway.cache.audit.route_stats import RouteStatsTable
from gateway.cache.exact.exact_cache import ExactCache
from gateway.deployments.live import LiveDeployment
from gateway.routing.snapshot import PolicySnapshot
from gateway.store.base import Store
from gateway.telemetry.history_keeper import keep_history
from gateway.telemetry.metrics import GatewayMetrics
from gateway.telemetry.records.recent import RecentRequests
from gateway.timeline import Clock
from gateway.util.doubling_pauses import Keep


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """This process among all that share a store."""

    name: str
    store: Store
    is_shared: bool
    """True if there may be other processes."""
    is_worker: bool = False
    """True if the control process of this machine reports for this one."""
    has_workers: bool = False
    """True if this process reports for the workers of this machine."""

    @property
    def shared_store(self) -> Store | None:
        """The store for reports; None where this process is alone, or another one reports for it."""
        return self.store if self.is_shared and not self.is_worker else None

    @property
    def requests_store(self) -> Store | None:
        """The store for finished requests, None where this process is alone."""
        return self.store if self.is_shared or self.is_worker or self.has_workers else None


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminSources:
    """The sources of the pages' data."""

    snapshot: Callable[[], PolicySnapshot | None]
    metrics: GatewayMetrics
    recent: RecentRequests
    cache: ExactCache
    route_stats: RouteStatsTable
    facts: Callable[[], Mapping[str, Any]]
    departing: Callable[[], tuple[LiveDeployment, ...]]
    """Members that are no longer listed and finish their requests."""
    groups: Callable[[], tuple[GroupState, ...]]
    """Deployments with members, and the state of their sources."""
    workers: Callable[[], Sequence[LiveState]] = tuple
    """Live states of this machine's workers; none where one process serves."""


class AdminContext:
    """The pages, their data sources, and the few actions that they offer."""

    def __init__(
        self,
        *,
        replica: Replica,
        sources: AdminSources,
        engines: EngineFacts,
        probe_soon: Callable[[], None],
        audit: AuditLog,
        clock: Clock,
    ) -> None:
        name, store, recent = replica.name, replica.store, sources.recent
        self._snapshot = sources.snapshot
        self._cache = sources.cache
        self._sources = sources
        self._workers = sources.workers
        self._clock = clock
        self.history = sources.metrics.history(time.time)
        self._engines = engines
        self.view = View(
            name=name,
            history=self.history,
            live=self.live,
            facts=sources.facts,
            engines=self._engines,
            similar_error=lambda: worst_error(sources.route_stats),
            wall=time.time,
        )
        self._replicas = Replicas(replica.shared_store, name, self.view.report, clock=clock)
        self.view.replicas = self._replicas
        self.drains = Drains(self._deployments, store, audit, probe_soon)
        self._adapters = AdapterOrders(self._deployments, audit)
        self._members = MemberHandlers(store, audit)
        self._shared_requests = SharedRequests(replica.requests_store, name, recent, clock=clock)
        self._requests = RequestHandlers(recent, self._shared_requests, self.view.who_reports)
        self.feed = LiveFeed(self.view, self._requests, clock=clock)
        self.assets = Assets()
        self._pages = Pages(self.assets)

    def endpoints(self) -> list[AdminEndpoint]:
        """Return its part of the admin listener, assets excepted."""
        handlers = (self.view, self._requests, self.feed, self.drains, self._adapters, self._members)
        return [*self._pages.endpoints(), *endpoints_of(*handlers)]

    def start(self, keep: Keep) -> None:
        """Begin what runs in the background."""
        keep(partial(keep_history, self.history), "history")
        keep(self.drains.run, "drains")
        keep(self._replicas.run, "replicas")
        keep(self._shared_requests.run, "shared_requests")

    async def aclose(self) -> None:
        """Leave no trace with the others."""
        await self._engines.aclose()
        await self._replicas.leave()
        await self._shared_requests.leave()

    def _deployments(self) -> Mapping[str, LiveDeployment]:
        snapshot = self._snapshot()
        return {} if snapshot is None else snapshot.deployments

    def live(self) -> LiveState:
        """Return lanes and deployments as they are at this moment."""
        cache = self._cache
        own = live_state(
            self._snapshot(),
            self._clock(),
            cache_entries=cache.num_entries,
            cache_bytes=cache.num_bytes,
            departing=self._sources.departing(),
            groups=self._sources.groups(),
        )
        return of_machine(own, self._workers())
