"""SampleCollector: windows of this gateway's and its engines' metrics, taken while requests are served."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

from gateway.deployments.live import LiveDeployment
from gateway.diagnosis.budget import first_tokens
from gateway.diagnosis.late import MIN_BASELINE
from gateway.diagnosis.samples import Samples
from gateway.diagnosis.window import BASELINE_AGE_S, ObservedDeployment, Snapshot, Window
from gateway.telemetry.lag import LagMeter
from gateway.telemetry.metrics import GatewayMetrics
from gateway.telemetry.window import History
from gateway.timeline import Clock
from gateway.upstreams.http1.errors import UpstreamError
from gateway.upstreams.http1.request import ExchangeTimeouts, UpstreamRequest

SNAPSHOTS: Final = 8
"""Number of snapshots in one window, and so of readings of each gauge."""

_METRICS: Final = UpstreamRequest(b"GET", b"/metrics", ((b"accept", b"text/plain"),))
_TIMEOUTS: Final = ExchangeTimeouts(connect_s=1.0, first_byte_s=1.0, total_s=2.0)
_MAX_BYTES: Final = 4 * 1024 * 1024


class SampleCollector:
    """Collector of snapshots; every snapshot reads the deployments and the loop meter that exist at that time."""

    def __init__(
        self,
        metrics: GatewayMetrics,
        deployments: Callable[[], Iterable[LiveDeployment]],
        lag: Callable[[], LagMeter | None],
        history: History,
        clock: Clock,
    ) -> None:
        """Set up the collector; `history` has the metrics of the past."""
        self._metrics = metrics
        self._deployments = deployments
        self._lag = lag
        self._history = history
        self._clock = clock

    async def watch(self, seconds: float) -> Window:
        """Take evenly spaced snapshots over `seconds`, the first at once."""
        baseline = self._baseline()
        found = [await self.snapshot()]
        for _ in range(SNAPSHOTS - 1):
            await asyncio.sleep(seconds / (SNAPSHOTS - 1))
            found.append(await self.snapshot())
        return Window(found, baseline)

    def _baseline(self) -> Samples | None:
        """Return the metrics until BASELINE_AGE_S ago, or None where they hold too few first tokens."""
        totals = self._history.until(BASELINE_AGE_S)
        if totals is None:
            return None
        found = Samples.of_totals(totals, self._metrics.instruments)
        return found if first_tokens(found.distribution).count >= MIN_BASELINE else None

    async def snapshot(self) -> Snapshot:
        """Take one snapshot; an engine that does not respond in time is left out."""
        live, lag = tuple(self._deployments()), self._lag()
        samples = await asyncio.gather(*(self._engine(deployment) for deployment in live if deployment.is_bare))
        bare = [deployment for deployment in live if deployment.is_bare]
        return Snapshot(
            at=self._clock(),
            gateway=Samples.of_instruments(self._metrics.instruments),
            engines={
                deployment.id: found for deployment, found in zip(bare, samples, strict=True) if found is not None
            },
            deployments={deployment.id: self._state(deployment) for deployment in live},
            late_s=0.0 if lag is None else lag.late_s,
        )

    def _state(self, live: LiveDeployment) -> ObservedDeployment:
        return ObservedDeployment(
            is_ready=live.is_ready,
            is_draining=not live.may_be_ready,
            backoff_s=live.health.pushback_s(self._clock()),
            limit=live.limiter.limit,
            in_flight=live.limiter.in_flight,
            num_waiting=live.limiter.num_waiting,
            num_seqs=live.forecast.num_seqs(self._clock()),
            max_num_seqs=live.forecast.max_num_seqs,
        )

    async def _engine(self, live: LiveDeployment) -> Samples | None:
        if not live.is_ready:
            return None
        try:
            async with await live.client.send(_METRICS, _TIMEOUTS) as response:
                body = await response.read(_MAX_BYTES)
                if response.status != 200:
                    return None
        except UpstreamError:
            return None  # an engine without metrics is left out, and the diagnosis notes it
        return await asyncio.to_thread(lambda: Samples.of_text(body.decode("utf-8", "replace")))
