"""JsonBodies: reads the JSON documents that small endpoints are sent, within the memory that bodies may take."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from starlette.requests import Request

from gateway.chat.request import require_json
from gateway.chat.strict_json import LONG_BYTES, JsonGuard, is_long
from gateway.errors import RequestTooLarge
from gateway.http.asgi import BodyTooLarge, find_header, read_body
from gateway.limits.body_budget import BodyBudget, parsed_bytes
from gateway.util.workers import Workers

MAX_SUBMISSION_BYTES: Final = 64 * 1024


class JsonBodies:
    """Counts each body for an owner until its request is answered; long ones are decoded on `workers`."""

    def __init__(self, budget: BodyBudget, workers: Workers) -> None:
        self._budget = budget
        self._workers = workers
        self._guard = JsonGuard(())

    @asynccontextmanager
    async def read(
        self, request: Request, owner: str, max_bytes: int = MAX_SUBMISSION_BYTES
    ) -> AsyncIterator[dict[str, Any]]:
        """Hold the request's document; no body is an empty one for DELETE.

        Raises UnsupportedMediaType, RequestTooLarge, InvalidRequest, Shed or ClientGone.
        """
        held = self._budget.open(owner)
        try:
            body = await read_body(request.receive, max_bytes, room=held)
            is_slow = len(body) > LONG_BYTES
            await held.cover(await self._workers.run(parsed_bytes, body) if is_slow else parsed_bytes(body))
            yield {} if request.method == "DELETE" and not body else await self._decoded(request, body)
        except BodyTooLarge as error:
            raise RequestTooLarge(f"{error} Send a smaller one.") from None
        finally:
            held.release()

    async def _decoded(self, request: Request, body: bytes) -> dict[str, Any]:
        require_json(find_header(request.scope, b"content-type"), find_header(request.scope, b"content-encoding"))
        if is_long(body):
            return await self._workers.run(self._guard.decode, body)
        return self._guard.decode(body)
