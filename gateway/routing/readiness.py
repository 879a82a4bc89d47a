"""Readiness probes: asks every deployment once a second, off the request path."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

from gateway.routing.live import LiveDeployment
from gateway.telemetry.log import LogWriter
from gateway.upstreams.errors import UpstreamError
from gateway.upstreams.request import UpstreamRequest
from gateway.upstreams.timeouts import Timeouts

PROBE_INTERVAL_S: Final = 1.0
PROBE_TIMEOUTS: Final = Timeouts(connect_s=1.0, first_byte_s=1.0, total_s=2.0)

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
    ) -> None:
        self._deployments = deployments
        self._log = log
        self._interval_s = interval_s

    async def run(self) -> None:
        """Wait, probe, for ever; ends by cancellation."""
        while True:
            await asyncio.sleep(self._interval_s)
            await self.probe_all()

    async def probe_all(self) -> None:
        """One round, all deployments at once."""
        await asyncio.gather(*(self._probe(deployment) for deployment in self._deployments()))

    async def _probe(self, deployment: LiveDeployment) -> None:
        try:
            async with await deployment.client.send(_PROBE, PROBE_TIMEOUTS) as response:
                await response.read(_MAX_ANSWER_BYTES)
                is_ready = response.status < 300 or response.status in _NO_SUCH_PATH
                reason = f"status {response.status}"
        except UpstreamError as error:
            is_ready, reason = False, str(error)
        if is_ready != deployment.is_ready:
            deployment.is_ready = is_ready
            self._log.event(
                "deployment_ready" if is_ready else "deployment_not_ready", deployment=deployment.id, reason=reason
            )
