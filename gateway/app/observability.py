"""Observability: metrics, log lines, watchers and traces of finished requests, constructed for the app."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import get_args

from gateway.config.settings import GatewayConfig
from gateway.telemetry.logs.log import LogWriter
from gateway.telemetry.metrics import GatewayMetrics
from gateway.telemetry.recorder import Recorder
from gateway.telemetry.records.record import RequestRecord
from gateway.telemetry.tracing.tracing import End, Tracing
from gateway.timeline import Clock
from gateway.util.version import version

Watch = Callable[[RequestRecord], None]


class Observability:
    """The recorder of one process, and its tracing where the settings name a collector."""

    def __init__(
        self,
        config: GatewayConfig,
        metrics: GatewayMetrics,
        log: LogWriter,
        watchers: tuple[Watch, ...],
        *,
        rng: random.Random,
        clock: Clock,
        instance: str,
    ) -> None:
        """`instance` names this process among all that send to the same collector."""
        self._log = log
        self.tracing: Tracing | None = None
        if config.telemetry.trace.otlp_endpoint:
            ends = {end: metrics.traces.labels(end) for end in get_args(End)}  # its thread makes no new ones
            self.tracing = Tracing(
                config.telemetry.trace.otlp_endpoint,
                sample_ratio=config.telemetry.trace.sample_ratio,
                rng=rng,
                clock=clock,
                wall=time.time,
                version=version(),
                instance=instance,
                count=lambda end, num: ends[end].inc(num),
            )
            watchers = (*watchers, self.tracing.note)
        self.recorder = Recorder(
            metrics,
            log,
            watchers,
            log_sample_ratio=config.telemetry.log.sample_ratio,
            log_omitted=config.telemetry.log.omitted,
        )

    def start(self) -> None:
        """Begin to write and to send."""
        self._log.start()
        if self.tracing is not None:
            self.tracing.start()

    def close(self) -> None:
        """Send and write what waits; blocks, for a few seconds at most."""
        if self.tracing is not None:
            self.tracing.close()
        self._log.close()
