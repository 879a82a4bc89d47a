"""Readiness probes: asks every deployment once a second, off the request path."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import Final

from gateway.routing.live import LiveDeployment
from gateway.telemetry.log import LogWriter
from gateway.timeline import Clock
from gateway.upstreams.errors import ConnectTimeout, UpstreamError, UpstreamTimeout
from gateway.upstreams.request import UpstreamRequest
from gateway.upstreams.timeouts import Timeouts

PROBE_INTERVAL_S: Final = 1.0
PROBE_TIMEOUTS: Final = Timeouts(connect_s=1.0, first_byte_s=1.0, total_s=2.0)
BUSY_S: Final = 5.0
"""Who made a token within this time is alive, however late its answer to a probe is."""

_PROBE: Final = UpstreamRequest(b"GET", b"/readyz", ((b"accept", b"*/*"),))
_MAX_ANSWER_BYTES: Final = 64 * 1024
_NO_SUCH_PATH: Final = frozenset({400, 401, 403, 404, 405, 429})
"""A server without `/readyz` answered: it is there, and more cannot be asked of it."""


class ReadinessProber:
    """Keeps `is_ready` of every deployment true to the last answer; `deployments` is asked anew each round."""

    def __init__(
        self,
        deployments: Callable[[], Iterable[LiveDeployment]],
        log: LogWriter,
        *,
        interval_s: float = PROBE_INTERVAL_S,
        clock: Clock = time.monotonic,
    ) -> None:
        self._deployments = deployments
        self._log = log
        self._clock = clock
        self._interval_s = interval_s
        self._down: set[LiveDeployment] = set()
        """Those that a probe found not ready: what answers there next is another process, or a warmed-up one."""

    async def run(self) -> None:
        """Wait, probe, for ever; ends by cancellation."""
        while True:
            await asyncio.sleep(self._interval_s)
            await self.probe_all()

    async def probe_all(self) -> None:
        """One round, all deployments at once."""
        deployments = tuple(self._deployments())
        self._down.intersection_update(deployments)
        await asyncio.gather(*(self._probe(deployment) for deployment in deployments))

    async def _probe(self, deployment: LiveDeployment) -> None:
        try:
            async with await deployment.client.send(_PROBE, PROBE_TIMEOUTS) as response:
                await response.read(_MAX_ANSWER_BYTES)
                is_ready = response.status < 300 or response.status in _NO_SUCH_PATH
                reason = f"status {response.status}"
        except UpstreamError as error:
            is_ready, reason = self._is_only_slow(deployment, error), str(error)
        self._note_process(deployment, is_ready=is_ready)
        is_ready = is_ready and not deployment.is_draining
        if is_ready != deployment.is_ready:
            deployment.is_ready = is_ready
            self._log.event(
                "deployment_ready" if is_ready else "deployment_not_ready", deployment=deployment.id, reason=reason
            )

    def _is_only_slow(self, deployment: LiveDeployment, error: UpstreamError) -> bool:
        """Whether a deployment whose probe was late was ready before and has made tokens since: busy, not dead."""
        is_late = isinstance(error, UpstreamTimeout) and not isinstance(error, ConnectTimeout)
        return is_late and deployment.is_ready and deployment.health.quiet_s(self._clock()) < BUSY_S

    def _note_process(self, deployment: LiveDeployment, *, is_ready: bool) -> None:
        """Forget what a process did that is no more. A failed connect alone proves no new one."""
        if not is_ready:
            self._down.add(deployment)
        elif deployment in self._down:
            self._down.discard(deployment)
            deployment.health.reset(self._clock())
