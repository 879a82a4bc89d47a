"""ReadinessProber: probes every deployment once a second, off the request path."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import Final

from gateway.deployments.live import LiveDeployment
from gateway.deployments.starting import StartReport, parse_start
from gateway.telemetry.logs.log import LogWriter
from gateway.timeline import Clock
from gateway.upstreams.http1.errors import ConnectTimeout, UpstreamError, UpstreamTimeout
from gateway.upstreams.http1.request import ExchangeTimeouts, UpstreamRequest

PROBE_INTERVAL_S: Final = 1.0
CHECKS: Final = 5
"""Probes in each interval of deployments that are starting, because requests may wait for them."""
PROBE_TIMEOUTS: Final = ExchangeTimeouts(connect_s=1.0, first_byte_s=1.0, total_s=2.0)
BUSY_S: Final = 5.0
"""Seconds since a token within which a deployment counts as alive, however late its probe is."""

_PROBE: Final = UpstreamRequest(b"GET", b"/readyz", ((b"accept", b"*/*"),))
_MAX_ANSWER_BYTES: Final = 64 * 1024
DRAINING: Final = "draining"
"""State of an engine that admits nothing new and finishes what runs."""
_NO_SUCH_PATH: Final = frozenset({400, 401, 403, 404, 405, 429})
"""Statuses of a server without `/readyz`, which count as ready."""


class ReadinessProber:
    """Prober that sets `is_ready` of every deployment; the set of deployments is read anew each round."""

    def __init__(
        self,
        deployments: Callable[[], Iterable[LiveDeployment]],
        log: LogWriter,
        *,
        on_probed: Callable[[], None],
        interval_s: float = PROBE_INTERVAL_S,
        clock: Clock = time.monotonic,
    ) -> None:
        """Create a stopped prober.

        Args:
            deployments: Returns the current deployments.
            log: The log of changes.
            on_probed: Called after each round.
            interval_s: Seconds between two checks.
            clock: Monotonic clock.
        """
        self._deployments = deployments
        self._log = log
        self._clock = clock
        self._interval_s = interval_s
        self._on_probed = on_probed
        self._known: set[LiveDeployment] = set()
        """Deployments whose state is logged; one that is not ready at first is logged too."""
        self._down: set[LiveDeployment] = set()
        """Deployments that a probe found not ready; the next process there is a new or newly warmed one."""

    async def run(self) -> None:
        """Probe periodically until cancelled."""
        while True:
            for _ in range(CHECKS - 1):
                await asyncio.sleep(self._interval_s / CHECKS)
                await self._probe_starting()
            await asyncio.sleep(self._interval_s / CHECKS)
            await self.probe_all()

    async def probe_all(self) -> None:
        """Probe all deployments once, concurrently."""
        deployments = tuple(self._deployments())
        self._down.intersection_update(deployments)
        self._known.intersection_update(deployments)
        await self._probe_these(deployments)

    async def _probe_starting(self) -> None:
        now = self._clock()
        starting = [deployment for deployment in self._deployments() if deployment.ready_in_s(now) is not None]
        if starting:
            await self._probe_these(starting)

    async def _probe_these(self, deployments: Iterable[LiveDeployment]) -> None:
        await asyncio.gather(*(self._probe(deployment) for deployment in deployments))
        self._on_probed()

    async def _probe(self, deployment: LiveDeployment) -> None:
        began_at = self._clock()
        try:
            async with await deployment.client.send(_PROBE, PROBE_TIMEOUTS) as response:
                report = parse_start(await response.read(_MAX_ANSWER_BYTES))
                is_ready = response.status < 300 or response.status in _NO_SUCH_PATH
                reason = f"status {response.status}"
            deployment.round_trip.note(self._clock() - began_at)
            self._note_start(deployment, report, is_ready=is_ready)
            can_answer = is_ready or report.state == DRAINING
        except UpstreamError as error:
            is_ready, reason = self._is_only_slow(deployment, error), str(error)
            can_answer = is_ready or not isinstance(error, UpstreamTimeout)  # a refusing server may finish what runs
            if not _is_late(error):
                deployment.starting.note_gone()
        if not can_answer:
            deployment.health.note_not_ready(self._clock())
        self._note_process(deployment, is_ready=is_ready)
        is_ready = is_ready and deployment.may_be_ready
        if is_ready != deployment.is_ready or deployment not in self._known:
            self._known.add(deployment)
            deployment.is_ready = is_ready
            self._log.event(
                "deployment_ready" if is_ready else "deployment_not_ready", deployment=deployment.id, reason=reason
            )

    def _note_start(self, deployment: LiveDeployment, report: StartReport, *, is_ready: bool) -> None:
        if is_ready:
            deployment.starting.note_ready(self._clock(), report)
        else:
            deployment.starting.note_waiting(self._clock(), report)

    def _is_only_slow(self, deployment: LiveDeployment, error: UpstreamError) -> bool:
        """Return whether a late deployment was ready and has produced tokens since, so it is busy and not dead."""
        return _is_late(error) and deployment.is_ready and deployment.health.idle_s(self._clock()) < BUSY_S

    def _note_process(self, deployment: LiveDeployment, *, is_ready: bool) -> None:
        """Drop the health record of a process that has been replaced; a failed connect alone proves no new one."""
        if not is_ready:
            self._down.add(deployment)
            return
        if deployment in self._down:
            self._down.discard(deployment)
            deployment.health.reset(self._clock())
            deployment.begin_warm_up(self._clock())
        elif deployment not in self._known:
            deployment.begin_warm_up(self._clock())


def _is_late(error: UpstreamError) -> bool:
    """Return whether the server accepted the connection but did not respond in time."""
    return isinstance(error, UpstreamTimeout) and not isinstance(error, ConnectTimeout)
