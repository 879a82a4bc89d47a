"""Observability: metrics, log lines, watchers and traces of finished requests, constructed for the app."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import get_args

from gateway.app.runtime import Runtime
from gateway.config.settings import GatewayConfig
from gateway.routing.sampling import RecordingSampler
from gateway.telemetry.recorder import Recorder
from gateway.telemetry.records.record import RequestRecord
from gateway.telemetry.tracing.tracing import End, Tracing
from gateway.util.version import version

Watch = Callable[[RequestRecord], None]


class Observability:
    """The recorder of one process, and its tracing where the settings name a collector."""

    def __init__(
        self,
        config: GatewayConfig,
        runtime: Runtime,
        watchers: tuple[Watch, ...],
        sampler: RecordingSampler | None = None,
    ) -> None:
        """Assemble the recorder and tracing; `sampler` records requests for replay, None records nothing."""
        self._log = runtime.log
        self.sampler = sampler
        self.tracing: Tracing | None = None
        trace, log = config.telemetry.trace, config.telemetry.log
        if trace.otlp_endpoint:
            # The thread of the traces makes no new ones.
            ends = {end: runtime.metrics.traces.labels(end) for end in get_args(End)}
            self.tracing = Tracing(
                trace.otlp_endpoint,
                sample_ratio=trace.sample_ratio,
                rng=runtime.rng,
                clock=runtime.clock,
                wall=time.time,
                version=version(),
                instance=runtime.holder,
                count=lambda end, num: ends[end].inc(num),
            )
            watchers = (*watchers, self.tracing.note)
        self.recorder = Recorder(
            runtime.metrics, runtime.log, watchers, log_sample_ratio=log.sample_ratio, log_omitted=log.omitted
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
