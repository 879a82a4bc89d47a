"""StoreWatch: how the store does, as metrics and as lines in the log."""

from __future__ import annotations

from gateway.store.base import StoreLoss
from gateway.telemetry.logs.log import LogWriter
from gateway.telemetry.metrics import GatewayMetrics


class StoreWatch:
    """The gateway's StoreObserver."""

    __slots__ = ("_is_side", "_log", "_metrics", "_where")

    def __init__(self, metrics: GatewayMetrics, log: LogWriter, where: str, *, is_side: bool = False) -> None:
        """`where` is the store's address without secrets. A side connection's operations count; whether the store is
        up is for the main one to say."""
        self._metrics = metrics
        self._log = log
        self._where = where
        self._is_side = is_side
        if not is_side:
            metrics.store_up.labels().set(0.0)

    def took(self, operation: str, seconds: float) -> None:
        """As StoreObserver."""
        self._metrics.store_seconds.labels(operation).observe(seconds)

    def failed(self, operation: str, reason: StoreLoss) -> None:
        """As StoreObserver."""
        self._metrics.store_failures.labels(operation, reason).inc()

    def is_up(self, is_up: bool, reason: str) -> None:
        """As StoreObserver."""
        if self._is_side:
            return
        self._metrics.store_up.labels().set(float(is_up))
        if is_up:
            self._log.event("store_up", store=self._where)
        else:
            self._log.event("store_lost", level="warning", store=self._where, error=reason)

    def damaged(self, what: str) -> None:
        """An embedded store's file was no good."""
        self._log.event("store_damaged", level="error", store=self._where, error=what)
