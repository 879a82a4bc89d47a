"""Recorder: the last step of every request, taken exactly once."""

from __future__ import annotations

from gateway.telemetry.log import LogWriter
from gateway.telemetry.metrics import GatewayMetrics
from gateway.telemetry.record import RequestRecord


class Recorder:
    """Counts a finished request and queues its log line; neither waits."""

    __slots__ = ("_log", "_metrics")

    def __init__(self, metrics: GatewayMetrics, log: LogWriter) -> None:
        self._metrics = metrics
        self._log = log

    def record(self, record: RequestRecord) -> None:
        """The request is over; raises AssertionError when it has no outcome."""
        assert record.outcome is not None, "a request ended without an outcome"
        self._metrics.record(record)
        self._log.write(record)
