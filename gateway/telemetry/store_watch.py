"""StoreWatch: the state of the store as metrics and log lines."""

from __future__ import annotations

from gateway.store.base import StoreLoss
from gateway.telemetry.logs.log import LogWriter
from gateway.telemetry.metrics import GatewayMetrics


class StoreWatch:
    """The gateway's StoreObserver."""

    __slots__ = ("_is_side", "_log", "_metrics", "_where")

    def __init__(self, metrics: GatewayMetrics, log: LogWriter, where: str, *, is_side: bool = False) -> None:
        """Set the store as down until it is reported up.

        Args:
            metrics: The metrics to update.
            log: The log to write to.
            where: Address of the store, without secrets.
            is_side: True for a side connection, whose operations count; only the main one reports the store as up or
                down.
        """
        self._metrics = metrics
        self._log = log
        self._where = where
        self._is_side = is_side
        if not is_side:
            metrics.store_up.labels().set(0.0)

    def took(self, operation: str, seconds: float) -> None:
        """Record the duration of an operation."""
        self._metrics.store_seconds.labels(operation).observe(seconds)

    def failed(self, operation: str, reason: StoreLoss) -> None:
        """Count a failed operation."""
        self._metrics.store_failures.labels(operation, reason).inc()

    def is_up(self, is_up: bool, reason: str) -> None:
        """Record and log that the store is up or lost."""
        if self._is_side:
            return
        self._metrics.store_up.labels().set(float(is_up))
        if is_up:
            self._log.event("store_up", store=self._where)
        else:
            self._log.event("store_lost", level="warning", store=self._where, error=reason)

    def damaged(self, what: str) -> None:
        """Log that the file of an embedded store was damaged."""
        self._log.event("store_damaged", level="error", store=self._where, error=what)
