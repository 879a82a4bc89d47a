"""ReportReader: the control process's view of the workers, by the reports that it reads from their sockets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from gateway.admin.views.live_state import LiveState
from gateway.machine.machine_metrics import MachineMetrics
from gateway.machine.reports import REPORT_PATH, WorkerReport
from gateway.upstreams.client import UpstreamClient
from gateway.upstreams.http1.errors import UpstreamError
from gateway.upstreams.http1.request import ExchangeTimeouts, UpstreamRequest

READ_S: Final = 1.0
"""Time between two reports of a worker, and the most that is lost of what a killed worker counted."""
_MAX_BYTES: Final = 64 * 1024 * 1024
_REQUEST: Final = UpstreamRequest(b"GET", REPORT_PATH.encode(), ())
_TIMEOUTS: Final = ExchangeTimeouts(connect_s=0.5, first_byte_s=0.5, total_s=1.0)
_decoder: Final = msgspec.msgpack.Decoder(WorkerReport)


class ReportReader:
    """Reads all workers' reports every second, and anew for every scrape."""

    def __init__(
        self,
        clients: Mapping[int, UpstreamClient],
        metrics: MachineMetrics,
        *,
        on_hits: Callable[[list[bytes]], None],
        on_failure: Callable[[Exception], None],
    ) -> None:
        """Create a reader.

        Args:
            clients: Client of each worker's socket.
            metrics: Metrics that the reports are added to.
            on_hits: Gets the cache entries that workers served.
            on_failure: Gets the error of a report that cannot be read.
        """
        self._on_failure = on_failure
        self._clients = clients
        self._metrics = metrics
        self._on_hits = on_hits
        self._live: dict[int, LiveState] = {}
        self._current: asyncio.Task[None] | None = None
        self._next: asyncio.Task[None] | None = None

    @property
    def live_states(self) -> tuple[LiveState, ...]:
        """Return the live states in the last reports."""
        return tuple(self._live.values())

    async def run(self) -> None:
        """Read for ever; ends by cancellation."""
        while True:
            await self.refresh()
            await asyncio.sleep(READ_S)

    async def refresh(self) -> None:
        """Read what the workers have counted up to this call; calls that wait at the same time share one reading."""
        if self._next is None:
            self._next = asyncio.create_task(self._read_after(self._current), name="worker_reports")
        await asyncio.shield(self._next)

    async def aclose(self) -> None:
        """Close the connections."""
        for client in self._clients.values():
            await client.aclose()

    async def _read_after(self, current: asyncio.Task[None] | None) -> None:
        if current is not None:  # it may have read a worker before that counted what this call is about
            await asyncio.wait([current])
        self._current, self._next = self._next, None
        await asyncio.gather(*(self._read(column, client) for column, client in self._clients.items()))

    async def _read(self, column: int, client: UpstreamClient) -> None:
        try:
            async with await client.send(_REQUEST, _TIMEOUTS) as response:
                report = _decoder.decode(await response.read(_MAX_BYTES))
            self._live[column] = report.live
            self._metrics.take(column, report)
            self._on_hits(report.hits)
        except UpstreamError:  # it starts, or has died
            self._lose(column)
        except Exception as error:  # of another version of this program; the other workers are read on
            self._on_failure(error)
            self._lose(column)

    def _lose(self, column: int) -> None:
        self._live.pop(column, None)
        self._metrics.drop(column)
