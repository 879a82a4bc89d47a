"""WorkerReport: what a worker reports of itself to the control process, which adds all reports up."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, Protocol, TypeVar

import msgspec

from gateway.admin.views.live_state import LiveState
from gateway.http.asgi import Receive, Scope, Send, respond
from gateway.telemetry.instruments import Counter, Gauge, Histogram, Instruments, MetricFamily

REPORT_PATH: Final = "/report"

Labels = tuple[str, ...]
Observations = tuple[list[int], float]
"""Observations by bucket, and their sum in seconds."""

T = TypeVar("T", Counter, Gauge, Histogram)
_encode: Final = msgspec.msgpack.Encoder().encode


class FamilyValues(msgspec.Struct, frozen=True, kw_only=True):
    """The values of all metric families, each child by its labels."""

    counters: dict[str, list[tuple[Labels, float]]] = {}
    gauges: dict[str, list[tuple[Labels, float]]] = {}
    histograms: dict[str, list[tuple[Labels, Observations]]] = {}


class WorkerReport(msgspec.Struct, frozen=True, kw_only=True):
    """The report of one life of a worker."""

    life: str
    """Name of the life; counts begin at 0 with another one."""
    values: FamilyValues
    live: LiveState
    hits: list[bytes] = []
    """Fingerprints of the cache entries that were served since the last report."""


def family_values(instruments: Instruments) -> FamilyValues:
    """Return the current values; gauges are set from live state first."""
    instruments.refresh()
    return FamilyValues(
        counters=_values(instruments.counters, lambda counter: float(counter.value)),
        gauges=_values(instruments.gauges, lambda gauge: float(gauge.value)),
        histograms=_values(instruments.histograms, lambda histogram: (list(histogram.counts), float(histogram.total))),
    )


V = TypeVar("V")


def _values(families: Iterable[MetricFamily[T]], value_of: Callable[[T], V]) -> dict[str, list[tuple[Labels, V]]]:
    return {
        family.name: [(labels, value_of(child)) for labels, child in children]
        for family in families
        if (children := tuple(family.children()))
    }


class Reports(Protocol):
    """Source of this process's report."""

    def __call__(self) -> WorkerReport:
        """Return the report of this moment."""
        ...


class ReportApplication:
    """ASGI application of a worker's socket: `GET /report` as msgpack."""

    def __init__(self, report: Reports) -> None:
        self._report = report

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["path"] == REPORT_PATH:
            await respond(send, 200, [(b"content-type", b"application/msgpack")], _encode(self._report()))
        else:
            await respond(send, 404, [], b"")
