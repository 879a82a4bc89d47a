"""`POST /admin/api/replay`: a recorded answer given again, compared, and the change that changed it found."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta
from starlette.responses import Response

from gateway.access.audit_log import AuditLog
from gateway.admin.api.fields import RequestBody
from gateway.admin.api.request import AdminRequest, serves
from gateway.api.application import ApiResponse
from gateway.errors import InvalidRequest, NotFound
from gateway.replay.replayer import Replayer
from gateway.telemetry.metrics import GatewayMetrics
from gateway.telemetry.records.answer_log import AnswerLog, find_answer
from gateway.telemetry.records.answer_record import MAX_TEXT_BYTES, AnswerRecord

REPLAY_PATH: Final = "/admin/api/replay"
_MAX_BYTES: Final = 14 * MAX_TEXT_BYTES
"""Two records of the largest size, which JSON may escape, and a prompt."""
_Id = Annotated[str, Meta(min_length=1, max_length=128)]
_EQUAL: Final = {True: "equal", False: "different", None: "unclear"}


class ReplayOrder(RequestBody, frozen=True, kw_only=True):
    """The body of a replay: the id of a request that was recorded here, or records from another place."""

    id: _Id | None = None
    record: dict[str, Any] | None = None
    origin: dict[str, Any] | None = None
    """Record of the request that made the cached response of `record`."""
    bisect: bool = False
    prompt: Annotated[str, Meta(max_length=MAX_TEXT_BYTES)] | None = None


class ReplayHandlers:
    """Replays recorded answers; nothing is stored, and nothing counts for a tenant."""

    def __init__(
        self, replayer: Replayer, audit: AuditLog, folder: Path, answers: AnswerLog | None, metrics: GatewayMetrics
    ) -> None:
        """Set up the handlers.

        Args:
            replayer: The replayer.
            audit: Log of admins' actions: a replay shows texts of a tenant.
            folder: Folder of recorded answers.
            answers: This process's own log; None where answers are not recorded.
            metrics: The gateway's metrics.
        """
        self._replayer = replayer
        self._audit = audit
        self._folder = folder
        self._answers = answers
        self._metrics = metrics

    @serves(REPLAY_PATH, "POST", max_bytes=_MAX_BYTES)
    async def replay(self, request: AdminRequest) -> Response:
        """Replay a recorded answer. Raises NotFound, or InvalidRequest for a bad record or prompt."""
        order = request.fill(ReplayOrder)
        if (order.id is None) == (order.record is None):
            raise InvalidRequest("Give either id or record.", param="id")
        if order.id is not None:
            record, origin = await self._recorded(order.id)
        else:
            record, origin = _record(order.record, "record"), _record(order.origin, "origin")
        if record is None:
            raise NotFound(
                f'No answer to {order.id} is recorded here. The setting telemetry.recorder.mode = "answers" begins it, '
                "for conversations that end well and texts of up to 1 MiB; old records are deleted."
            )
        await self._audit.record(
            request.who, "request.replay", record.id, detail={"tenant": record.tenant, "bisect": order.bisect}
        )
        try:
            report = await self._replayer.replay(record, origin, bisect=order.bisect, prompt=order.prompt)
        except ValueError as error:
            raise InvalidRequest(f"record: {error}.", param="record") from None
        self._metrics.replays.labels(_EQUAL[report.is_equal]).inc()
        return ApiResponse({"replay": report})

    async def _recorded(self, request_id: str) -> tuple[AnswerRecord | None, AnswerRecord | None]:
        """Return the record of a request, and that of the request that made its cached response."""
        if self._answers is not None:
            await asyncio.to_thread(self._answers.flush)
        record = await asyncio.to_thread(find_answer, self._folder, request_id)
        entry = "" if record is None or not record.is_cached else record.cache_entry
        return record, await asyncio.to_thread(find_answer, self._folder, entry) if entry else None


def _record(document: dict[str, Any] | None, name: str) -> AnswerRecord | None:
    if document is None:
        return None
    try:
        return msgspec.convert(document, AnswerRecord)
    except msgspec.ValidationError as error:
        raise InvalidRequest(f"{name}: {error}.", param=name) from None
