"""MachineParts: what a process does as one of several of a gateway, put together beside the app."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from gateway.admin.views.live_state import LiveState
from gateway.app.connections.upstream_clients import open_upstream
from gateway.app.response_cache import ResponseCache
from gateway.app.runtime import Runtime
from gateway.embedding.embedder import Embedder
from gateway.http.server import Listener
from gateway.machine.machine_metrics import MachineMetrics
from gateway.machine.process import CONTROL, MachineProcess
from gateway.machine.report_reader import ReportReader
from gateway.machine.reports import ReportApplication, WorkerReport, family_values
from gateway.machine.shared_addresses import SharedAddresses
from gateway.machine.vectors import RemoteEncoder
from gateway.quotes.serving.handed_quotes import HandedQuotesApplication
from gateway.quotes.serving.open_quotes import OpenQuotes
from gateway.upstreams.http1.target import Target
from gateway.upstreams.pool import PoolLimits
from gateway.util.doubling_pauses import Keep

_CONNECTIONS: Final = PoolLimits(max_connections=4)
"""Limits of the control process's connections to one worker."""


class MachineParts:
    """A worker reports to the control process; the control process reads the reports of all workers."""

    def __init__(
        self,
        member: MachineProcess,
        runtime: Runtime,
        cache: ResponseCache,
        live: Callable[[], LiveState],
        open_quotes: OpenQuotes,
    ) -> None:
        """Prepare the part of a process; `live` returns its live state, and other workers may fetch its open quotes."""
        self._member = member
        self._open_quotes = open_quotes
        self._runtime = runtime
        self._cache = cache
        self._live = live
        self._metrics = MachineMetrics(runtime.metrics)
        self._reader = self._make_reader() if member.is_control else None

    @property
    def live_states(self) -> Sequence[LiveState]:
        """Live states of the workers, in the control process."""
        return () if self._reader is None else self._reader.live_states

    def listeners(self, public: Listener, admin: Listener) -> list[Listener]:
        """Return this process's listeners: the admin's, or of a worker the public one's and one for its reports."""
        member = self._member
        if member.is_control:
            return [admin]
        connections = public.limits.connections
        per_worker = replace(connections, max_total=member.part_of(connections.max_total))
        reports = HandedQuotesApplication(self._open_quotes, ReportApplication(self._report), clock=self._runtime.clock)
        return [
            replace(
                public,
                limits=replace(public.limits, connections=per_worker),
                handed=member.handed,
                addresses=SharedAddresses(member.counts),
            ),
            replace(admin, name="reports", address=f"unix:{member.own_socket}", app=reports, certificate=None),
        ]

    def set_gauges(self) -> None:
        """Combine the gauges of all workers, in the control process."""
        if self._reader is not None:
            self._metrics.set_gauges()

    async def refresh(self) -> None:
        """Bring the metrics of all workers up to date, in the control process."""
        if self._reader is not None:
            await self._reader.refresh()

    def start(self, keep: Keep) -> None:
        """Begin to share what this process has."""
        self._member.wakeups.begin()
        if self._reader is not None:
            keep(self._reader.run, "worker_reports")

    async def aclose(self) -> None:
        """Close the connections to other processes."""
        self._member.wakeups.end()
        if self._reader is not None:
            await self._reader.aclose()

    def _make_reader(self) -> ReportReader:
        member, runtime = self._member, self._runtime
        clients = {
            column: open_upstream(
                Target.parse(f"unix:{member.socket_of(column)}"), limits=_CONNECTIONS, clock=runtime.clock
            )
            for column in member.worker_columns
        }
        return ReportReader(
            clients,
            self._metrics,
            on_hits=self._cache.note_hits,
            on_failure=lambda error: runtime.log.failure("worker_report_unreadable", error),
        )

    def _report(self) -> WorkerReport:
        """Return this worker's report."""
        return WorkerReport(
            life=self._runtime.holder,
            values=family_values(self._runtime.metrics.instruments),
            live=self._live(),
            hits=self._cache.take_hits(),
        )


def remote_embedder(member: MachineProcess, runtime: Runtime) -> Embedder:
    """Return a worker's embedder, whose batches the control process encodes."""
    encoder = RemoteEncoder(member.socket_of(CONTROL))
    return Embedder(
        encoder.load,
        close=encoder.close,
        count=lambda result: runtime.metrics.embeddings.labels(result).inc(),
        on_failure=lambda error: runtime.log.failure("encoder_failed", error),
    )
