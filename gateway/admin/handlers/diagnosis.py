"""`GET /admin/api/diagnosis`: measure for some seconds, then name the slow stage and what to change."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from starlette.responses import Response

from gateway.admin.api.request import AdminRequest, serves
from gateway.api.application import ApiResponse
from gateway.diagnosis.collect import SampleCollector
from gateway.diagnosis.diagnose import find_cause
from gateway.errors import InvalidRequest
from routing_policies.policy.document import Policy

DIAGNOSIS_PATH: Final = "/admin/api/diagnosis"
DEFAULT_SECONDS: Final = 10.0
MAX_SECONDS: Final = 60.0
_LEAST_SECONDS: Final = 0.2


class DiagnosisHandlers:
    """Answers with a Diagnosis; simultaneous requests share one window of the same length."""

    def __init__(self, collector: SampleCollector, policy: Callable[[], Policy]) -> None:
        self._collector = collector
        self._policy = policy
        self._running: dict[float, asyncio.Task[Response]] = {}

    @serves(DIAGNOSIS_PATH)
    async def show(self, request: AdminRequest) -> Response:
        """Diagnose the gateway from `seconds` (default 10) of its metrics. Raises InvalidRequest."""
        seconds = _seconds(request)
        task = self._running.get(seconds)
        if task is None:
            task = self._running[seconds] = asyncio.create_task(self._look(seconds), name="diagnosis")
            task.add_done_callback(lambda _: self._running.pop(seconds))
        return await asyncio.shield(task)

    async def _look(self, seconds: float) -> Response:
        return ApiResponse(find_cause(await self._collector.watch(seconds), self._policy()))


def _seconds(request: AdminRequest) -> float:
    given = request.text("seconds")
    if given is None:
        return DEFAULT_SECONDS
    try:
        seconds = float(given)
    except ValueError:
        seconds = float("nan")
    if not _LEAST_SECONDS <= seconds <= MAX_SECONDS:
        raise InvalidRequest(f"seconds: expected {_LEAST_SECONDS:g} to {MAX_SECONDS:g}.", param="seconds")
    return seconds
