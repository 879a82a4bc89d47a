"""Observability: metrics, log lines, watchers and traces of finished requests, and gauges of what is live."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import get_args

from gateway.app.runtime import Runtime
from gateway.config.settings import GatewayConfig
from gateway.deployments.live import LiveDeployment
from gateway.limits.lane import LiveLane
from gateway.routing.sampling import RecordingSampler
from gateway.telemetry.metrics import FORECAST_ERROR_SHARES, GatewayMetrics
from gateway.telemetry.recorder import Recorder
from gateway.telemetry.records.answer_log import AnswerLog
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
        answers: AnswerLog | None = None,
    ) -> None:
        """Assemble the recorder and tracing; `sampler` records requests, `answers` answers too, None nothing."""
        self._log = runtime.log
        self.sampler = sampler
        self.answers = answers
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


def read_live_gauges(metrics: GatewayMetrics, deployments: Iterable[LiveDeployment], lanes: Iterable[LiveLane]) -> None:
    """Set the gauges anew; those of objects that left the policy are removed.

    Members of a group count under its id, so the policy bounds the labels: permits add up, and errors are the worst.
    """
    for gauge in (
        *(metrics.queue_depth, metrics.concurrency_limit, metrics.in_flight),
        *(metrics.deployment_ready, metrics.deployment_draining, metrics.forecast_error),
    ):
        gauge.clear()
    groups: dict[str, list[LiveDeployment]] = {}
    for live in deployments:
        groups.setdefault(live.group, []).append(live)
    for group, members in groups.items():
        metrics.concurrency_limit.labels(group).set(sum(live.limiter.limit for live in members if not live.has_left))
        metrics.in_flight.labels(group).set(sum(live.limiter.in_flight for live in members))
        metrics.deployment_ready.labels(group).set(any(live.is_ready for live in members))
        listed = [live.is_draining for live in members if not live.has_left]
        metrics.deployment_draining.labels(group).set(bool(listed) and all(listed))
        for share in FORECAST_ERROR_SHARES:
            errors = [error for live in members if (error := live.forecast.error.quantile(share)) is not None]
            if errors:
                metrics.forecast_error.labels(group, f"{share:g}").set(max(errors))
    for lane in lanes:
        metrics.queue_depth.labels(lane.id).set(lane.total_waiting)
