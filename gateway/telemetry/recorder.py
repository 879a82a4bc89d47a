"""Recorder: the last step of every request, taken exactly once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from gateway.telemetry.log import Level, LogWriter
from gateway.telemetry.metrics import GatewayMetrics
from gateway.telemetry.record import RequestRecord
from gateway.timeline import Outcome

_LEVELS: Final[dict[Outcome, Level]] = {
    Outcome.FAILED: "error",
    Outcome.UPSTREAM_FAILED: "warning",
    Outcome.UPSTREAM_TIMEOUT: "warning",
}


class Recorder:
    """Counts a finished request and queues its log line; neither waits."""

    __slots__ = ("_log", "_metrics", "watchers")

    def __init__(
        self, metrics: GatewayMetrics, log: LogWriter, watchers: tuple[Callable[[RequestRecord], None], ...] = ()
    ) -> None:
        self._metrics = metrics
        self._log = log
        self.watchers = watchers
        """Who else is told of each request; none of them may wait or fail."""

    def record(self, record: RequestRecord) -> None:
        """The request is over; raises AssertionError when it has no outcome."""
        assert record.outcome is not None, "a request ended without an outcome"
        self._metrics.record(record)
        self._log.write(record, _LEVELS.get(record.outcome, "info"))
        for watch in self.watchers:
            watch(record)
